-- Every write looks for rows without a checksum, of which there are hardly any: without this it would read all rows.
CREATE INDEX edits_unchecked ON edits(id) WHERE checksum IS NULL;

-- What the author of an edit had read, where that is not to be trusted by itself; NULL: nothing.
ALTER TABLE edits ADD COLUMN source TEXT;
CREATE INDEX edits_by_source ON edits(source) WHERE source IS NOT NULL;

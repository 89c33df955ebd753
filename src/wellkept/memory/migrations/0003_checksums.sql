-- A checksum of every column of a row but `voided`; rows without one are checked by their form until the next edit.
ALTER TABLE edits ADD COLUMN checksum INTEGER;

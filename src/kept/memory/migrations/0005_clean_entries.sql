-- Derived: the entries of each page that the scanner found clean, as joined digests, which are worthless once the
-- rules change. They are here because a row of this file can also allow a rule for an entry.
CREATE TABLE clean_entries (target TEXT PRIMARY KEY, digests BLOB NOT NULL) WITHOUT ROWID;

-- Derived: the entries of each page that the scanner found clean, as joined digests, which are worthless once the
-- rules change. They are here because a row of this file can also allow a rule for an entry.
CREATE TABLE clean_entries (target TEXT PRIMARY KEY, digests BLOB NOT NULL) WITHOUT ROWID;
-- Texts of rows change only when they are forgotten or repaired: nothing that was made of them stays.
CREATE TRIGGER edits_blanked AFTER UPDATE OF before, after ON edits BEGIN DELETE FROM clean_entries; END;

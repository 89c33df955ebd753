-- What the proxy added to conversations of clients, so that it is put back byte for byte in every later request.

-- `place` is a hash of the messages up to the one that the text was added to; that of the block begins with 'block:'
CREATE TABLE injections (
  user_id TEXT NOT NULL,
  key TEXT NOT NULL,
  place BLOB NOT NULL,
  session_id TEXT NOT NULL,
  text TEXT NOT NULL,
  created REAL NOT NULL,
  checksum INTEGER,
  PRIMARY KEY (user_id, key, place)
) WITHOUT ROWID;
CREATE INDEX injections_by_age ON injections (created);
CREATE TRIGGER injections_unchecked AFTER UPDATE OF
  user_id, key, place, session_id, text, created
ON injections WHEN new.checksum IS old.checksum BEGIN
  UPDATE injections SET checksum = NULL
  WHERE user_id = new.user_id AND key = new.key AND place = new.place;
END;

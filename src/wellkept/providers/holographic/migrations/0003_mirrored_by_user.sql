-- Each user has a ledger of their own, so a ledger id identifies a mirrored write only together with its user.

CREATE TABLE mirrored_writes (
  user_id TEXT NOT NULL,
  ledger_id INTEGER NOT NULL,
  PRIMARY KEY (user_id, ledger_id)
) WITHOUT ROWID;
INSERT INTO mirrored_writes (user_id, ledger_id) SELECT 'owner', ledger_id FROM mirrored;
DROP TABLE mirrored;

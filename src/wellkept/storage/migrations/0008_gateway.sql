-- The gateway: who may call it, and which session continues the conversation of a client or a chat.

CREATE TABLE tokens (
  id TEXT PRIMARY KEY,
  user_id TEXT NOT NULL,
  name TEXT NOT NULL,
  scopes TEXT NOT NULL,
  created REAL NOT NULL,
  expires REAL,
  last_used REAL,
  hash BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE conversation_keys (
  user_id TEXT NOT NULL,
  key TEXT NOT NULL,
  session_id TEXT NOT NULL,
  last_used REAL NOT NULL,
  PRIMARY KEY (user_id, key)
) WITHOUT ROWID;
CREATE INDEX conversation_keys_of_session ON conversation_keys (session_id);

-- the messages of a conversation as its client sends them, by hash, so that a repeated history is recognised
CREATE TABLE client_messages (
  user_id TEXT NOT NULL,
  key TEXT NOT NULL,
  position INTEGER NOT NULL,
  hash BLOB NOT NULL,
  message_id INTEGER NOT NULL,
  PRIMARY KEY (user_id, key, position)
) WITHOUT ROWID;

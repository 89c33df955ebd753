-- What was captured from the transcripts of other programs: every message once, and where reading stopped.

CREATE TABLE captured_sessions (
  user_id TEXT NOT NULL,
  client TEXT NOT NULL,
  external_id TEXT NOT NULL,
  session_id TEXT NOT NULL,
  -- the external id of the conversation that this one hangs under, until it is linked
  waits_for TEXT,
  -- the last title that the source gave; another one in `sessions` was chosen by a person
  title TEXT,
  captured REAL NOT NULL,
  PRIMARY KEY (user_id, client, external_id)
) WITHOUT ROWID;

CREATE INDEX captured_sessions_by_id ON captured_sessions (session_id);

CREATE TABLE captured_messages (
  -- a hash of user, client and the message's id there; stays when the message is removed, so that it does not return
  key BLOB PRIMARY KEY,
  message_id INTEGER NOT NULL,
  -- a short hash of the content, to notice a message that has grown
  mark INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE captured_turns (
  user_id TEXT NOT NULL,
  client TEXT NOT NULL,
  external_id TEXT NOT NULL,
  turn TEXT NOT NULL,
  -- a short hash of the prompt, for sources without ids of turns
  prompt INTEGER NOT NULL,
  -- the messages that an event gave, as JSON; empty once the transcript has replaced them
  messages TEXT NOT NULL,
  PRIMARY KEY (user_id, client, external_id, turn)
) WITHOUT ROWID;

CREATE TABLE transcripts (
  user_id TEXT NOT NULL,
  client TEXT NOT NULL,
  path TEXT NOT NULL,
  position INTEGER NOT NULL,
  check_bytes TEXT NOT NULL,
  state TEXT NOT NULL,
  waiting_bytes INTEGER NOT NULL,
  read_at REAL NOT NULL,
  PRIMARY KEY (user_id, client, path)
) WITHOUT ROWID;

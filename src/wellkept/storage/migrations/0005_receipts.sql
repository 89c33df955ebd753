-- What a model was shown of the stored memory, by whom it was asked and what people said about it.
-- Receipts hold ids and scores, no text of a message; the query is the only text.

CREATE TABLE receipts (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  user_id TEXT NOT NULL,
  created REAL NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('start', 'prompt', 'search', 'tool')),
  client TEXT NOT NULL,
  query TEXT NOT NULL,
  session_id TEXT,
  project TEXT,
  candidates INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  milliseconds REAL NOT NULL
);
CREATE INDEX receipts_of_session ON receipts (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX receipts_by_time ON receipts (created);

-- one row per thing that was shown: a message, a session (by id and title only) or a page
CREATE TABLE receipt_items (
  receipt_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  message_id INTEGER,
  session_id TEXT,
  page TEXT,
  score REAL,
  parts TEXT,
  PRIMARY KEY (receipt_id, position)
) WITHOUT ROWID;
CREATE INDEX receipt_items_of_message ON receipt_items (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX receipt_items_of_session ON receipt_items (session_id) WHERE session_id IS NOT NULL;

-- marks outlive their receipt: "never" keeps a message out of automatic recall for good
-- message_id 0 marks the receipt as a whole
CREATE TABLE receipt_marks (
  user_id TEXT NOT NULL,
  receipt_id INTEGER NOT NULL,
  message_id INTEGER NOT NULL DEFAULT 0,
  mark TEXT NOT NULL CHECK (mark IN ('useful', 'wrong', 'never')),
  created REAL NOT NULL,
  PRIMARY KEY (user_id, receipt_id, message_id)
) WITHOUT ROWID;
CREATE INDEX receipt_marks_of_message ON receipt_marks (message_id) WHERE message_id <> 0;

-- Sessions and messages are canonical; everything that searches them is derived and rebuilt from here.

CREATE TABLE state_meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE prompts (
  hash TEXT PRIMARY KEY,
  text TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE sessions (
  id TEXT PRIMARY KEY,
  source TEXT NOT NULL,
  user_id TEXT NOT NULL DEFAULT 'owner',
  profile TEXT,
  project TEXT,
  model TEXT,
  title TEXT,
  parent_session_id TEXT,
  link TEXT CHECK (link IN ('compression', 'branch', 'delegate', 'import')),
  started REAL NOT NULL,
  ended REAL,
  end_reason TEXT,
  archived INTEGER NOT NULL DEFAULT 0,
  trashed REAL,
  last_active REAL,
  message_count INTEGER NOT NULL DEFAULT 0,
  prompt_hash TEXT,
  -- own messages up to this id are in the context only where `carried` lists them
  context_from INTEGER NOT NULL DEFAULT 0,
  metadata TEXT
);

CREATE UNIQUE INDEX sessions_title ON sessions (user_id, title) WHERE title IS NOT NULL;
CREATE INDEX sessions_recent ON sessions (user_id, last_active);
CREATE INDEX sessions_parent ON sessions (parent_session_id) WHERE parent_session_id IS NOT NULL;
CREATE INDEX sessions_trashed ON sessions (trashed) WHERE trashed IS NOT NULL;

CREATE TABLE messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL REFERENCES sessions (id),
  role TEXT NOT NULL,
  content TEXT NOT NULL DEFAULT '',
  timestamp REAL NOT NULL,
  state TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'compacted', 'rewound')),
  origin TEXT,
  tool_name TEXT,
  tool_calls TEXT,
  tool_call_id TEXT,
  reasoning TEXT,
  parts TEXT,
  token_count INTEGER,
  api_content TEXT,
  external_id TEXT,
  interrupted INTEGER NOT NULL DEFAULT 0,
  rewind_run INTEGER,
  -- 1 where the writer indexes the row itself; any other program leaves it out, and the row is queued
  indexed_on_write INTEGER NOT NULL DEFAULT 0
);

-- the rowid is the last column of every index, so this one also orders a session's messages
CREATE INDEX messages_session ON messages (session_id);
CREATE INDEX messages_rewound ON messages (session_id) WHERE state = 'rewound';

-- what a session's context begins with: rows of its own or of the sessions it came from, never copies
CREATE TABLE carried (
  session_id TEXT NOT NULL REFERENCES sessions (id),
  position INTEGER NOT NULL,
  message_id INTEGER NOT NULL,
  rewind_run INTEGER,
  PRIMARY KEY (session_id, position)
) WITHOUT ROWID;

CREATE INDEX carried_message ON carried (message_id);

CREATE TABLE blobs (
  hash TEXT PRIMARY KEY,
  data BLOB NOT NULL
);

CREATE TABLE blob_uses (
  message_id INTEGER NOT NULL,
  hash TEXT NOT NULL,
  PRIMARY KEY (message_id, hash)
) WITHOUT ROWID;

CREATE INDEX blob_uses_hash ON blob_uses (hash);

CREATE TABLE usage (
  session_id TEXT NOT NULL,
  day TEXT NOT NULL,
  model TEXT NOT NULL,
  task TEXT NOT NULL,
  api_call_count INTEGER NOT NULL DEFAULT 0,
  input_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0,
  cache_read_tokens INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  cost REAL,
  PRIMARY KEY (session_id, day, model, task)
) WITHOUT ROWID;

CREATE TABLE notes (
  session_id TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (session_id, key)
) WITHOUT ROWID;

CREATE TABLE leases (
  name TEXT PRIMARY KEY,
  holder TEXT NOT NULL,
  expires REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE nodes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL,
  depth INTEGER NOT NULL,
  text TEXT NOT NULL,
  children TEXT NOT NULL,
  created REAL NOT NULL
);

CREATE INDEX nodes_session ON nodes (session_id);

-- salted hashes of what was forgotten, so that an import does not bring it back
CREATE TABLE tombstones (
  hash TEXT PRIMARY KEY,
  forgotten REAL NOT NULL
) WITHOUT ROWID;

-- ids whose index rows are out of date; our own writes leave nothing here
CREATE TABLE index_queue (
  message_id INTEGER PRIMARY KEY
);

CREATE TRIGGER messages_added AFTER INSERT ON messages WHEN new.indexed_on_write = 0 BEGIN
  INSERT OR IGNORE INTO index_queue (message_id) VALUES (new.id);
END;

CREATE TRIGGER messages_changed AFTER UPDATE OF content, role, tool_name, tool_calls ON messages BEGIN
  INSERT OR IGNORE INTO index_queue (message_id) VALUES (new.id);
END;

CREATE TRIGGER messages_removed AFTER DELETE ON messages BEGIN
  INSERT OR IGNORE INTO index_queue (message_id) VALUES (old.id);
END;

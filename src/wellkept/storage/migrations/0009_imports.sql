-- Imports, and what each of them created, so that it can be undone and a later one knows what is its own.

CREATE TABLE imports (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  user_id TEXT NOT NULL,
  source TEXT NOT NULL,
  started REAL NOT NULL,
  -- NULL while it runs, or if it was interrupted
  finished REAL,
  undone REAL,
  -- the counts of its report, as JSON
  counts TEXT NOT NULL DEFAULT '{}',
  -- the folder of its report
  folder TEXT
);

-- NULL for what events of a connected agent captured
ALTER TABLE captured_messages ADD COLUMN import_number INTEGER;
ALTER TABLE captured_sessions ADD COLUMN import_number INTEGER;

CREATE TABLE imported_usage (
  import_number INTEGER NOT NULL,
  session_id TEXT NOT NULL,
  day TEXT NOT NULL,
  model TEXT NOT NULL,
  task TEXT NOT NULL,
  calls INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  cache_read_tokens INTEGER NOT NULL,
  cache_write_tokens INTEGER NOT NULL,
  PRIMARY KEY (import_number, session_id, day, model, task)
) WITHOUT ROWID;

CREATE TABLE imported_items (
  user_id TEXT NOT NULL,
  source TEXT NOT NULL,
  -- entry, skill, setting, secret or document
  kind TEXT NOT NULL,
  -- of the file that an entry came from, or of the item itself
  name TEXT NOT NULL,
  -- the place of an entry in its file
  part INTEGER NOT NULL,
  -- a short hash of the content that was imported; stays when the content is forgotten, so that it does not return
  mark TEXT NOT NULL,
  -- what became of it: added, present, archived, held, blocked, replaced, skipped
  state TEXT NOT NULL,
  -- where it went: the page of an entry, the change of a skill
  place TEXT NOT NULL,
  import_number INTEGER NOT NULL,
  PRIMARY KEY (user_id, source, kind, name, part)
) WITHOUT ROWID;

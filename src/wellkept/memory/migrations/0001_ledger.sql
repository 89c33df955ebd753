-- One row per applied step. Steps that were written to the page together share write_id;
-- edits that belong together (a batch, a review, an import) share group_id.
CREATE TABLE edits (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  write_id INTEGER NOT NULL,
  group_id TEXT NOT NULL,
  time REAL NOT NULL,
  target TEXT NOT NULL,
  action TEXT NOT NULL,
  before TEXT,
  after TEXT,
  position INTEGER NOT NULL,
  origin TEXT NOT NULL,
  session_id TEXT,
  user_id TEXT NOT NULL,
  reason TEXT,
  allowed TEXT,
  undoes INTEGER REFERENCES edits(id),
  page_before TEXT NOT NULL,
  page_after TEXT NOT NULL,
  voided INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX edits_by_target ON edits(target, id);
CREATE INDEX edits_by_undone ON edits(undoes) WHERE undoes IS NOT NULL;

-- Facts are canonical here; the full-text index and the vectors are derived from them.

CREATE TABLE facts (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  user_id TEXT NOT NULL,
  text TEXT NOT NULL,
  key TEXT NOT NULL,
  speaker TEXT,
  category TEXT NOT NULL DEFAULT 'general',
  tags TEXT NOT NULL DEFAULT '',
  source TEXT NOT NULL CHECK (source IN ('tool', 'page', 'extracted')),
  session_id TEXT NOT NULL DEFAULT '',
  trust REAL NOT NULL,
  helpful INTEGER NOT NULL DEFAULT 0,
  unhelpful INTEGER NOT NULL DEFAULT 0,
  created REAL NOT NULL,
  updated REAL NOT NULL,
  length INTEGER NOT NULL,
  vector BLOB NOT NULL,
  UNIQUE (user_id, key)
);
CREATE INDEX facts_by_speaker ON facts (user_id, speaker);

CREATE VIRTUAL TABLE facts_index USING fts5(
  words, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2'
);

CREATE TABLE entities (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL
);

CREATE TABLE fact_entities (
  fact_id INTEGER NOT NULL REFERENCES facts (id) ON DELETE CASCADE,
  entity_id INTEGER NOT NULL REFERENCES entities (id),
  PRIMARY KEY (fact_id, entity_id)
) WITHOUT ROWID;
CREATE INDEX fact_entities_by_entity ON fact_entities (entity_id, fact_id);

CREATE TABLE mirrored (
  ledger_id INTEGER PRIMARY KEY
);

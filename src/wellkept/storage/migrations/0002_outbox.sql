-- What waits to be told to external providers, what they were asked, and how they are.

CREATE TABLE outbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  provider TEXT NOT NULL,
  session_id TEXT NOT NULL,
  hook TEXT NOT NULL CHECK (hook IN ('sync_turn', 'on_memory_write', 'on_delegation', 'on_session_end')),
  payload TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  created REAL NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  not_before REAL NOT NULL DEFAULT 0,
  last_error TEXT,
  UNIQUE (provider, idempotency_key)
);
CREATE INDEX outbox_in_order ON outbox (provider, id);

CREATE TABLE outbox_lanes (
  provider TEXT PRIMARY KEY,
  ledger_id INTEGER,
  delivered INTEGER NOT NULL DEFAULT 0,
  dropped INTEGER NOT NULL DEFAULT 0,
  lease_holder TEXT,
  lease_until REAL NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE provider_calls (
  id INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL,
  provider TEXT NOT NULL,
  call TEXT NOT NULL,
  started REAL NOT NULL,
  seconds REAL NOT NULL,
  outcome TEXT NOT NULL,
  bytes_out INTEGER NOT NULL,
  bytes_in INTEGER NOT NULL
);
CREATE INDEX provider_calls_of_session ON provider_calls (session_id, id);
CREATE INDEX provider_calls_by_time ON provider_calls (started);

CREATE TABLE provider_health (
  provider TEXT PRIMARY KEY,
  failures INTEGER NOT NULL,
  paused_until REAL NOT NULL,
  last_error TEXT,
  last_error_at REAL,
  last_success_at REAL
) WITHOUT ROWID;

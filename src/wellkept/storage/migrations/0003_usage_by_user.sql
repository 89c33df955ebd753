-- Counted model calls belong to a user, also after their session is gone.

CREATE TABLE usage_by_user (
  user_id TEXT NOT NULL DEFAULT 'owner',
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
  PRIMARY KEY (user_id, session_id, day, model, task)
) WITHOUT ROWID;

INSERT INTO usage_by_user
SELECT coalesce(s.user_id, 'owner'), u.session_id, u.day, u.model, u.task, u.api_call_count,
  u.input_tokens, u.output_tokens, u.cache_read_tokens, u.cache_write_tokens, u.cost
FROM usage AS u LEFT JOIN sessions AS s ON s.id = u.session_id;

DROP TABLE usage;
ALTER TABLE usage_by_user RENAME TO usage;

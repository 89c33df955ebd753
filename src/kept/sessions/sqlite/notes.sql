-- name: note
INSERT INTO notes (session_id, key, value) VALUES (?, ?, ?)
ON CONFLICT (session_id, key) DO UPDATE SET value = excluded.value;

-- name: forget_note
DELETE FROM notes WHERE session_id = ? AND key = ?;

-- name: noted
SELECT value FROM notes WHERE session_id = ? AND key = ?;

-- name: lease
INSERT INTO leases (name, holder, expires) VALUES (:name, :holder, :expires)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires = excluded.expires
WHERE holder = excluded.holder OR expires <= :now;

-- name: release
DELETE FROM leases WHERE name = ? AND holder = ?;

-- name: add_usage
INSERT INTO usage (
  user_id, session_id, day, model, task, api_call_count,
  input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost
) VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?)
ON CONFLICT (user_id, session_id, day, model, task) DO UPDATE SET
  api_call_count = api_call_count + 1,
  input_tokens = input_tokens + excluded.input_tokens,
  output_tokens = output_tokens + excluded.output_tokens,
  cache_read_tokens = cache_read_tokens + excluded.cache_read_tokens,
  cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens,
  cost = CASE WHEN cost IS NULL THEN excluded.cost ELSE cost + coalesce(excluded.cost, 0) END;

-- name: usage
SELECT day, model, task, session_id, api_call_count,
  input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost
FROM usage WHERE user_id = :user AND (:session IS NULL OR session_id = :session) AND day >= :since ORDER BY day, model, task;

-- name: add_node
INSERT INTO nodes (session_id, depth, text, children, created) VALUES (?, ?, ?, ?, ?);

-- name: nodes
SELECT id, depth, text, children FROM nodes WHERE session_id = ? ORDER BY id;

-- name: borrowed
SELECT DISTINCT c.message_id, c.session_id FROM carried AS c JOIN messages AS m ON m.id = c.message_id
WHERE m.session_id = ?1 AND c.session_id <> ?1 AND c.session_id NOT IN (SELECT value FROM json_each(?2));

-- name: give
UPDATE messages SET session_id = ?, rewind_run = NULL, state = 'active'
WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: page
SELECT id FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ? LIMIT ?;

-- name: delete_message
DELETE FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: uncarry
DELETE FROM carried WHERE /*! tenant = :tenant AND user_id = :user AND */ message_id = ?;

-- name: blobs_of
SELECT hash FROM blob_uses WHERE /*! tenant = :tenant AND user_id = :user AND */ message_id = ?;

-- name: source_of
SELECT source FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ? AND source IS NOT NULL;

-- name: drop_source
DELETE FROM sources WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?1 AND NOT EXISTS (
  SELECT 1 FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ source = ?1);

-- name: drop_uses
DELETE FROM blob_uses WHERE /*! tenant = :tenant AND user_id = :user AND */ message_id = ?;

-- name: drop_blob
DELETE FROM blobs WHERE /*! tenant = :tenant AND user_id = :user AND */ hash = ?1 AND NOT EXISTS (
  SELECT 1 FROM blob_uses WHERE /*! tenant = :tenant AND user_id = :user AND */ hash = ?1);

-- name: drop_carried
DELETE FROM carried WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

-- name: drop_notes
DELETE FROM notes WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

-- name: drop_nodes
DELETE FROM nodes WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

-- name: keep_totals
INSERT INTO usage (
  /*! tenant, */
  user_id, session_id, day, model, task, api_call_count,
  input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost
)
SELECT /*! :tenant, */ user_id, '', day, model, task, api_call_count,
  input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost
FROM usage WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1
  AND user_id = (SELECT user_id FROM sessions WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?1)
ON CONFLICT (/*! tenant, */ user_id, session_id, day, model, task) DO UPDATE SET
  api_call_count = usage.api_call_count + excluded.api_call_count,
  input_tokens = usage.input_tokens + excluded.input_tokens,
  output_tokens = usage.output_tokens + excluded.output_tokens,
  cache_read_tokens = usage.cache_read_tokens + excluded.cache_read_tokens,
  cache_write_tokens = usage.cache_write_tokens + excluded.cache_write_tokens,
  cost = CASE WHEN usage.cost IS NULL THEN excluded.cost ELSE usage.cost + coalesce(excluded.cost, 0) END;

-- name: drop_usage
DELETE FROM usage WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1
  AND user_id = (SELECT user_id FROM sessions WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?1);

-- name: orphan
UPDATE sessions SET parent_session_id = NULL, link = NULL
WHERE /*! tenant = :tenant AND user_id = :user AND */ parent_session_id = ?;

-- name: drop_session
DELETE FROM sessions WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: salt
SELECT value FROM state_meta WHERE /*! tenant = :tenant AND user_id = :user AND */ key = 'tombstone_salt';

-- name: make_salt
INSERT INTO state_meta (/*! tenant, user_id, */ key, value) VALUES (/*! :tenant, :user, */ 'tombstone_salt', ?)
ON CONFLICT DO NOTHING;

-- name: add
INSERT INTO tombstones (/*! tenant, user_id, */ hash, forgotten) VALUES (/*! :tenant, :user, */ ?, ?)
ON CONFLICT DO NOTHING;

-- name: has
SELECT 1 FROM tombstones WHERE /*! tenant = :tenant AND user_id = :user AND */ hash = ?;

-- name: any
SELECT 1 FROM tombstones /*! WHERE tenant = :tenant AND user_id = :user */ LIMIT 1;

-- name: owner
SELECT user_id FROM sessions WHERE id = ?;

-- name: known
SELECT id, CAST(external_id AS TEXT), CAST(role AS TEXT), CAST(content AS TEXT), CAST(parts AS TEXT),
  CAST(tool_calls AS TEXT), CAST(timestamp AS DOUBLE PRECISION) FROM messages
WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ? AND state <> 'rewound' ORDER BY id;

-- name: begun_earlier
UPDATE sessions SET started = ?1 WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?2 AND started > ?1;

-- name: add_title
UPDATE sessions SET title = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ? AND title IS NULL;

-- name: sessions
SELECT id, source, started, user_id, profile, project, model, title, parent_session_id, link, ended, end_reason,
  archived, last_active, message_count, metadata, context_from
FROM sessions
WHERE user_id = :user AND trashed IS NULL AND (:session IS NULL OR id = :session)
ORDER BY rowid;

-- name: carried
SELECT message_id FROM carried WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?
  AND rewind_run IS NULL ORDER BY position;

-- name: notes
SELECT key, value FROM notes WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?
  AND key <> 'importing';

-- name: fill_in
UPDATE sessions SET
  model = coalesce(:model, model),
  link = CASE WHEN parent_session_id IS NULL AND :parent IS NOT NULL THEN 'delegate' ELSE link END,
  parent_session_id = coalesce(parent_session_id, :parent)
WHERE /*! tenant = :tenant AND user_id = :user AND */ id = :session;

-- name: describe_salvaged
UPDATE sessions SET
  source = :source, project = :project, model = coalesce(:model, model), title = :title,
  parent_session_id = :parent, link = :link, metadata = :metadata
WHERE /*! tenant = :tenant AND user_id = :user AND */ id = :session AND source = 'salvaged';

-- name: own_messages
SELECT m.id, m.session_id FROM messages AS m JOIN sessions AS s ON s.id = m.session_id
WHERE m.id IN (SELECT value FROM json_each(?)) AND s.user_id = ?;

-- name: less_usage
UPDATE usage SET
  api_call_count = max(0, api_call_count - ?), input_tokens = max(0, input_tokens - ?),
  output_tokens = max(0, output_tokens - ?), cache_read_tokens = max(0, cache_read_tokens - ?),
  cache_write_tokens = max(0, cache_write_tokens - ?)
WHERE user_id = ? AND session_id = ? AND day = ? AND model = ? AND task = ?;

-- name: drop_no_usage
DELETE FROM usage WHERE /*! tenant = :tenant AND */ user_id = ? AND api_call_count = 0;

-- name: empty_sessions
SELECT s.id FROM sessions AS s WHERE s.id IN (SELECT value FROM json_each(?)) AND s.user_id = ?
  AND NOT EXISTS (SELECT 1 FROM messages AS m WHERE m.session_id = s.id);

-- name: owner
SELECT user_id FROM session_owners WHERE tenant = :tenant AND id = ?;

-- name: sessions
SELECT id, source, started, user_id, profile, project, model, title, parent_session_id, link, ended, end_reason,
  archived, last_active, message_count, metadata, context_from
FROM sessions
WHERE tenant = :tenant AND user_id = :user AND trashed IS NULL AND (:session IS NULL OR id = :session)
ORDER BY number;

-- name: own_messages
SELECT m.id, m.session_id FROM messages AS m JOIN sessions AS s ON s.tenant = :tenant AND s.id = m.session_id
WHERE m.tenant = :tenant AND m.user_id = :user AND m.id IN (SELECT json_array_elements_text(?::json)::bigint)
  AND s.user_id = ?;

-- name: less_usage
UPDATE usage SET
  api_call_count = greatest(0, api_call_count - ?), input_tokens = greatest(0, input_tokens - ?),
  output_tokens = greatest(0, output_tokens - ?), cache_read_tokens = greatest(0, cache_read_tokens - ?),
  cache_write_tokens = greatest(0, cache_write_tokens - ?)
WHERE tenant = :tenant AND user_id = ? AND session_id = ? AND day = ? AND model = ? AND task = ?;

-- name: empty_sessions
SELECT s.id FROM sessions AS s WHERE s.tenant = :tenant AND s.id IN (SELECT json_array_elements_text(?::json))
  AND s.user_id = ?
  AND NOT EXISTS (SELECT 1 FROM messages AS m WHERE m.tenant = :tenant AND m.user_id = :user AND m.session_id = s.id);

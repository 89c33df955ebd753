-- name: known
SELECT key, message_id, mark FROM captured_messages
WHERE tenant = :tenant AND user_id = :user AND key IN (SELECT decode(value, 'hex')
  FROM json_array_elements_text(?::json) AS value);

-- name: drop_keys
DELETE FROM captured_messages
WHERE tenant = :tenant AND user_id = :user AND key IN (SELECT decode(value, 'hex')
  FROM json_array_elements_text(?::json) AS value);

-- name: drop_sessions
DELETE FROM captured_sessions
WHERE tenant = :tenant AND user_id = :user AND session_id IN (SELECT json_array_elements_text(:listed::json));

-- name: drop_turns
DELETE FROM captured_turns WHERE tenant = :tenant AND user_id = :user AND client = :source AND external_id IN (
  SELECT external_id FROM captured_sessions WHERE tenant = :tenant AND user_id = :user AND client = :source
    AND session_id IN (SELECT json_array_elements_text(:listed::json))
);

-- name: known
SELECT key, message_id, mark FROM captured_messages
WHERE tenant = :tenant AND user_id = :user AND key IN (SELECT decode(value, 'hex')
  FROM json_array_elements_text(?::json) AS value);

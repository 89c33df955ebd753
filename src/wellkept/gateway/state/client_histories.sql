-- name: keys
SELECT key FROM conversation_keys WHERE /*! tenant = :tenant AND */ user_id = :user AND key IN (
  SELECT key FROM client_messages WHERE /*! tenant = :tenant AND */ user_id = :user AND hash = :hash
) ORDER BY last_used DESC LIMIT :limit;

-- name: history
SELECT hash, message_id FROM client_messages WHERE /*! tenant = :tenant AND */ user_id = :user AND key = :key
ORDER BY position;

-- name: cut
DELETE FROM client_messages WHERE /*! tenant = :tenant AND */ user_id = :user AND key = :key AND position >= :start;

-- name: add
INSERT INTO client_messages (/*! tenant, */ user_id, key, position, hash, message_id)
VALUES (/*! :tenant, */ :user, :key, :position, :hash, :message);

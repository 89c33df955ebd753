-- name: session
SELECT session_id, last_used FROM conversation_keys WHERE /*! tenant = :tenant AND */ user_id = :user AND key = :key;

-- name: key
SELECT key FROM conversation_keys WHERE /*! tenant = :tenant AND */ user_id = :user AND session_id = :session
ORDER BY last_used DESC LIMIT 1;

-- name: put
INSERT INTO conversation_keys (/*! tenant, */ user_id, key, session_id, last_used)
VALUES (/*! :tenant, */ :user, :key, :session, :now)
ON CONFLICT (/*! tenant, */ user_id, key) DO UPDATE SET session_id = excluded.session_id, last_used = excluded.last_used;

-- name: move_chat
INSERT INTO moved_chats (/*! tenant, */ platform, chat, origin) VALUES (/*! :tenant, */ ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: origin
SELECT origin FROM moved_chats WHERE /*! tenant = :tenant AND */ platform = ? AND chat = ?;

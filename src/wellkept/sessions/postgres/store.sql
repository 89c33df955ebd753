-- name: add_user
INSERT INTO users (user_id, id) VALUES (:user, :identity) ON CONFLICT DO NOTHING;

-- name: drop_user
DELETE FROM users WHERE user_id = :user AND NOT EXISTS (SELECT 1 FROM sessions WHERE user_id = :user);

-- name: activity
SELECT last_active, source, message_count FROM sessions
WHERE user_id = :user AND trashed IS NULL AND last_active >= :since AND source NOT IN ('subagent', 'tool', 'review');

-- name: fresh_ids
SELECT message_id FROM fresh_words WHERE user_id = :user;

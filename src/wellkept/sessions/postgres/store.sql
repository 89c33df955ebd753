-- name: add_user
INSERT INTO users (tenant, user_id, id) SELECT :tenant, :user, :identity
WHERE EXISTS (SELECT 1 FROM sessions WHERE tenant = :tenant AND user_id = :user) ON CONFLICT DO NOTHING;

-- name: drop_user
DELETE FROM users WHERE tenant = :tenant AND user_id = :user
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE tenant = :tenant AND user_id = :user);

-- name: activity
SELECT last_active, source, message_count FROM sessions
WHERE tenant = :tenant AND user_id = :user AND trashed IS NULL AND last_active >= :since
  AND source NOT IN ('subagent', 'tool', 'review');

-- name: fresh_ids
SELECT message_id FROM fresh_words WHERE tenant = :tenant AND user_id = :user;

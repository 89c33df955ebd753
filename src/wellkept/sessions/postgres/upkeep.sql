-- name: activity
SELECT last_active, source, message_count FROM sessions
WHERE tenant = :tenant AND user_id = :user AND trashed IS NULL AND last_active >= :since
  AND source NOT IN ('subagent', 'tool', 'review');

-- name: fresh_ids
SELECT message_id FROM fresh_words WHERE tenant = :tenant AND user_id = :user;

-- name: users
SELECT id FROM users WHERE tenant = :tenant ORDER BY id COLLATE "C";

-- name: recent
SELECT id, source, started, user_id, profile, project, model, title, parent_session_id, link, ended, end_reason,
  archived, last_active, message_count, metadata
FROM sessions
WHERE tenant = :tenant AND user_id = :user AND trashed IS NULL AND archived <= :archived
  AND (:source IS NULL AND source NOT IN ('subagent', 'tool', 'review') OR source = :source)
  AND (:project IS NULL OR project = :project)
  AND (:since IS NULL OR last_active >= :since) AND (:until IS NULL OR last_active < :until)
ORDER BY last_active DESC NULLS LAST, id DESC LIMIT :limit OFFSET :offset;

-- name: highest_number
SELECT max(substr(title, :cut)::bigint) FROM sessions
WHERE tenant = :tenant AND user_id = :user AND title > :from AND title < :to AND substr(title, :cut) ~ '^[0-9]{1,18}$';

-- name: exists
SELECT s.trashed FROM session_owners AS o
LEFT JOIN sessions AS s ON s.tenant = :tenant AND s.user_id = :user AND s.id = o.id
WHERE o.tenant = :tenant AND o.id = ?;

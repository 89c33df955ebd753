-- name: parent
-- a parent that is gone still names the conversation; one that belongs to another user does not
SELECT parent_session_id, link FROM sessions AS s
WHERE id = ?1 AND user_id = ?2
  AND NOT EXISTS (SELECT 1 FROM sessions AS p WHERE p.id = s.parent_session_id AND p.user_id <> ?2);

-- name: children
SELECT id, link FROM sessions WHERE parent_session_id = ? AND user_id = ? ORDER BY rowid;

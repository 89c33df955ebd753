-- name: parent
SELECT parent_session_id, link FROM sessions WHERE id = ?;

-- name: children
SELECT id, link FROM sessions WHERE parent_session_id = ? ORDER BY rowid;

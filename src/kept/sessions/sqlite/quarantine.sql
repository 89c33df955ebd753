-- name: read
SELECT id, source, started, user_id, profile, project, model, title, parent_session_id, link, ended, end_reason,
  archived, last_active, message_count, metadata
FROM sessions WHERE user_id = ? ORDER BY id;

-- name: give
UPDATE sessions SET user_id = ? WHERE id = ? AND user_id = ?;

-- name: owner
SELECT user_id FROM sessions WHERE id = ?;

-- name: known
SELECT id, CAST(external_id AS TEXT), CAST(role AS TEXT), CAST(content AS TEXT), CAST(parts AS TEXT), CAST(tool_calls AS TEXT),
  CAST(timestamp AS REAL) FROM messages
WHERE session_id = ? AND state <> 'rewound' ORDER BY id;

-- name: begun_earlier
UPDATE sessions SET started = min(started, ?) WHERE id = ?;

-- name: add_title
UPDATE sessions SET title = ? WHERE id = ? AND title IS NULL;

-- name: sessions
SELECT id, source, started, user_id, profile, project, model, title, parent_session_id, link, ended, end_reason,
  archived, last_active, message_count, metadata, context_from
FROM sessions
WHERE user_id = :user AND trashed IS NULL AND (:session IS NULL OR id = :session)
ORDER BY rowid;

-- name: carried
SELECT message_id FROM carried WHERE session_id = ? AND rewind_run IS NULL ORDER BY position;

-- name: notes
SELECT key, value FROM notes WHERE session_id = ? AND key <> 'importing';

-- name: fill_in
UPDATE sessions SET
  model = coalesce(:model, model),
  link = CASE WHEN parent_session_id IS NULL AND :parent IS NOT NULL THEN 'delegate' ELSE link END,
  parent_session_id = coalesce(parent_session_id, :parent)
WHERE id = :session;

-- name: is_waiting
SELECT 1 FROM index_queue LIMIT 1;

-- name: waiting
-- what was taken back is indexed as empty, so that it lends no weight to its neighbours either
SELECT q.message_id, m.session_id, m.role, iif(m.state = 'rewound', '', m.content), m.origin,
       iif(m.state = 'rewound', NULL, m.tool_name), iif(m.state = 'rewound', NULL, m.tool_calls)
FROM index_queue AS q LEFT JOIN messages AS m ON m.id = q.message_id
ORDER BY q.message_id LIMIT ?;

-- name: again
INSERT OR IGNORE INTO index_queue (message_id) VALUES (?);

-- name: done
DELETE FROM index_queue WHERE message_id = ?;

-- name: recount
UPDATE sessions SET
  message_count = (SELECT count(*) FROM messages WHERE session_id = sessions.id AND state <> 'rewound'),
  last_active = coalesce((SELECT max(timestamp) FROM messages WHERE session_id = sessions.id), last_active)
WHERE id = ?;

-- name: texts_after
SELECT id, role, iif(state = 'rewound', '', content), origin, iif(state = 'rewound', NULL, tool_name),
       iif(state = 'rewound', NULL, tool_calls)
FROM messages WHERE id > ? ORDER BY id LIMIT ?;

-- name: other_user
SELECT 1 WHERE EXISTS (SELECT 1 FROM sessions WHERE user_id < ?) OR EXISTS (SELECT 1 FROM sessions WHERE user_id > ?);

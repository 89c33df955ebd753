-- name: sample
SELECT m.id, m.session_id, s.user_id, m.content FROM messages AS m JOIN sessions AS s ON s.id = m.session_id
WHERE m.state <> 'rewound' AND s.trashed IS NULL AND s.source NOT IN ('subagent', 'tool', 'review') AND m.role = 'user'
  AND coalesce(m.origin, '') <> 'synthetic'
ORDER BY m.id DESC LIMIT 20;

-- name: orphans
SELECT count(*) FROM messages WHERE session_id NOT IN (SELECT id FROM sessions);

-- name: waiting
SELECT count(*) FROM index_queue;

-- name: roots
SELECT rootpage, name, type FROM sqlite_schema WHERE rootpage > 0;

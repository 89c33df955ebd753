-- name: create
CREATE TABLE IF NOT EXISTS message_vectors (
  message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
  model TEXT NOT NULL,
  vector BLOB NOT NULL
);

-- name: waiting
SELECT m.id, m.content, (
  SELECT p.content FROM messages AS p
  WHERE p.session_id = m.session_id AND p.id < m.id AND p.state <> 'rewound' AND p.role IN ('user', 'assistant')
  ORDER BY p.id DESC LIMIT 1
)
FROM messages AS m LEFT JOIN message_vectors AS v ON v.message_id = m.id AND v.model = :model
WHERE v.message_id IS NULL AND m.role IN ('user', 'assistant') AND m.content <> '' AND m.state <> 'rewound'
ORDER BY m.id DESC LIMIT :limit;

-- name: waiting_count
SELECT count(*) FROM messages AS m LEFT JOIN message_vectors AS v ON v.message_id = m.id AND v.model = ?
WHERE v.message_id IS NULL AND m.role IN ('user', 'assistant') AND m.content <> '' AND m.state <> 'rewound';

-- name: put
INSERT INTO message_vectors (message_id, model, vector) VALUES (?, ?, ?)
ON CONFLICT (message_id) DO UPDATE SET model = excluded.model, vector = excluded.vector;

-- name: drop
DELETE FROM message_vectors;

-- name: shape
SELECT count(*), coalesce(max(message_id), 0) FROM message_vectors WHERE model = ?;

-- name: newest
SELECT message_id, vector FROM message_vectors WHERE model = ? ORDER BY message_id DESC LIMIT ?;

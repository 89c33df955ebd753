-- name: create_vectors
CREATE TABLE IF NOT EXISTS message_vectors (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  message_id INTEGER NOT NULL UNIQUE REFERENCES messages (id) ON DELETE CASCADE,
  vectors BLOB NOT NULL
);

-- name: create_state
CREATE TABLE IF NOT EXISTS vector_state (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  model TEXT NOT NULL
);

-- name: create_trigger
CREATE TRIGGER IF NOT EXISTS vectors_of_old_text AFTER UPDATE OF content ON messages BEGIN
  DELETE FROM message_vectors WHERE message_id = new.id;
END;

-- name: exists
SELECT 1 FROM sqlite_schema WHERE name = 'vector_state';

-- name: state
SELECT model FROM vector_state WHERE id = 1;

-- name: claim
-- before rows are written; a file is locked already
SELECT model FROM vector_state WHERE id = 1;

-- name: set_state
INSERT INTO vector_state (id, model) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET model = excluded.model;

-- name: drop
DELETE FROM message_vectors /*! WHERE tenant = :tenant AND user_id = :user */;

-- name: waiting
SELECT m.id, CAST(m.content AS TEXT) FROM messages AS m
WHERE /*! m.tenant = :tenant AND m.user_id = :user AND */ m.id < :below AND m.role IN ('user', 'assistant')
  AND m.content <> '' AND m.state <> 'rewound'
  AND NOT EXISTS (SELECT 1 FROM message_vectors AS v
    WHERE /*! v.tenant = :tenant AND v.user_id = :user AND */ v.message_id = m.id)
ORDER BY m.id DESC LIMIT :limit;

-- name: count_waiting
SELECT count(*) FROM messages AS m
WHERE /*! m.tenant = :tenant AND m.user_id = :user AND */ m.role IN ('user', 'assistant') AND m.content <> ''
  AND m.state <> 'rewound'
  AND NOT EXISTS (SELECT 1 FROM message_vectors AS v
    WHERE /*! v.tenant = :tenant AND v.user_id = :user AND */ v.message_id = m.id);

-- name: count_all
SELECT count(*) FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ role IN ('user', 'assistant')
  AND content <> '' AND state <> 'rewound';

-- name: count
SELECT count(*) FROM message_vectors /*! WHERE tenant = :tenant AND user_id = :user */;

-- name: put
INSERT OR IGNORE INTO message_vectors (message_id, vectors)
SELECT :number, :vectors WHERE EXISTS (SELECT 1 FROM messages WHERE id = :number AND content = :content);

-- name: newest
SELECT coalesce(max(seq), 0) FROM message_vectors /*! WHERE tenant = :tenant AND user_id = :user */;

-- name: page
SELECT seq, message_id, vectors FROM message_vectors
WHERE /*! tenant = :tenant AND user_id = :user AND */ seq > ? ORDER BY seq LIMIT ?;

-- name: of_messages
SELECT message_id, vectors FROM message_vectors WHERE message_id IN (SELECT value FROM json_each(?));

-- name: places
SELECT seq, message_id FROM message_vectors
WHERE /*! tenant = :tenant AND user_id = :user AND */ message_id IN (SELECT value FROM json_each(?)) ORDER BY seq;

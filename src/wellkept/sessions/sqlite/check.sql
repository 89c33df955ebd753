-- name: orphans
SELECT count(*) FROM messages WHERE session_id NOT IN (SELECT id FROM sessions);

-- name: waiting
-- rows that another program wrote or removed, which the next search counts
SELECT count(*) FROM index_queue AS q LEFT JOIN messages AS m ON m.id = q.message_id WHERE m.checksum IS NULL;

-- name: roots
SELECT rootpage, name, type FROM sqlite_schema WHERE rootpage > 0;

-- name: sample
SELECT id, role, content, origin, tool_name, tool_calls FROM messages
WHERE state <> 'rewound' AND id NOT IN (SELECT message_id FROM index_queue) ORDER BY id DESC LIMIT 20;

-- name: is_indexed
SELECT 1 FROM message_words WHERE message_words MATCH ? AND rowid = ?;

-- name: quarantined
SELECT count(*), coalesce(sum(message_count), 0) FROM sessions WHERE user_id = '';

-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0;

-- name: prompts
SELECT hash, text FROM prompts;

-- name: sources
SELECT id, name FROM sources;

-- name: miscounted
SELECT s.id, s.message_count, count(m.id) FROM sessions AS s
LEFT JOIN messages AS m ON m.session_id = s.id AND m.state <> 'rewound'
GROUP BY s.rowid HAVING s.message_count IS NOT count(m.id);

-- name: blob_uses
-- both columns are repeated by an index; what is no hash cannot be found by one
SELECT message_id FROM blob_uses WHERE length(hash) <> 64 OR hash GLOB '*[^0-9a-f]*';

-- name: messages_without_checksum
SELECT count(*) FROM messages WHERE checksum IS NULL;

-- name: orphans
SELECT count(*) FROM messages WHERE session_id NOT IN (SELECT id FROM sessions);

-- name: waiting
SELECT count(*) FROM index_queue;

-- name: roots
SELECT rootpage, name, type FROM sqlite_schema WHERE rootpage > 0;

-- name: sample
SELECT id, role, content, origin, tool_name, tool_calls FROM messages WHERE state <> 'rewound' ORDER BY id DESC LIMIT 20;

-- name: is_indexed
SELECT 1 FROM message_words WHERE message_words MATCH ? AND rowid = ?;

-- name: quarantined
SELECT count(*), coalesce(sum(message_count), 0) FROM sessions WHERE user_id = '';

-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0;

-- name: prompts
SELECT hash, text FROM prompts;

-- name: existing
SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'message_*';

-- name: messages_between
SELECT m.id, s.number FROM messages AS m LEFT JOIN message_sessions AS s ON s.session_id = m.session_id
WHERE m.id >= ? AND m.id < ?;

-- name: chars_between
SELECT coalesce(sum(length(content) + coalesce(length(tool_calls), 0)), 0) FROM messages WHERE id >= ? AND id < ?;

-- name: words
SELECT word FROM message_terms;

-- name: astray
SELECT 1 FROM message_postings WHERE key >> 40 NOT IN (SELECT id FROM message_segments) LIMIT 1;

-- name: total
SELECT count(*) FROM messages;

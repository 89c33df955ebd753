-- name: of_user
SELECT id FROM sessions WHERE user_id = ?;

-- name: every
SELECT id, session_id, content, tool_calls, reasoning, api_content FROM messages WHERE id > ? ORDER BY id LIMIT ?;

-- name: messages_of
SELECT id, external_id, role, content, parts, tool_calls FROM messages WHERE session_id = ?;

-- name: one
SELECT id, external_id, role, content, parts, tool_calls, session_id FROM messages WHERE id = ?;

-- name: count
SELECT count(*) FROM messages WHERE session_id = ?;

-- name: count_blobs
SELECT count(DISTINCT u.hash) FROM blob_uses AS u JOIN messages AS m ON m.id = u.message_id WHERE m.session_id = ?;

-- name: count_nodes
SELECT count(*) FROM nodes WHERE session_id = ?;

-- name: summaries
SELECT id FROM messages WHERE session_id = ? AND origin = 'synthetic' AND id > ?;

-- name: citing
SELECT id, session_id, tool_name, content, api_content FROM messages
WHERE id > ? AND (tool_name = 'session_search' OR api_content IS NOT NULL
                  OR (role = 'assistant' AND content LIKE '%, message %')) ORDER BY id LIMIT ?;

-- name: naming_pages
SELECT id, content FROM messages WHERE role = 'assistant' AND content LIKE '%.md%';

-- name: blank
UPDATE messages SET content = ?, parts = NULL, tool_calls = NULL, reasoning = NULL, api_content = NULL WHERE id = ?;

-- name: has_vectors
SELECT 1 FROM sqlite_schema WHERE name = 'message_vectors';

-- name: count_vectors
SELECT count(*) FROM message_vectors WHERE message_id IN (SELECT value FROM json_each(?));

-- name: drop_vector
DELETE FROM message_vectors WHERE message_id = ?;

-- name: titles
SELECT id, title FROM sessions WHERE title IS NOT NULL;

-- name: nodes
SELECT id, depth, children FROM nodes WHERE session_id = ? ORDER BY depth;

-- name: every_node
SELECT id, text FROM nodes;

-- name: notes
SELECT session_id, key, value FROM notes;

-- name: drop_note
DELETE FROM notes WHERE session_id = ? AND key = ?;

-- name: drop_node
DELETE FROM nodes WHERE id = ?;

-- name: prompts
SELECT hash, text FROM prompts;

-- name: unname_prompt
UPDATE sessions SET prompt_hash = NULL WHERE prompt_hash = ?;

-- name: drop_prompt
DELETE FROM prompts WHERE hash = ?;

-- name: recount
UPDATE sessions SET message_count =
  (SELECT count(*) FROM messages WHERE session_id = sessions.id AND state <> 'rewound') WHERE id = ?;

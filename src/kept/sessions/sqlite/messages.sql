-- name: insert
INSERT INTO messages (
  session_id, role, content, timestamp, state, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, indexed_on_write
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1);

-- name: insert_blob
INSERT OR IGNORE INTO blobs (hash, data) VALUES (?, ?);

-- name: insert_blob_use
INSERT OR IGNORE INTO blob_uses (message_id, hash) VALUES (?, ?);

-- name: blob
SELECT data FROM blobs WHERE hash = ?;

-- name: touch
UPDATE sessions
SET message_count = message_count + ?, last_active = max(coalesce(last_active, 0), ?)
WHERE id = ? AND user_id = ? AND trashed IS NULL;

-- name: of_session
SELECT id, session_id, role, content, timestamp, state, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted
FROM messages WHERE session_id = ? AND id > ? AND state IN (SELECT value FROM json_each(?)) ORDER BY id LIMIT ?;

-- name: one
SELECT id, session_id, role, content, timestamp, state, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted
FROM messages WHERE id = ?1 AND state <> 'rewound'
  AND EXISTS (SELECT 1 FROM sessions AS s WHERE s.id = messages.session_id AND s.user_id = ?2 AND s.trashed IS NULL);

-- name: of_ids
SELECT id, session_id, role, content, timestamp, state, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted
FROM messages WHERE id IN (SELECT value FROM json_each(?1)) AND state <> 'rewound'
  AND EXISTS (SELECT 1 FROM sessions AS s WHERE s.id = messages.session_id AND s.user_id = ?2 AND s.trashed IS NULL)
ORDER BY id;

-- name: before
SELECT id, session_id, role, content, timestamp, state, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted
FROM messages WHERE session_id = ? AND id < ? AND state <> 'rewound' ORDER BY id DESC LIMIT ?;

-- name: after
SELECT id, session_id, role, content, timestamp, state, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted
FROM messages WHERE session_id = ? AND id > ? AND state <> 'rewound' ORDER BY id LIMIT ?;

-- name: count_before
SELECT (SELECT count(*) FROM messages WHERE session_id = ?1 AND id < ?2)
  - (SELECT count(*) FROM messages WHERE session_id = ?1 AND id < ?2 AND state = 'rewound');

-- name: preview
SELECT substr(content, 1, 400) FROM messages
WHERE session_id = ? AND role = 'user' AND state <> 'rewound' AND origin IS NOT 'synthetic' ORDER BY id LIMIT 1;

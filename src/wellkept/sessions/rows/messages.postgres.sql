-- name: insert
SELECT add_message(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: leave_index
-- the trigger does not fire for the column of sent texts
SELECT ?;

-- name: new_ids
SELECT take_message_ids(?);

-- name: begin_append, short
SELECT begin_append(?1, ?2, ?3);

-- name: of_session
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE tenant = :tenant AND user_id = :user AND session_id = ? AND id > ? AND state IN
  (SELECT json_array_elements_text(?::json))
ORDER BY id LIMIT nullif(?, -1);

-- name: of_ids
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE tenant = :tenant AND user_id = :user AND id IN (SELECT json_array_elements_text(?1::json)::bigint)
  AND state <> 'rewound'
  AND EXISTS (SELECT 1 FROM sessions AS s
    WHERE s.tenant = :tenant AND s.id = messages.session_id AND s.user_id = ?2 AND s.trashed IS NULL)
ORDER BY id;

-- name: mark_compacted
UPDATE messages SET state = 'compacted'
WHERE tenant = :tenant AND user_id = :user AND id = ? AND state = 'active' AND session_id IN
  (SELECT json_array_elements_text(?::json));

-- name: mark_rewound
UPDATE messages SET state = 'rewound', rewind_run = ?
WHERE tenant = :tenant AND user_id = :user AND id = ? AND state <> 'rewound' AND session_id IN
  (SELECT json_array_elements_text(?::json));

-- name: children
SELECT id, link FROM sessions WHERE tenant = :tenant AND parent_session_id = ? AND user_id = ? ORDER BY number;

-- name: parent
-- a parent that is gone still names the conversation; one that belongs to another user does not
SELECT parent_session_id, link FROM sessions AS s
WHERE s.tenant = :tenant AND s.id = ?1 AND s.user_id = ?2
  AND NOT EXISTS (SELECT 1 FROM session_owners AS p
    WHERE p.tenant = :tenant AND p.id = s.parent_session_id AND p.user_id <> ?2);

-- name: without_checksum
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE tenant = :tenant AND user_id = :user AND id IN (SELECT json_array_elements_text(?::json)::bigint)
  AND checksum IS NULL;

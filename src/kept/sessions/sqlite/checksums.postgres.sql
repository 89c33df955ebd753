-- name: without_checksum
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE id IN (SELECT json_array_elements_text(?::json)::bigint) AND checksum IS NULL;

-- name: own_messages
SELECT m.id FROM json_array_elements_text(?::json) WITH ORDINALITY AS given (value, place)
JOIN messages AS m ON m.tenant = :tenant AND m.user_id = :user AND m.id = given.value::bigint
JOIN sessions AS s ON s.tenant = :tenant AND s.id = m.session_id WHERE s.user_id = ? ORDER BY given.place;

-- name: own_nodes
SELECT n.id FROM json_array_elements_text(?::json) WITH ORDINALITY AS given (value, place)
JOIN nodes AS n ON n.tenant = :tenant AND n.user_id = :user AND n.id = given.value::bigint
JOIN sessions AS s ON s.tenant = :tenant AND s.id = n.session_id WHERE s.user_id = ? ORDER BY given.place;

-- name: of_origins
SELECT m.id, m.session_id FROM messages AS m JOIN sessions AS s ON s.tenant = :tenant AND s.id = m.session_id
WHERE m.tenant = :tenant AND m.user_id = :user AND m.source IN (SELECT json_array_elements_text(?::json)::bigint)
  AND s.user_id = ? ORDER BY m.id;

-- name: long_messages
SELECT content FROM messages
WHERE tenant = :tenant AND user_id = :user AND (session_id IN (SELECT json_array_elements_text(?::json))
    OR id IN (SELECT json_array_elements_text(?::json)::bigint))
  AND length(content) >= ? ORDER BY length(content) DESC LIMIT ?;

-- name: citing
SELECT id, session_id, tool_name, content, api_content FROM messages
WHERE tenant = :tenant AND user_id = :user AND id > ? AND session_id IN (
  SELECT id FROM sessions WHERE tenant = :tenant AND user_id = ?)
  AND (tool_name = 'session_search' OR api_content IS NOT NULL OR (role = 'assistant' AND content ILIKE '%, message %'))
ORDER BY id LIMIT ?;

-- name: naming_pages
SELECT id, content FROM messages
WHERE tenant = :tenant AND user_id = :user AND session_id IN (
  SELECT id FROM sessions WHERE tenant = :tenant AND user_id = ?) AND role = 'assistant' AND content ILIKE '%.md%';

-- name: has_vectors
SELECT 1 WHERE to_regclass('message_vectors') IS NOT NULL;

-- name: count_vectors
SELECT count(*) FROM message_vectors WHERE tenant = :tenant AND user_id = :user AND message_id IN
  (SELECT json_array_elements_text(?::json)::bigint);

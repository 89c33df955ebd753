-- name: of_user
SELECT id FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ?;

-- name: of_source
-- sub-agents have a source of their own, and belong to the conversation that started them
WITH RECURSIVE chosen (id) AS (
  SELECT id FROM sessions WHERE /*! tenant = :tenant AND */ user_id = :user AND source = :source
    AND (:project IS NULL OR project = :project)
  UNION
  SELECT s.id FROM sessions AS s JOIN chosen ON s.parent_session_id = chosen.id
  WHERE /*! s.tenant = :tenant AND */ s.user_id = :user AND s.link = 'delegate'
)
SELECT id FROM chosen;

-- name: is_own
SELECT 1 FROM sessions WHERE /*! tenant = :tenant AND */ id = ? AND user_id = ?;

-- name: own_messages
SELECT m.id FROM json_each(?) AS given JOIN messages AS m ON m.id = given.value
JOIN sessions AS s ON s.id = m.session_id WHERE s.user_id = ? ORDER BY given.key;

-- name: own_nodes
SELECT n.id FROM json_each(?) AS given JOIN nodes AS n ON n.id = given.value
JOIN sessions AS s ON s.id = n.session_id WHERE s.user_id = ? ORDER BY given.key;

-- name: every
-- damage can change types, and a damaged message must be found too
SELECT id, session_id, CAST(content AS TEXT), CAST(tool_calls AS TEXT), CAST(reasoning AS TEXT),
  CAST(parts AS TEXT), CAST(tool_name AS TEXT), CAST(tool_call_id AS TEXT) FROM messages
WHERE /*! tenant = :tenant AND user_id = :user AND */ id > ? AND session_id IN (
  SELECT id FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ?) ORDER BY id LIMIT ?;

-- name: origins
SELECT s.name FROM sources AS s WHERE /*! s.tenant = :tenant AND s.user_id = :user AND */ s.id IN (
  SELECT m.source FROM messages AS m JOIN sessions AS o ON /*! o.tenant = :tenant AND */ o.id = m.session_id
  WHERE /*! m.tenant = :tenant AND m.user_id = :user AND */ m.source IS NOT NULL AND o.user_id = ?
) ORDER BY s.name;

-- name: of_origins
SELECT m.id, m.session_id FROM messages AS m JOIN sessions AS s ON s.id = m.session_id
WHERE m.source IN (SELECT value FROM json_each(?)) AND s.user_id = ? ORDER BY m.id;

-- name: blobs
SELECT b.hash, b.data FROM blobs AS b WHERE /*! b.tenant = :tenant AND b.user_id = :user AND */ b.hash IN (
  SELECT u.hash FROM blob_uses AS u JOIN messages AS m ON /*! m.tenant = :tenant AND m.user_id = :user AND */
    m.id = u.message_id JOIN sessions AS s ON /*! s.tenant = :tenant AND */ s.id = m.session_id
  WHERE /*! u.tenant = :tenant AND u.user_id = :user AND */ s.user_id = ?
);

-- name: showing_blob
SELECT m.id, m.session_id FROM blob_uses AS u
JOIN messages AS m ON /*! m.tenant = :tenant AND m.user_id = :user AND */ m.id = u.message_id
JOIN sessions AS s ON /*! s.tenant = :tenant AND */ s.id = m.session_id
WHERE /*! u.tenant = :tenant AND u.user_id = :user AND */ u.hash = ? AND s.user_id = ?;

-- name: messages_of
SELECT id, CAST(external_id AS TEXT), CAST(role AS TEXT), CAST(content AS TEXT), CAST(parts AS TEXT),
  CAST(tool_calls AS TEXT) FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

-- name: one
SELECT id, CAST(external_id AS TEXT), CAST(role AS TEXT), CAST(content AS TEXT), CAST(parts AS TEXT),
  CAST(tool_calls AS TEXT), session_id FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: long_messages
SELECT CAST(content AS TEXT) FROM messages
WHERE (session_id IN (SELECT value FROM json_each(?)) OR id IN (SELECT value FROM json_each(?)))
  AND length(content) >= ? ORDER BY length(content) DESC LIMIT ?;

-- name: count
SELECT count(*) FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

-- name: count_blobs
SELECT count(DISTINCT u.hash) FROM blob_uses AS u
JOIN messages AS m ON /*! m.tenant = :tenant AND m.user_id = :user AND */ m.id = u.message_id
WHERE /*! u.tenant = :tenant AND u.user_id = :user AND */ m.session_id = ?;

-- name: summaries
SELECT id FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ? AND origin = 'synthetic'
  AND id > ?;

-- name: citing
SELECT id, session_id, tool_name, CAST(content AS TEXT), CAST(api_content AS TEXT) FROM messages
WHERE id > ? AND session_id IN (SELECT id FROM sessions WHERE user_id = ?)
  AND (tool_name = 'session_search' OR api_content IS NOT NULL OR (role = 'assistant' AND content LIKE '%, message %'))
ORDER BY id LIMIT ?;

-- name: naming_pages
SELECT id, CAST(content AS TEXT) FROM messages
WHERE session_id IN (SELECT id FROM sessions WHERE user_id = ?) AND role = 'assistant' AND content LIKE '%.md%';

-- name: blank
UPDATE messages SET content = ?, parts = NULL, tool_calls = NULL, reasoning = NULL, api_content = NULL
WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: has_vectors
SELECT 1 FROM sqlite_schema WHERE name = 'message_vectors';

-- name: count_vectors
SELECT count(*) FROM message_vectors WHERE message_id IN (SELECT value FROM json_each(?));

-- name: drop_vector
DELETE FROM message_vectors WHERE /*! tenant = :tenant AND user_id = :user AND */ message_id = ?;

-- name: titles
SELECT id, CAST(title AS TEXT) FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ? AND title IS NOT NULL;

-- name: title
SELECT title FROM sessions WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: copy_session
INSERT INTO sessions (
  /*! tenant, */
  id, source, user_id, profile, project, model, parent_session_id, link, started, ended, end_reason, archived, trashed,
  last_active, message_count, prompt_hash, context_from, metadata
)
SELECT /*! :tenant, */ ?, source, user_id, profile, project, model, parent_session_id, link, started, ended,
  end_reason, archived,
  trashed, last_active, message_count, prompt_hash, context_from, metadata
FROM sessions WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: move_messages
UPDATE messages SET session_id = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

-- name: move_carried
UPDATE carried SET session_id = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

-- name: move_notes
UPDATE notes SET session_id = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

-- name: move_nodes
UPDATE nodes SET session_id = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

-- name: nodes
SELECT id, depth, children FROM nodes WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?
ORDER BY depth;

-- name: every_node
SELECT id, CAST(text AS TEXT) FROM nodes
WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id IN (
  SELECT id FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ?);

-- name: notes
SELECT session_id, key, CAST(value AS TEXT) FROM notes
WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id IN (
  SELECT id FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ?);

-- name: drop_note
DELETE FROM notes WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ? AND key = ?;

-- name: drop_node
DELETE FROM nodes WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: prompts
SELECT hash, CAST(text AS TEXT) FROM prompts
WHERE /*! tenant = :tenant AND user_id = :user AND */ hash IN (
  SELECT prompt_hash FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ?);

-- name: unname_prompt
UPDATE sessions SET prompt_hash = NULL WHERE /*! tenant = :tenant AND */ prompt_hash = ? AND user_id = ?;

-- name: recount
UPDATE sessions SET message_count =
  (SELECT count(*) FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = sessions.id
    AND state <> 'rewound') WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

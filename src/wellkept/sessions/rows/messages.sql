-- name: insert
INSERT INTO messages (
  id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum, indexed_on_write
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1);

-- name: insert_waiting
-- a trigger queues the row for the index
INSERT INTO messages (
  /*! tenant, user_id, */
  id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
) VALUES (/*! :tenant, :user, */ ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: set_sent_text
UPDATE messages SET api_content = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ? AND session_id IN
  (SELECT id FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ?);

-- name: is_queued
SELECT 1 FROM index_queue WHERE /*! tenant = :tenant AND user_id = :user AND */ message_id = ?;

-- name: leave_index
-- the trigger queues every changed row, and the index holds nothing of this column
DELETE FROM index_queue WHERE message_id = ?;

-- name: overwrite
UPDATE messages SET role = ?, content = ?, timestamp = ?, origin = ?, tool_name = ?, tool_calls = ?, tool_call_id = ?,
  reasoning = ?, parts = ?, token_count = ?, api_content = ?, external_id = ?, interrupted = ?, source = ?, checksum = ?
WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: new_ids
-- nobody else writes inside an immediate transaction; ids are never given twice, not even after the newest message was
-- deleted
WITH RECURSIVE given (id, rest) AS (
  SELECT 1 + max(coalesce((SELECT max(id) FROM messages), 0),
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages' AND seq BETWEEN 0 AND 1 << 62), 0)), ?
  UNION ALL
  SELECT id + 1, rest - 1 FROM given WHERE rest > 1
)
SELECT id FROM given;

-- name: begin_append
-- the first of the new ids
UPDATE sessions
SET message_count = message_count + ?1, last_active = max(coalesce(last_active, 0), ?2)
WHERE id = ?3 AND user_id = ?4 AND trashed IS NULL
RETURNING 1 + max(coalesce((SELECT max(id) FROM messages), 0),
  coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages' AND seq BETWEEN 0 AND 1 << 62), 0));

-- name: insert_blob
INSERT INTO blobs (/*! tenant, user_id, */ hash, data) VALUES (/*! :tenant, :user, */ ?, ?) ON CONFLICT DO NOTHING;

-- name: insert_blob_use
INSERT INTO blob_uses (/*! tenant, user_id, */ message_id, hash) VALUES (/*! :tenant, :user, */ ?, ?)
ON CONFLICT DO NOTHING;

-- name: insert_source
INSERT INTO sources (/*! tenant, user_id, */ id, name) VALUES (/*! :tenant, :user, */ ?, ?) ON CONFLICT DO NOTHING;

-- name: source
SELECT name FROM sources WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: blob
SELECT data FROM blobs WHERE /*! tenant = :tenant AND user_id = :user AND */ hash = ?;

-- name: touch
UPDATE sessions SET message_count = message_count + ?1,
  last_active = CASE WHEN coalesce(last_active, 0) >= ?2 THEN coalesce(last_active, 0) ELSE ?2 END
WHERE /*! tenant = :tenant AND */ id = ?3 AND user_id = ?4 AND trashed IS NULL;

-- name: of_session
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE session_id = ? AND id > ? AND state IN (SELECT value FROM json_each(?)) ORDER BY id LIMIT ?;

-- name: one
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?1 AND state <> 'rewound'
  AND EXISTS (SELECT 1 FROM sessions AS s
    WHERE /*! s.tenant = :tenant AND */ s.id = messages.session_id AND s.user_id = ?2 AND s.trashed IS NULL);

-- name: hidden
SELECT s.trashed FROM messages AS m JOIN sessions AS s ON /*! s.tenant = :tenant AND */ s.id = m.session_id
WHERE /*! m.tenant = :tenant AND m.user_id = :user AND */ m.id = ? AND s.user_id = ?
  AND (s.trashed IS NOT NULL OR m.state = 'rewound');

-- name: of_ids
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE id IN (SELECT value FROM json_each(?1)) AND state <> 'rewound'
  AND EXISTS (SELECT 1 FROM sessions AS s WHERE s.id = messages.session_id AND s.user_id = ?2 AND s.trashed IS NULL)
ORDER BY id;

-- name: before
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ? AND id < ? AND state <> 'rewound'
ORDER BY id DESC LIMIT ?;

-- name: after
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ? AND id > ? AND state <> 'rewound'
ORDER BY id LIMIT ?;

-- name: session_of
-- the session of a visible message, and how many of its visible messages come before that one
SELECT s.id, s.source, s.started, s.user_id, s.profile, s.project, s.model, s.title, s.parent_session_id, s.link,
  s.ended,
  s.end_reason, s.archived, s.last_active, s.message_count, s.metadata,
  (SELECT count(*) FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = m.session_id
    AND id < m.id)
  - (SELECT count(*) FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = m.session_id
    AND id < m.id AND state = 'rewound')
FROM messages AS m JOIN sessions AS s ON /*! s.tenant = :tenant AND */ s.id = m.session_id
WHERE /*! m.tenant = :tenant AND m.user_id = :user AND */ m.id = ?1 AND m.state <> 'rewound' AND s.user_id = ?2
  AND s.trashed IS NULL;

-- name: passage
-- the messages around one and those at both ends of its session, each once
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ id IN (
  SELECT id FROM (SELECT id FROM messages
    WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1 AND id < ?2 AND state <> 'rewound'
    ORDER BY id DESC LIMIT ?3) AS earlier
  UNION ALL
  SELECT id FROM (SELECT id FROM messages
    WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1 AND id >= ?2 AND state <> 'rewound'
    ORDER BY id LIMIT ?3 + 1) AS later
  UNION ALL
  SELECT id FROM (SELECT id FROM messages
    WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1 AND state <> 'rewound'
    ORDER BY id LIMIT ?4) AS head
  UNION ALL
  SELECT id FROM (SELECT id FROM messages
    WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1 AND state <> 'rewound'
    ORDER BY id DESC LIMIT ?4) AS tail
) ORDER BY id;

-- name: count_before
SELECT (SELECT count(*) FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1 AND id < ?2)
  - (SELECT count(*) FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1 AND id < ?2
    AND state = 'rewound')
FROM sessions WHERE /*! tenant = :tenant AND */ id = ?1 AND user_id = ?3 AND trashed IS NULL;

-- name: preview
SELECT substr(content, 1, 400) FROM messages
WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ? AND role = 'user' AND state <> 'rewound'
  AND origin IS DISTINCT FROM 'synthetic' ORDER BY id LIMIT 1;

-- name: carried
SELECT m.id, m.session_id, m.role, m.content, m.timestamp, m.origin, m.tool_name, m.tool_calls,
  m.tool_call_id, m.reasoning, m.parts, m.token_count, m.api_content, m.external_id, m.interrupted, m.state, m.source,
  m.checksum
FROM carried AS c JOIN messages AS m ON /*! m.tenant = :tenant AND m.user_id = :user AND */ m.id = c.message_id
WHERE /*! c.tenant = :tenant AND c.user_id = :user AND */ c.session_id = ? AND c.rewind_run IS NULL ORDER BY c.position;

-- name: own
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages
WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1 AND state = 'active' AND id >
  (SELECT context_from FROM sessions WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?1) ORDER BY id;

-- name: ids
SELECT message_id, owner FROM (
  SELECT 0 AS part, c.position AS place, c.message_id AS message_id, m.session_id AS owner
  FROM carried AS c JOIN messages AS m ON /*! m.tenant = :tenant AND m.user_id = :user AND */ m.id = c.message_id
  WHERE /*! c.tenant = :tenant AND c.user_id = :user AND */ c.session_id = ?1 AND c.rewind_run IS NULL
  UNION ALL
  SELECT 1, id, id, session_id FROM messages
  WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1 AND state = 'active' AND id >
    (SELECT context_from FROM sessions WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?1)
) AS context ORDER BY part, place;

-- name: clear_carried
DELETE FROM carried WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

-- name: carry
-- a session carries messages of its own user only
INSERT INTO carried (/*! tenant, user_id, */ session_id, position, message_id)
SELECT /*! :tenant, :user, */ here.id, :position, m.id
FROM messages AS m
JOIN sessions AS there ON /*! there.tenant = :tenant AND there.user_id = :user AND */ there.id = m.session_id
JOIN sessions AS here ON /*! here.tenant = :tenant AND here.user_id = :user AND */ here.id = :session
  AND here.user_id = there.user_id
WHERE /*! m.tenant = :tenant AND m.user_id = :user AND */ m.id = :message;

-- name: set_context_from
UPDATE sessions SET context_from = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: mark_compacted
UPDATE messages SET state = 'compacted'
WHERE id = ? AND state = 'active' AND session_id IN (SELECT value FROM json_each(?));

-- name: next_run
INSERT INTO state_meta (/*! tenant, user_id, */ key, value) VALUES (/*! :tenant, :user, */ 'rewind_run', '1')
ON CONFLICT (/*! tenant, user_id, */ key) DO UPDATE SET value = CAST(CAST(state_meta.value AS BIGINT) + 1 AS TEXT)
RETURNING CAST(value AS BIGINT);

-- name: mark_rewound
UPDATE messages SET state = 'rewound', rewind_run = ?
WHERE id = ? AND state <> 'rewound' AND session_id IN (SELECT value FROM json_each(?));

-- name: uncarry
UPDATE carried SET rewind_run = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?
  AND message_id = ?;

-- name: count
UPDATE sessions SET message_count = CASE WHEN message_count + ?1 > 0 THEN message_count + ?1 ELSE 0 END
WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?2;

-- name: newest_run
SELECT max(run) FROM (
  SELECT max(rewind_run) AS run FROM messages
  WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1 AND state = 'rewound'
  UNION ALL
  SELECT max(rewind_run) FROM carried WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1
) AS runs;

-- name: run_rows
SELECT id, session_id FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?1
  AND state = 'rewound' AND rewind_run = ?2
UNION
SELECT m.id, m.session_id FROM carried AS c
JOIN messages AS m ON /*! m.tenant = :tenant AND m.user_id = :user AND */ m.id = c.message_id
WHERE /*! c.tenant = :tenant AND c.user_id = :user AND */ c.session_id = ?1 AND c.rewind_run = ?2;

-- name: restore_row
UPDATE messages SET rewind_run = NULL, state = CASE
  WHEN id > (SELECT context_from FROM sessions
    WHERE /*! tenant = :tenant AND user_id = :user AND */ id = messages.session_id)
    OR EXISTS (SELECT 1 FROM carried WHERE /*! tenant = :tenant AND user_id = :user AND */ message_id = messages.id)
  THEN 'active' ELSE 'compacted' END
WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ? AND state = 'rewound' AND rewind_run = ?;

-- name: restore_carried
UPDATE carried SET rewind_run = NULL WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?
  AND rewind_run = ?;

-- name: original_ids
SELECT id FROM messages
WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ? AND id <= ? AND state <> 'rewound'
  AND origin IS DISTINCT FROM 'synthetic' ORDER BY id;

-- name: owner
SELECT session_id FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ? AND state <> 'rewound';

-- name: parent
-- a parent that is gone still names the conversation; one that belongs to another user does not
SELECT parent_session_id, link FROM sessions AS s
WHERE id = ?1 AND user_id = ?2
  AND NOT EXISTS (SELECT 1 FROM sessions AS p WHERE p.id = s.parent_session_id AND p.user_id <> ?2);

-- name: children
SELECT id, link FROM sessions WHERE parent_session_id = ? AND user_id = ? ORDER BY rowid;

-- name: rows_after
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ id > ? ORDER BY id LIMIT ?;

-- name: without_checksum
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE id IN (SELECT value FROM json_each(?)) AND checksum IS NULL;

-- name: set_checksum
UPDATE messages SET checksum = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: lists
-- one word after the other, each with its lists in the order of the segments
SELECT w.value, s.value, p.list FROM json_each(?1) AS w
CROSS JOIN json_each(?2) AS s
CROSS JOIN message_postings AS p ON p.key = s.value + w.value;

-- name: words_starting
-- one JSON array: an answer with a row per word takes several times as long
SELECT json_group_array(word) FROM (SELECT word FROM message_terms WHERE word >= ? AND word < ? LIMIT ?);

-- name: words_containing
SELECT json_group_array(word) FROM (SELECT word FROM message_terms WHERE instr(word, ?) > 0 LIMIT ?);

-- name: session_numbers
SELECT number FROM message_sessions WHERE session_id IN (SELECT value FROM json_each(?));

-- name: numbers_of_sessions
SELECT session_id, number FROM message_sessions WHERE session_id IN (SELECT value FROM json_each(?));

-- name: queued
SELECT message_id FROM index_queue ORDER BY message_id;

-- name: rows_between
-- newest first, because there may be more than can be read
SELECT id, CAST(session_id AS TEXT), CAST(role AS TEXT), iif(state = 'rewound', '', CAST(content AS TEXT)), origin,
       iif(state = 'rewound', NULL, CAST(tool_name AS TEXT)), iif(state = 'rewound', NULL, CAST(tool_calls AS TEXT))
FROM messages WHERE id >= ? AND id < ? ORDER BY id DESC;

-- name: row
SELECT id, CAST(session_id AS TEXT), CAST(role AS TEXT), iif(state = 'rewound', '', CAST(content AS TEXT)), origin,
       iif(state = 'rewound', NULL, CAST(tool_name AS TEXT)), iif(state = 'rewound', NULL, CAST(tool_calls AS TEXT))
FROM messages WHERE id = ?;

-- name: newest_message
SELECT max(id) FROM messages;

-- name: count_between
SELECT count(*) FROM messages WHERE id >= ? AND id < ?;

-- name: heads
-- damage can change types
SELECT messages.id, CAST(session_id AS TEXT), CAST(role AS TEXT), CAST(timestamp AS REAL), external_id
FROM json_each(?) CROSS JOIN messages ON messages.id = value WHERE state <> 'rewound';

-- name: texts
SELECT id, CAST(content AS TEXT) FROM messages WHERE id IN (SELECT value FROM json_each(?));

-- name: talk_before
-- texts of tools are found by the index alone
SELECT id, CAST(content AS TEXT) FROM messages
WHERE id < ? AND role IN ('user', 'assistant') AND state <> 'rewound' AND origin IS NOT 'synthetic'
ORDER BY id DESC LIMIT ?;

-- name: sessions
SELECT id, CAST(source AS TEXT), CAST(project AS TEXT), CAST(started AS REAL), CAST(coalesce(last_active, started) AS REAL),
  -- compared as text: damaged metadata must not end a search
  CAST(message_count AS INTEGER), instr(coalesce(metadata, ''), '"headless": true') > 0
FROM sessions
WHERE id IN (SELECT value FROM json_each(:ids)) AND user_id = :user AND trashed IS NULL;

-- name: ids_by_session
SELECT session_id, json_group_array(id) FROM messages WHERE session_id IN (SELECT value FROM json_each(?))
GROUP BY session_id;

-- name: session_ids_near
SELECT id FROM messages WHERE session_id = ? AND id BETWEEN ? AND ? ORDER BY id;

-- name: filtered_sessions
SELECT id FROM sessions
WHERE user_id = :user
  AND (:project IS NULL OR project = :project)
  AND (:sources IS NULL OR source IN (SELECT value FROM json_each(:sources)))
  AND (:after IS NULL OR coalesce(last_active, started) >= :after)
  AND (:before IS NULL OR started < :before)
  AND trashed IS NULL
LIMIT :limit;

-- name: other_user
SELECT 1 WHERE EXISTS (SELECT 1 FROM sessions WHERE user_id < ?) OR EXISTS (SELECT 1 FROM sessions WHERE user_id > ?);

-- name: count_timeline
SELECT count(*) FROM sessions AS s
  WHERE s.user_id = :user AND s.trashed IS NULL
    AND (:project IS NULL OR s.project = :project)
    AND (:sources IS NULL OR s.source IN (SELECT value FROM json_each(:sources)))
    AND (:hidden_sources IS NULL OR s.source NOT IN (SELECT value FROM json_each(:hidden_sources)))
    AND (:session_id IS NULL OR s.id = :session_id)
    AND (:exclude_sessions IS NULL OR s.id NOT IN (SELECT value FROM json_each(:exclude_sessions)))
    AND (:after IS NULL OR coalesce(s.last_active, s.started) >= :after)
    AND (:before IS NULL OR s.started < :before)
    AND EXISTS (
      SELECT 1 FROM messages AS m WHERE m.session_id = s.id AND m.state <> 'rewound'
        AND (:after IS NULL OR m.timestamp >= :after) AND (:before IS NULL OR m.timestamp < :before)
        AND (:roles IS NULL OR m.role IN (SELECT value FROM json_each(:roles)))
        AND (:exclude_messages IS NULL OR m.id NOT IN (SELECT value FROM json_each(:exclude_messages)))
    );

-- name: timeline
-- the sessions are chosen first, because a time may have thousands of them
SELECT id, (
  SELECT m.id FROM messages AS m WHERE m.session_id = chosen.id AND m.state <> 'rewound'
    AND (:after IS NULL OR m.timestamp >= :after) AND (:before IS NULL OR m.timestamp < :before)
    AND (:roles IS NULL OR m.role IN (SELECT value FROM json_each(:roles)))
    AND (:exclude_messages IS NULL OR m.id NOT IN (SELECT value FROM json_each(:exclude_messages)))
  -- what a person said tells most of a conversation
  ORDER BY m.role = 'user' AND m.origin IS NOT 'synthetic' DESC, m.id LIMIT 1
)
FROM (
  SELECT s.id, max(s.started, coalesce(:after, s.started)) AS began FROM sessions AS s
  WHERE s.user_id = :user AND s.trashed IS NULL
    AND (:project IS NULL OR s.project = :project)
    AND (:sources IS NULL OR s.source IN (SELECT value FROM json_each(:sources)))
    AND (:hidden_sources IS NULL OR s.source NOT IN (SELECT value FROM json_each(:hidden_sources)))
    AND (:session_id IS NULL OR s.id = :session_id)
    AND (:exclude_sessions IS NULL OR s.id NOT IN (SELECT value FROM json_each(:exclude_sessions)))
    AND (:after IS NULL OR coalesce(s.last_active, s.started) >= :after)
    AND (:before IS NULL OR s.started < :before)
    AND EXISTS (
      SELECT 1 FROM messages AS m WHERE m.session_id = s.id AND m.state <> 'rewound'
        AND (:after IS NULL OR m.timestamp >= :after) AND (:before IS NULL OR m.timestamp < :before)
        AND (:roles IS NULL OR m.role IN (SELECT value FROM json_each(:roles)))
        AND (:exclude_messages IS NULL OR m.id NOT IN (SELECT value FROM json_each(:exclude_messages)))
    )
  ORDER BY began * :sign, s.id LIMIT :limit
) AS chosen ORDER BY began * :sign;

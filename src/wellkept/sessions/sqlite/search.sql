-- name: totals
SELECT block FROM message_words_data WHERE id = 1;

-- name: frequency
SELECT doc FROM message_vocabulary WHERE term = ?;

-- name: frequencies
SELECT value, doc FROM json_each(?) CROSS JOIN message_vocabulary ON term = value;

-- name: vocabulary
SELECT CAST(term AS BLOB), doc FROM message_vocabulary WHERE term >= ? AND term < ?;

-- name: any_term
SELECT 1 FROM message_vocabulary WHERE term >= ? AND term < ? LIMIT 1;

-- name: index_page
SELECT block FROM message_words_data WHERE id = ?;

-- name: index_leaf
-- the last page that begins with this term or one before it
SELECT pgno FROM message_words_idx WHERE segid = ? AND term <= ? ORDER BY term DESC LIMIT 1;

-- name: ids
SELECT json_group_array(rowid) FROM message_words WHERE message_words MATCH ?;

-- name: first_ids
SELECT json_group_array(rowid) FROM (SELECT rowid FROM message_words WHERE message_words MATCH ? LIMIT ?);

-- name: ids_between
SELECT json_group_array(rowid) FROM message_words WHERE message_words MATCH ? AND rowid BETWEEN ? AND ?;

-- name: newest_ids
SELECT json_group_array(rowid) FROM (
  SELECT rowid FROM message_words WHERE message_words MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?
);

-- name: lengths
-- one text for all, because a row for each takes five times as long; a message that is not indexed has one word and no mark
SELECT group_concat(iif(typeof(sz) = 'blob', hex(sz), '0100'), '')
FROM json_each(?) LEFT JOIN message_words_docsize AS size ON size.id = value;

-- name: heads
-- damage can change types
SELECT messages.id, CAST(session_id AS TEXT), CAST(role AS TEXT), CAST(timestamp AS REAL), external_id
FROM json_each(?) CROSS JOIN messages ON messages.id = value WHERE state <> 'rewound' AND origin IS NOT 'lookup';

-- name: texts
-- a text that is not ASCII, or has a NUL, is longer than its characters; only its folded form can be compared
SELECT id, CAST(content AS TEXT) FROM messages
WHERE id IN (SELECT value FROM json_each(?1)) AND (?2 = '%' OR content LIKE ?2 OR octet_length(content) <> length(content));

-- name: talk_before
-- texts of tools are found by the index alone
SELECT id, CAST(content AS TEXT) FROM messages
WHERE id < ? AND role IN ('user', 'assistant') AND state <> 'rewound'
  AND coalesce(origin, '') NOT IN ('synthetic', 'lookup')
ORDER BY id DESC LIMIT ?;

-- name: sessions
SELECT sessions.id, CAST(source AS TEXT), CAST(project AS TEXT), coalesce(CAST(started AS REAL), 0.0),
  coalesce(CAST(coalesce(last_active, started) AS REAL), 0.0), coalesce(CAST(message_count AS INTEGER), 0),
  -- compared as text: damaged metadata must not end a search
  instr(coalesce(metadata, ''), '"headless": true') > 0, parent_session_id IS NOT NULL
-- without CROSS, SQLite reads every session of the user instead
FROM json_each(?1) CROSS JOIN sessions ON sessions.id = value
WHERE user_id = ?2 AND trashed IS NULL;

-- name: session_count
SELECT count(*) FROM sessions;

-- name: spans_by_session
-- three lookups for each, which takes half of the time of GROUP BY
SELECT value, (SELECT min(id) FROM messages WHERE session_id = value),
  (SELECT max(id) FROM messages WHERE session_id = value), (SELECT count(*) FROM messages WHERE session_id = value)
FROM json_each(?);

-- name: ids_by_session
SELECT session_id, json_group_array(id) FROM messages WHERE session_id IN (SELECT value FROM json_each(?))
GROUP BY session_id;

-- name: session_ids_near
SELECT id FROM messages WHERE session_id = ? AND id BETWEEN ? AND ? ORDER BY id;

-- name: filtered_sessions
-- from `after` on the index of activity is read; a session without any has no messages, or another program wrote them
SELECT id FROM sessions
WHERE user_id = :user AND last_active >= coalesce(:after, -1e300)
  AND (:project IS NULL OR project = :project)
  AND (:sources IS NULL OR source IN (SELECT value FROM json_each(:sources)))
  AND (:before IS NULL OR started < :before) AND trashed IS NULL
UNION ALL
SELECT id FROM sessions
WHERE user_id = :user AND last_active IS NULL AND (:after IS NULL OR started >= :after)
  AND (:project IS NULL OR project = :project)
  AND (:sources IS NULL OR source IN (SELECT value FROM json_each(:sources)))
  AND (:before IS NULL OR started < :before) AND trashed IS NULL
LIMIT :limit;

-- name: session_span
-- first and last are looked up in the index of each session, without reading what is between them
SELECT min((SELECT min(id) FROM messages WHERE session_id = s.id)), max((SELECT max(id) FROM messages WHERE session_id = s.id)),
  sum(CAST(s.message_count AS INTEGER))
FROM json_each(?1) CROSS JOIN sessions AS s ON s.id = value WHERE s.user_id = ?2;

-- name: other_user
SELECT 1 WHERE EXISTS (SELECT 1 FROM sessions WHERE user_id < ?) OR EXISTS (SELECT 1 FROM sessions WHERE user_id > ?);

-- name: titled
SELECT id FROM sessions WHERE user_id = :user AND lower(title) = lower(:title) AND trashed IS NULL;

-- name: titles
SELECT id, title FROM sessions WHERE user_id = :user AND title IS NOT NULL AND trashed IS NULL
ORDER BY last_active DESC;

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
  ORDER BY m.origin IS 'lookup', m.role = 'user' AND m.origin IS NOT 'synthetic' DESC, m.id LIMIT 1
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

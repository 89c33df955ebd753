-- name: open, short
SELECT * FROM open_search();

-- name: columns
SELECT id, messages, lengths FROM segments WHERE tenant = :tenant AND user_id = :user AND id = ANY(:ids);

-- name: fresh_substrings
SELECT message_id, text FROM fresh_substrings WHERE tenant = :tenant AND user_id = :user;

-- name: texts
-- a text that is not ASCII is longer than its characters; only its folded form can be compared
SELECT id, content FROM messages
WHERE tenant = :tenant AND user_id = :user AND id = ANY(:ids)
  AND (:pattern = '%' OR octet_length(content) <> length(content) OR content ILIKE :pattern)
ORDER BY id;

-- name: talk_before
-- texts of tools are found by the index alone
SELECT id, content FROM messages
WHERE tenant = :tenant AND user_id = :user AND id < :below AND role IN ('user', 'assistant') AND state <> 'rewound'
  AND coalesce(origin, '') NOT IN ('synthetic', 'lookup')
ORDER BY id DESC LIMIT :limit;

-- name: messages
SELECT * FROM find_messages(ARRAY(
  SELECT id FROM messages WHERE tenant = :tenant AND user_id = :user AND id = ANY(:ids)
    AND origin IS DISTINCT FROM 'lookup'
), :most_bytes);

-- name: ids_by_session
SELECT * FROM list_messages(:ids);

-- name: sessions
SELECT id, source, project, started, coalesce(last_active, started), message_count,
  strpos(coalesce(metadata, ''), '"headless": true') > 0, parent_session_id IS NOT NULL
FROM sessions WHERE tenant = :tenant AND user_id = :user AND id = ANY(:ids) AND trashed IS NULL;

-- name: filtered_sessions
SELECT id FROM sessions
WHERE tenant = :tenant AND user_id = :user
  AND (:project IS NULL OR project = :project)
  AND (:sources IS NULL OR source = ANY(:sources))
  AND (:after IS NULL OR coalesce(last_active, started) >= :after)
  AND (:before IS NULL OR started < :before)
  AND trashed IS NULL
ORDER BY number LIMIT :limit;

-- name: session_span
SELECT min(m.first), max(m.last), sum(s.message_count) FROM sessions AS s
CROSS JOIN LATERAL (
  SELECT min(id) AS first, max(id) AS last FROM messages
  WHERE tenant = :tenant AND user_id = :user AND session_id = s.id
) AS m
WHERE s.tenant = :tenant AND s.user_id = :user AND s.id = ANY(:ids);

-- name: ids_near
SELECT id FROM messages WHERE tenant = :tenant AND user_id = :user AND session_id = :session
  AND id BETWEEN :first AND :last ORDER BY id;

-- name: titled
SELECT id FROM sessions WHERE tenant = :tenant AND user_id = :user AND lower(title) = lower(:title) AND trashed IS NULL;

-- name: titles
SELECT id, title FROM sessions WHERE tenant = :tenant AND user_id = :user AND title IS NOT NULL AND trashed IS NULL
ORDER BY last_active DESC;

-- name: timeline
-- the sessions are chosen first, because a time may have thousands of them
SELECT total, id, (
  SELECT m.id FROM messages AS m WHERE m.tenant = :tenant AND m.user_id = :user AND m.session_id = chosen.id
    AND m.state <> 'rewound' AND (:after IS NULL OR m.timestamp >= :after) AND (:before IS NULL OR m.timestamp < :before)
    AND (:roles IS NULL OR m.role = ANY(:roles))
    AND (:exclude_messages IS NULL OR m.id <> ALL(:exclude_messages))
  -- what a person said describes a conversation best
  ORDER BY m.origin IS NOT DISTINCT FROM 'lookup',
    (m.role = 'user' AND m.origin IS DISTINCT FROM 'synthetic') DESC, m.id
  LIMIT 1
)
FROM (
  SELECT s.id, greatest(s.started, coalesce(:after, s.started)) AS began, count(*) OVER () AS total FROM sessions AS s
  WHERE s.tenant = :tenant AND s.user_id = :user AND s.trashed IS NULL
    AND (:project IS NULL OR s.project = :project)
    AND (:sources IS NULL OR s.source = ANY(:sources))
    AND (:hidden_sources IS NULL OR s.source <> ALL(:hidden_sources))
    AND (:session_id IS NULL OR s.id = :session_id)
    AND (:exclude_sessions IS NULL OR s.id <> ALL(:exclude_sessions))
    AND (:after IS NULL OR coalesce(s.last_active, s.started) >= :after)
    AND (:before IS NULL OR s.started < :before)
    AND EXISTS (
      SELECT 1 FROM messages AS m WHERE m.tenant = :tenant AND m.user_id = :user AND m.session_id = s.id
        AND m.state <> 'rewound' AND (:after IS NULL OR m.timestamp >= :after) AND (:before IS NULL OR m.timestamp < :before)
        AND (:roles IS NULL OR m.role = ANY(:roles))
        AND (:exclude_messages IS NULL OR m.id <> ALL(:exclude_messages))
    )
  ORDER BY greatest(s.started, coalesce(:after, s.started)) * :sign, s.id LIMIT :limit
) AS chosen ORDER BY began * :sign;

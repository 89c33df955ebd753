-- name: idle
SELECT id, source, started, user_id, profile, project, model, title, parent_session_id, link, ended, end_reason,
  archived, last_active, message_count, metadata
FROM sessions
WHERE /*! tenant = :tenant AND */ user_id = :user AND trashed IS NULL AND coalesce(last_active, started) < :before
  AND (:source IS NULL OR source = :source)
ORDER BY last_active;

-- name: text_bytes
SELECT session_id, sum(octet_length(content) + coalesce(octet_length(tool_calls), 0)
  + coalesce(octet_length(api_content), 0) + coalesce(octet_length(reasoning), 0))
FROM messages WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id IN (
  SELECT id FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ?) GROUP BY session_id;

-- name: totals
SELECT count(*) FILTER (WHERE trashed IS NULL), count(*) FILTER (WHERE trashed IS NOT NULL) FROM sessions
WHERE /*! tenant = :tenant AND */ user_id = ?;

-- name: message_totals
SELECT count(*), coalesce(sum(octet_length(content)), 0) FROM messages
WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id IN (
  SELECT id FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ?);

-- name: growth
SELECT strftime('%Y-%m', timestamp, 'unixepoch') AS month, count(*), sum(octet_length(content))
FROM messages WHERE session_id IN (SELECT id FROM sessions WHERE user_id = ?)
GROUP BY month ORDER BY month DESC LIMIT ?;

-- name: biggest
SELECT m.session_id, s.title, count(*), sum(octet_length(m.content)) AS bytes
FROM messages AS m JOIN sessions AS s ON /*! s.tenant = :tenant AND */ s.id = m.session_id
WHERE /*! m.tenant = :tenant AND m.user_id = :user AND */ s.user_id = ? AND s.trashed IS NULL
GROUP BY m.session_id, s.title ORDER BY bytes DESC LIMIT ?;

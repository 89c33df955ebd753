-- name: growth
SELECT to_char(to_timestamp(timestamp) AT TIME ZONE 'UTC', 'YYYY-MM') AS month, count(*), sum(octet_length(content))
FROM messages WHERE tenant = :tenant AND user_id = :user AND session_id IN (
  SELECT id FROM sessions WHERE tenant = :tenant AND user_id = ?)
GROUP BY month ORDER BY month DESC LIMIT ?;

-- name: biggest
SELECT m.session_id, s.title, count(*), sum(octet_length(m.content)) AS bytes
FROM messages AS m JOIN sessions AS s ON s.tenant = :tenant AND s.id = m.session_id
WHERE m.tenant = :tenant AND m.user_id = :user AND s.user_id = ? AND s.trashed IS NULL GROUP BY m.session_id, s.title
ORDER BY bytes DESC LIMIT ?;

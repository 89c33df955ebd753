-- name: growth
SELECT to_char(to_timestamp(timestamp) AT TIME ZONE 'UTC', 'YYYY-MM') AS month, count(*), sum(octet_length(content))
FROM messages WHERE tenant = :tenant AND user_id = :user AND session_id IN (
  SELECT id FROM sessions WHERE tenant = :tenant AND user_id = ?)
GROUP BY month ORDER BY month DESC LIMIT ?;

-- name: activity
SELECT date(last_active, 'unixepoch', 'localtime') AS day, source, count(*), sum(message_count) FROM sessions
WHERE user_id = ? AND trashed IS NULL AND last_active >= ? AND source NOT IN ('subagent', 'tool', 'review')
GROUP BY day, source ORDER BY day;

-- name: sizes
SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC;

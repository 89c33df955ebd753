-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table';

-- name: made_anew
DELETE FROM state_meta WHERE key IN ('index_version', 'erase_due');

-- name: unqueue
DELETE FROM index_queue;

-- name: adopt
INSERT OR IGNORE INTO sessions (id, source, started, last_active, message_count)
SELECT session_id, 'salvaged', min(timestamp), max(timestamp), 0 FROM messages
WHERE session_id NOT IN (SELECT id FROM sessions) GROUP BY session_id;

-- name: recount
UPDATE sessions SET message_count =
  (SELECT count(*) FROM messages WHERE session_id = sessions.id AND state <> 'rewound');

-- name: drop_lost_carried
DELETE FROM carried WHERE message_id NOT IN (SELECT id FROM messages)
  OR session_id NOT IN (SELECT id FROM sessions);

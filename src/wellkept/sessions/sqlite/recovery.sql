-- name: made_anew
DELETE FROM state_meta WHERE key IN ('index_version', 'erase_due');

-- name: unqueue
DELETE FROM index_queue;

-- name: recount
UPDATE sessions SET message_count =
  (SELECT count(*) FROM messages WHERE session_id = sessions.id AND state <> 'rewound');

-- name: drop_lost_carried
DELETE FROM carried WHERE message_id NOT IN (SELECT id FROM messages)
  OR session_id NOT IN (SELECT id FROM sessions);

-- name: nameless_sources
SELECT DISTINCT source FROM messages WHERE source IS NOT NULL AND source NOT IN (SELECT id FROM sources);

-- name: possible_sources
SELECT 'import:' || source FROM sessions UNION SELECT 'tool:' || tool_name FROM messages WHERE tool_name IS NOT NULL;

-- name: name_source
INSERT INTO sources (id, name) VALUES (?, ?);

-- name: forget_sequence
DELETE FROM sqlite_sequence WHERE name = ?;

-- name: set_sequence
INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?);

-- name: without_session
SELECT session_id, min(timestamp), max(timestamp) FROM messages
WHERE session_id NOT IN (SELECT id FROM sessions) GROUP BY session_id;

-- name: users_of_session
SELECT user_id FROM usage WHERE session_id = ?1
UNION SELECT user_id FROM provider_calls WHERE session_id = ?1
UNION SELECT user_id FROM outbox WHERE session_id = ?1;

-- name: session_ids
SELECT id FROM sessions;

-- name: insert_session
INSERT INTO sessions (id, source, user_id, title, parent_session_id, started, last_active, trashed)
VALUES (:id, 'salvaged', :user, :title, :parent, :started, :last_active, :trashed);

-- name: session_numbers
SELECT rowid FROM sessions;

-- name: title_taken
SELECT 1 FROM sessions WHERE user_id = ? AND title = ?;

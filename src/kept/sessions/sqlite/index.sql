-- name: create_terms
-- every word that some message contains, in lower case: questions look here for its forms
CREATE TABLE IF NOT EXISTS message_terms (
  word TEXT PRIMARY KEY
) WITHOUT ROWID;

-- name: create_segments
CREATE TABLE IF NOT EXISTS message_segments (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  first INTEGER NOT NULL,
  size INTEGER NOT NULL,
  -- 'building', 'active' or 'dead': searches read active segments only
  state TEXT NOT NULL,
  revision INTEGER NOT NULL DEFAULT 0,
  documents INTEGER NOT NULL DEFAULT 0,
  words INTEGER NOT NULL DEFAULT 0,
  version INTEGER NOT NULL,
  languages TEXT NOT NULL DEFAULT '{}',
  -- of every id in the range: the number of words (16 bits) and the number of the session (32 bits)
  lengths BLOB NOT NULL DEFAULT x'',
  sessions BLOB NOT NULL DEFAULT x''
);

-- name: create_postings
-- the key is the id of the segment in the upper bits and a hash of the word in the lower 40
CREATE TABLE IF NOT EXISTS message_postings (
  key INTEGER PRIMARY KEY,
  list BLOB NOT NULL
);

-- name: create_sessions
CREATE TABLE IF NOT EXISTS message_sessions (
  number INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL UNIQUE
);

-- name: drop_terms
DROP TABLE IF EXISTS message_terms;

-- name: drop_segments
DROP TABLE IF EXISTS message_segments;

-- name: drop_postings
DROP TABLE IF EXISTS message_postings;

-- name: drop_sessions
DROP TABLE IF EXISTS message_sessions;

-- name: active
SELECT id, first, size, revision, documents, words, version, languages FROM message_segments
WHERE state = 'active' ORDER BY first;

-- name: unfinished
SELECT id FROM message_segments WHERE state <> 'active' LIMIT 1;

-- name: begin_segment
INSERT INTO message_segments (first, size, state, version) VALUES (?, ?, 'building', ?) RETURNING id;

-- name: finish_segment
UPDATE message_segments
SET state = 'active', documents = ?, words = ?, languages = ?, lengths = ?, sessions = ? WHERE id = ?;

-- name: end_segment
UPDATE message_segments SET state = 'dead' WHERE id = ?;

-- name: change_segment
UPDATE message_segments
SET revision = revision + 1, documents = ?, words = ?, lengths = ?, sessions = ? WHERE id = ?;

-- name: drop_segment
DELETE FROM message_segments WHERE id = ?;

-- name: columns
SELECT lengths, sessions FROM message_segments WHERE id = ?;

-- name: add_term
INSERT OR IGNORE INTO message_terms (word) VALUES (?);

-- name: drop_term
DELETE FROM message_terms WHERE word = ?;

-- name: unused_keys
-- of these hashes, those that are in no list
SELECT value FROM json_each(?1) WHERE NOT EXISTS (
  SELECT 1 FROM message_segments AS s JOIN message_postings AS p ON p.key = (s.id << 40) + value
);

-- name: terms_after
SELECT word FROM message_terms WHERE word > ? ORDER BY word LIMIT ?;

-- name: add_session
INSERT OR IGNORE INTO message_sessions (session_id) VALUES (?);

-- name: session_numbers
SELECT session_id, number FROM message_sessions WHERE session_id IN (SELECT value FROM json_each(?));

-- name: gone_sessions
DELETE FROM message_sessions WHERE session_id NOT IN (SELECT id FROM sessions);

-- name: add_list
INSERT OR REPLACE INTO message_postings (key, list) VALUES (?, ?);

-- name: drop_list
DELETE FROM message_postings WHERE key = ?;

-- name: list
SELECT list FROM message_postings WHERE key = ?;

-- name: lists
SELECT key, list FROM message_postings WHERE key BETWEEN ? AND ? ORDER BY key;

-- name: drop_some_lists
DELETE FROM message_postings WHERE key IN (SELECT key FROM message_postings WHERE key BETWEEN ? AND ? LIMIT ?);

-- name: newest_message
SELECT max(id) FROM messages;

-- name: newest_between
SELECT max(id) FROM messages WHERE id >= ? AND id < ?;

-- name: is_waiting
SELECT 1 FROM index_queue LIMIT 1;

-- name: waiting
-- what was taken back is indexed as empty, so that it lends no weight to its neighbours either
SELECT q.message_id, m.session_id, CAST(m.role AS TEXT), iif(m.state = 'rewound', '', CAST(m.content AS TEXT)), m.origin,
       iif(m.state = 'rewound', NULL, CAST(m.tool_name AS TEXT)), iif(m.state = 'rewound', NULL, CAST(m.tool_calls AS TEXT))
FROM index_queue AS q LEFT JOIN messages AS m ON m.id = q.message_id
ORDER BY q.message_id LIMIT ?;

-- name: again
INSERT OR IGNORE INTO index_queue (message_id) VALUES (?);

-- name: done
DELETE FROM index_queue WHERE message_id = ?;

-- name: recount
UPDATE sessions SET
  message_count = (SELECT count(*) FROM messages WHERE session_id = sessions.id AND state <> 'rewound'),
  last_active = coalesce((SELECT max(timestamp) FROM messages WHERE session_id = sessions.id), last_active)
WHERE id = ?;

-- name: recount_all
UPDATE sessions SET
  message_count = (SELECT count(*) FROM messages WHERE session_id = sessions.id AND state <> 'rewound')
WHERE message_count <> (SELECT count(*) FROM messages WHERE session_id = sessions.id AND state <> 'rewound');

-- name: texts_between
SELECT id, CAST(session_id AS TEXT), CAST(role AS TEXT), iif(state = 'rewound', '', CAST(content AS TEXT)), origin,
       iif(state = 'rewound', NULL, CAST(tool_name AS TEXT)), iif(state = 'rewound', NULL, CAST(tool_calls AS TEXT))
FROM messages WHERE id >= ? AND id < ? ORDER BY id;

-- name: version
SELECT value FROM state_meta WHERE key = 'index_version';

-- name: set_version
INSERT INTO state_meta (key, value) VALUES ('index_version', ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: count_messages
SELECT count(*) FROM messages;

-- name: old_tables
-- the indexes of versions up to 3, and what an interrupted rebuild of theirs left
SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN (
  'message_vocabulary', 'message_words', 'message_substrings', 'next_words', 'next_substrings'
) ORDER BY name = 'message_vocabulary' DESC, name;

-- name: drop_some_pages
DELETE FROM {index}_data WHERE id IN (SELECT id FROM {index}_data WHERE id > 10 LIMIT ?);

-- name: is_behind
-- messages before, after or beyond the segments; changes; what is unfinished, old or of an earlier version
SELECT EXISTS (SELECT 1 FROM index_queue)
  OR EXISTS (SELECT 1 FROM message_segments WHERE state <> 'active' OR version <> ?)
  OR (SELECT (max(id) + 1) / 16 * 16 FROM messages) > coalesce((SELECT max(first + size) FROM message_segments), 0)
  OR (SELECT min(id) FROM messages) < (SELECT min(first) FROM message_segments)
  OR EXISTS (SELECT 1 FROM sqlite_schema WHERE name IN ('message_words', 'message_substrings', 'message_vocabulary', 'next_words', 'next_substrings'));

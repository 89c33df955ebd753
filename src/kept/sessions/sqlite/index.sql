-- name: create_words
CREATE VIRTUAL TABLE IF NOT EXISTS message_words USING fts5(
  words, marks, content='', contentless_delete=1, detail=none,
  tokenize="porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc So'"
);

-- name: create_substrings
CREATE VIRTUAL TABLE IF NOT EXISTS message_substrings USING fts5(
  text, content='', contentless_delete=1, detail=none, tokenize="trigram remove_diacritics 1"
);

-- name: create_vocabulary
CREATE VIRTUAL TABLE IF NOT EXISTS message_vocabulary USING fts5vocab(message_words, row);

-- name: drop_words
DROP TABLE IF EXISTS message_words;

-- name: drop_substrings
DROP TABLE IF EXISTS message_substrings;

-- name: drop_vocabulary
DROP TABLE IF EXISTS message_vocabulary;

-- name: add_words
INSERT OR REPLACE INTO message_words (rowid, words, marks) VALUES (?, ?, ?);

-- name: add_substrings
INSERT OR REPLACE INTO message_substrings (rowid, text) VALUES (?, ?);

-- name: remove_words
DELETE FROM message_words WHERE rowid = ?;

-- name: remove_substrings
DELETE FROM message_substrings WHERE rowid = ?;

-- name: merge_words
INSERT INTO message_words (message_words, rank) VALUES ('merge', ?);

-- name: merge_substrings
INSERT INTO message_substrings (message_substrings, rank) VALUES ('merge', ?);

-- name: is_waiting
SELECT 1 FROM index_queue LIMIT 1;

-- name: waiting
-- what was taken back is indexed as empty, so that it lends no weight to its neighbours either
SELECT q.message_id, m.session_id, CAST(m.role AS TEXT), iif(m.state = 'rewound', '', CAST(m.content AS TEXT)), m.origin,
       iif(m.state = 'rewound', NULL, CAST(m.tool_name AS TEXT)), iif(m.state = 'rewound', NULL, CAST(m.tool_calls AS TEXT)),
       m.checksum IS NULL -- another program wrote the row, which neither counts it nor computes a checksum
FROM index_queue AS q LEFT JOIN messages AS m ON m.id = q.message_id
ORDER BY q.message_id LIMIT ?;

-- name: is_foreign
-- a record without a value has two bytes
SELECT 1 FROM dbstat WHERE name = 'index_queue' AND pagetype <> 'internal' AND payload <> 2 * ncell;

-- name: again
INSERT INTO index_queue (message_id) VALUES (?) ON CONFLICT DO NOTHING;

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

-- name: texts_after
SELECT id, CAST(role AS TEXT), iif(state = 'rewound', '', CAST(content AS TEXT)), origin,
       iif(state = 'rewound', NULL, CAST(tool_name AS TEXT)), iif(state = 'rewound', NULL, CAST(tool_calls AS TEXT))
FROM messages WHERE id > ? ORDER BY id LIMIT ?;

-- name: version
SELECT value FROM state_meta WHERE key = 'index_version';

-- name: set_version
INSERT INTO state_meta (key, value) VALUES ('index_version', ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: any_message
SELECT 1 FROM messages LIMIT 1;

-- name: count_messages
SELECT count(*) FROM messages;

-- name: drop_next_words
DROP TABLE IF EXISTS next_words;

-- name: drop_next_substrings
DROP TABLE IF EXISTS next_substrings;

-- name: add_next_words
INSERT INTO next_words (rowid, words, marks) VALUES (?, ?, ?);

-- name: add_next_substrings
INSERT INTO next_substrings (rowid, text) VALUES (?, ?);

-- name: drop_gone_words
DELETE FROM next_words WHERE rowid IN (SELECT id FROM next_words_docsize WHERE id NOT IN (SELECT id FROM messages));

-- name: drop_gone_substrings
DELETE FROM next_substrings
WHERE rowid IN (SELECT id FROM next_substrings_docsize WHERE id NOT IN (SELECT id FROM messages));

-- name: rename_words
ALTER TABLE next_words RENAME TO message_words;

-- name: rename_substrings
ALTER TABLE next_substrings RENAME TO message_substrings;

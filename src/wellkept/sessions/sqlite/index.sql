-- name: create_words
CREATE VIRTUAL TABLE IF NOT EXISTS message_words USING fts5(
  words, marks, content='', contentless_delete=1, detail=none,
  tokenize="porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc So'"
);

-- name: create_vocabulary
CREATE VIRTUAL TABLE IF NOT EXISTS message_vocabulary USING fts5vocab(message_words, row);

-- name: drop_words
DROP TABLE IF EXISTS message_words;

-- name: drop_trigrams
-- of earlier versions: trigrams of eight messages in a row
DROP TABLE IF EXISTS message_trigrams;

-- name: drop_substrings
-- of earlier versions: trigrams of one message in a row
DROP TABLE IF EXISTS message_substrings;

-- name: drop_vocabulary
DROP TABLE IF EXISTS message_vocabulary;

-- name: add_words
INSERT OR REPLACE INTO message_words (rowid, words, marks) VALUES (?, ?, ?);

-- name: remove_words
DELETE FROM message_words WHERE rowid = ?;

-- name: merge_words
INSERT INTO message_words (message_words, rank) VALUES ('merge', ?);

-- name: is_waiting
SELECT 1 FROM index_queue LIMIT 1;

-- name: are_more_waiting
SELECT 1 FROM index_queue LIMIT 1 OFFSET ?;

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

-- name: done_up_to
DELETE FROM index_queue WHERE message_id <= ?;

-- name: recount_all
-- a session of another program has no last activity before its messages are counted
UPDATE sessions SET
  message_count = (SELECT count(*) FROM messages WHERE session_id = sessions.id AND state <> 'rewound'),
  last_active = coalesce(last_active, (SELECT max(timestamp) FROM messages WHERE session_id = sessions.id))
WHERE message_count <> (SELECT count(*) FROM messages WHERE session_id = sessions.id AND state <> 'rewound')
  OR (last_active IS NULL AND EXISTS (SELECT 1 FROM messages WHERE session_id = sessions.id));

-- name: texts_after
SELECT id, CAST(role AS TEXT), iif(state = 'rewound', '', CAST(content AS TEXT)), origin,
       iif(state = 'rewound', NULL, CAST(tool_name AS TEXT)), iif(state = 'rewound', NULL, CAST(tool_calls AS TEXT))
FROM messages WHERE id > ? ORDER BY id LIMIT ?;

-- name: texts_with
SELECT m.id, CAST(m.role AS TEXT), iif(m.state = 'rewound', '', CAST(m.content AS TEXT)), m.origin,
       iif(m.state = 'rewound', NULL, CAST(m.tool_name AS TEXT)), iif(m.state = 'rewound', NULL, CAST(m.tool_calls AS TEXT))
FROM message_words CROSS JOIN messages AS m ON m.id = message_words.rowid
WHERE message_words MATCH ? ORDER BY message_words.rowid DESC LIMIT ?;

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

-- name: drop_next_trigrams
-- of earlier versions
DROP TABLE IF EXISTS next_trigrams;

-- name: drop_next_spellings
DROP TABLE IF EXISTS next_spellings;

-- name: rename_words
ALTER TABLE next_words RENAME TO message_words;

-- name: rename_spellings
ALTER TABLE next_spellings RENAME TO message_spellings;

-- name: texts_below
SELECT id, CAST(role AS TEXT), iif(state = 'rewound', '', CAST(content AS TEXT)), origin,
       iif(state = 'rewound', NULL, CAST(tool_name AS TEXT)), iif(state = 'rewound', NULL, CAST(tool_calls AS TEXT))
FROM messages WHERE id < ? ORDER BY id DESC LIMIT ?;

-- name: last_message
SELECT max(id) FROM messages;

-- name: missing_below
-- the words of messages below this one are not listed yet; no row once all are
SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = 'spellings_missing_below';

-- name: set_missing_below
INSERT INTO state_meta (key, value) VALUES ('spellings_missing_below', ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: none_missing
DELETE FROM state_meta WHERE key IN ('spellings_missing_below', 'trigrams_missing_below');

-- name: set_unused
-- the list may have words that no message has any more; the number changes with every removal
INSERT INTO state_meta (key, value) VALUES ('spellings_unused', '1')
ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT);

-- name: unused
SELECT value FROM state_meta WHERE key = 'spellings_unused';

-- name: none_unused
DELETE FROM state_meta WHERE key = 'spellings_unused' AND value = coalesce(?, value);

-- name: create_next_queue
CREATE TABLE next_queue (message_id INTEGER PRIMARY KEY);

-- name: follow_queue
-- what is indexed or removed while new indexes are filled must be done in these as well
CREATE TRIGGER next_queue_again AFTER DELETE ON index_queue BEGIN
  INSERT OR IGNORE INTO next_queue (message_id) VALUES (old.message_id);
END;

-- name: queue_next
INSERT OR IGNORE INTO index_queue (message_id) SELECT message_id FROM next_queue;

-- name: unfollow_queue
DROP TRIGGER IF EXISTS next_queue_again;

-- name: drop_next_queue
DROP TABLE IF EXISTS next_queue;

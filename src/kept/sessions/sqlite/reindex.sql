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

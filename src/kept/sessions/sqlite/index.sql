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

-- name: check_words
INSERT INTO message_words (message_words) VALUES ('integrity-check');

-- name: check_substrings
INSERT INTO message_substrings (message_substrings) VALUES ('integrity-check');

-- name: missing
SELECT count(*) FROM messages WHERE id NOT IN (SELECT id FROM message_words_docsize);

-- name: missing_substrings
SELECT count(*) FROM messages WHERE id NOT IN (SELECT id FROM message_substrings_docsize);

-- name: left_over
SELECT count(*) FROM message_words_docsize WHERE id NOT IN (SELECT id FROM messages);

-- name: existing
SELECT name FROM sqlite_schema WHERE name IN ('message_words', 'message_substrings');

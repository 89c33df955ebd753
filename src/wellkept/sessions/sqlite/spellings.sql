-- name: create
CREATE TABLE IF NOT EXISTS message_spellings (bucket INTEGER PRIMARY KEY, words TEXT NOT NULL);

-- name: drop
DROP TABLE IF EXISTS message_spellings;

-- name: read
SELECT bucket, CAST(words AS TEXT) FROM message_spellings WHERE bucket IN (SELECT value FROM json_each(?));

-- name: write
INSERT INTO message_spellings (bucket, words) VALUES (?, ?) ON CONFLICT (bucket) DO UPDATE SET words = excluded.words;

-- name: read_all
-- one text for all: a row for each takes twice as long
SELECT group_concat(words, '') FROM message_spellings;

-- name: messages_with
-- a message may have another form of the word, without the letters; lower() knows the capitals of ASCII only
SELECT json_group_array(id) FROM (
  SELECT m.id FROM (
    SELECT rowid AS id FROM message_words WHERE message_words MATCH ?1 ORDER BY rowid DESC LIMIT ?5
  ) AS found CROSS JOIN messages AS m ON m.id = found.id
  WHERE instr(lower(m.content), ?2) OR (octet_length(m.content) <> length(m.content) AND m.content LIKE ?3) LIMIT ?4
);

-- name: messages_below
SELECT json_group_array(id) FROM (
  SELECT id FROM (SELECT id, content FROM messages WHERE id < ?1 ORDER BY id DESC LIMIT ?5)
  WHERE instr(lower(content), ?2) OR (octet_length(content) <> length(content) AND content LIKE ?3) LIMIT ?4
);

-- name: missing_below
-- words of messages below it are not listed; the list itself may be missing in an old file that cannot be written
SELECT (SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = 'spellings_missing_below'),
  EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'message_spellings');

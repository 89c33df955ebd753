-- name: check_words
INSERT INTO message_words (message_words) VALUES ('integrity-check');

-- name: missing
SELECT count(*) FROM messages
WHERE id NOT IN (SELECT id FROM message_words_docsize) AND id NOT IN (SELECT message_id FROM index_queue);

-- name: left_over
SELECT count(*) FROM message_words_docsize
WHERE id NOT IN (SELECT id FROM messages) AND id NOT IN (SELECT message_id FROM index_queue);

-- name: missing_below
SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = 'spellings_missing_below';

-- name: waiting
SELECT message_id FROM index_queue;

-- name: existing
SELECT name FROM sqlite_schema WHERE name IN ('message_words', 'message_spellings');

-- name: texts_of
SELECT id, CAST(role AS TEXT), iif(state = 'rewound', '', CAST(content AS TEXT)), origin,
       iif(state = 'rewound', NULL, CAST(tool_name AS TEXT)), iif(state = 'rewound', NULL, CAST(tool_calls AS TEXT))
FROM messages WHERE id IN (SELECT id FROM compared) AND id > ? ORDER BY id LIMIT ?;

-- name: sizes
SELECT id, length(content) + coalesce(length(tool_calls), 0) FROM messages;

-- name: create_compared
CREATE TEMP TABLE IF NOT EXISTS compared (id INTEGER PRIMARY KEY);

-- name: clear_compared
DELETE FROM compared;

-- name: add_compared
INSERT INTO compared (id) VALUES (?);

-- name: terms
-- the sums are as good as a comparison of the lists, and take a tenth of the time
SELECT term, count(*), sum(doc), sum(doc * doc % 1000003) FROM temp.terms WHERE doc IN (SELECT id FROM compared) GROUP BY term;

-- name: messages_of_term
SELECT doc FROM temp.terms WHERE term = ? AND doc IN (SELECT id FROM compared);

-- name: create_terms
CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'message_words', 'instance');

-- name: drop_terms
DROP TABLE IF EXISTS temp.terms;

-- name: lengths
SELECT id, sz FROM message_words_docsize WHERE id IN (SELECT id FROM compared) ORDER BY id;

-- name: totals
-- the record with the number of rows and of words (FTS5)
SELECT block FROM message_words_data WHERE id = 1;

-- name: is_astray
SELECT 1 FROM temp.terms WHERE doc NOT IN (SELECT id FROM messages) LIMIT 1;

-- name: total
SELECT count(*) FROM messages;

-- name: drop_compared
DROP TABLE IF EXISTS temp.compared;

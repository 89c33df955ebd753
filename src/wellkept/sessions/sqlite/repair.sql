-- name: roots
SELECT rootpage, name FROM sqlite_schema WHERE rootpage > 0;

-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0;

-- name: derived
SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 AND (
  name GLOB 'message_words_*' OR name = 'message_spellings' OR name GLOB 'message_trigrams_*' OR name GLOB 'message_substrings_*'
  OR name IN ('message_vectors', 'vector_state', 'index_queue', 'leases')
);

-- name: definition
SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?;

-- name: keep_vectors
INSERT OR IGNORE INTO next_vectors (seq, message_id, vectors)
SELECT ?1, ?2, ?3 WHERE typeof(?3) = 'blob' AND EXISTS (SELECT 1 FROM messages WHERE id = ?2);

-- name: rename_vectors
ALTER TABLE next_vectors RENAME TO message_vectors;

-- name: keep_sequence
-- the row of the old table stays, so that places are never given twice
DELETE FROM sqlite_sequence WHERE name = 'next_vectors';

-- name: indexed
-- their rows are known to be whole: what is wrong with one of them is wrong with its indexes
SELECT DISTINCT tbl_name FROM sqlite_schema WHERE type = 'index' AND rootpage > 0
  AND tbl_name NOT GLOB 'message_*' AND tbl_name NOT GLOB 'next_*' AND tbl_name NOT IN ('index_queue', 'leases');

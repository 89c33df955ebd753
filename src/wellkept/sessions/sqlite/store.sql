-- name: owe
INSERT INTO state_meta (key, value) VALUES ('erase_due', '1') ON CONFLICT (key) DO UPDATE SET value = '1';

-- name: owed
SELECT 1 FROM state_meta WHERE key = 'erase_due';

-- name: settle
DELETE FROM state_meta WHERE key = 'erase_due';

-- name: pieces
SELECT sum(pages), max(pages) FROM (SELECT count(*) AS pages FROM message_words_idx GROUP BY segid);

-- name: owe
INSERT INTO state_meta (key, value) VALUES ('erase_due', '1') ON CONFLICT (key) DO UPDATE SET value = '1';

-- name: owed
SELECT 1 FROM state_meta WHERE key = 'erase_due';

-- name: settle
DELETE FROM state_meta WHERE key = 'erase_due';

-- name: pieces
WITH pieces AS (
  SELECT 'words' AS name, count(*) AS pages FROM message_words_idx GROUP BY segid
  UNION ALL
  SELECT 'trigrams', count(*) FROM message_trigrams_idx GROUP BY segid
)
SELECT sum(pages), sum(largest) FROM (SELECT sum(pages) AS pages, max(pages) AS largest FROM pieces GROUP BY name);

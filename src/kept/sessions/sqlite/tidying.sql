-- name: pieces
WITH pieces AS (
  SELECT 'words' AS name, count(*) AS pages FROM message_words_idx GROUP BY segid
  UNION ALL
  SELECT 'substrings', count(*) FROM message_substrings_idx GROUP BY segid
)
SELECT sum(pages), sum(largest) FROM (SELECT sum(pages) AS pages, max(pages) AS largest FROM pieces GROUP BY name);

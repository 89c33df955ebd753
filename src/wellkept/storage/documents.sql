-- Only a server has this table; the pages of a folder are files elsewhere.

-- name: names
SELECT DISTINCT name FROM documents WHERE tenant = :tenant AND user_id = :user AND folder = ?;

-- name: parts
SELECT data FROM documents WHERE tenant = :tenant AND user_id = :user AND folder = ? AND name = ? ORDER BY part;

-- name: drop
DELETE FROM documents WHERE tenant = :tenant AND user_id = :user AND folder = ? AND name = ?;

-- name: add
INSERT INTO documents (tenant, user_id, folder, name, data) VALUES (:tenant, :user, ?, ?, ?);

-- name: rename
UPDATE documents SET name = ? WHERE tenant = :tenant AND user_id = :user AND folder = ? AND name = ?;

-- name: drop_everywhere
-- in the folder and below
DELETE FROM documents WHERE tenant = :tenant AND user_id = :user AND folder = ?1
  AND (name = ?2 OR right(name, length(?2) + 1) = '/' || ?2);

-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended(:tenant || chr(1) || :user || chr(1) || ?, 1));

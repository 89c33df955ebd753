-- name: lock
-- held until the end of the transaction, also while there is no row; readers do not ask for it
SELECT pg_advisory_xact_lock(
  hashtextextended(:tenant || chr(1) || :user || chr(1) || ?, 0));

-- name: read
SELECT raw, version FROM pages WHERE tenant = :tenant AND user_id = :user AND name = :name;

-- name: create
INSERT INTO pages (tenant, user_id, name, raw, version) VALUES (:tenant, :user, :name, :raw, 1)
ON CONFLICT DO NOTHING RETURNING version;

-- name: replace
UPDATE pages SET raw = :raw, version = version + 1
WHERE tenant = :tenant AND user_id = :user AND name = :name AND version = :expected RETURNING version;

-- name: projects
SELECT name FROM pages WHERE tenant = :tenant AND user_id = :user AND name LIKE 'project/%' ORDER BY name;

-- name: rename_page
UPDATE pages SET name = :new WHERE tenant = :tenant AND user_id = :user AND name = :old;

-- name: rename_copies
UPDATE page_copies SET name = :new WHERE tenant = :tenant AND user_id = :user AND name = :old;

-- name: copies
SELECT epoch, raw FROM page_copies WHERE tenant = :tenant AND user_id = :user AND name = :name ORDER BY epoch;

-- name: add_copy
INSERT INTO page_copies (tenant, user_id, name, epoch, raw) VALUES (:tenant, :user, :name, :epoch, :raw);

-- name: drop_copy
DELETE FROM page_copies WHERE tenant = :tenant AND user_id = :user AND name = :name AND epoch = :epoch;

-- name: allot
INSERT INTO ledger_numbers AS n (tenant, user_id, edit_id, write_id) VALUES (:tenant, :user, :count, 1)
ON CONFLICT (tenant, user_id) DO UPDATE SET edit_id = n.edit_id + :count, write_id = n.write_id + 1
RETURNING edit_id, write_id;

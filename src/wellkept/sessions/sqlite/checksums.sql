-- name: missing_to
SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = 'checksums_missing_to';

-- name: filled_to
SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = 'checksums_filled_to';

-- name: set_filled_to
INSERT INTO state_meta (key, value) VALUES ('checksums_filled_to', ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: forget_progress
DELETE FROM state_meta WHERE key IN ('checksums_missing_to', 'checksums_filled_to');

-- name: blobs_after
SELECT rowid, hash, data FROM blobs WHERE rowid > ? ORDER BY rowid LIMIT 1;

-- name: blob_users
SELECT u.message_id, coalesce(m.session_id, '') FROM blob_uses AS u LEFT JOIN messages AS m ON m.id = u.message_id
WHERE u.hash = ? ORDER BY u.message_id;

-- name: rows_missing
SELECT 1 FROM state_meta WHERE key = 'row_checksums_missing';

-- name: forget_rows_missing
DELETE FROM state_meta WHERE key = 'row_checksums_missing';

-- name: without_blob
SELECT DISTINCT m.id, m.session_id FROM blob_uses AS u JOIN messages AS m ON m.id = u.message_id
WHERE u.hash NOT IN (SELECT hash FROM blobs) ORDER BY m.id;

-- name: uses
SELECT message_id, hash FROM blob_uses;

-- name: parts_after
SELECT id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
  reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
FROM messages WHERE id > ? AND (parts IS NOT NULL OR id IN (SELECT message_id FROM blob_uses)) ORDER BY id LIMIT ?;

-- name: remove_uses
DELETE FROM blob_uses WHERE message_id = ?;

-- name: add_use
INSERT INTO blob_uses (message_id, hash) VALUES (?, ?);

-- name: missing_blobs
SELECT DISTINCT hash FROM blob_uses WHERE hash NOT IN (SELECT hash FROM blobs);

-- name: rename_blob
UPDATE blobs SET hash = ? WHERE rowid = ?;

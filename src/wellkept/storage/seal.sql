-- name: put_key
INSERT INTO state_meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: key
SELECT value FROM state_meta WHERE key = ?;

-- name: drop_key
DELETE FROM state_meta WHERE key = ?;

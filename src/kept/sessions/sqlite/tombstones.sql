-- name: salt
SELECT value FROM state_meta WHERE key = 'tombstone_salt';

-- name: make_salt
INSERT OR IGNORE INTO state_meta (key, value) VALUES ('tombstone_salt', ?);

-- name: add
INSERT OR IGNORE INTO tombstones (hash, forgotten) VALUES (?, ?);

-- name: has
SELECT 1 FROM tombstones WHERE hash = ?;

-- name: any
SELECT 1 FROM tombstones LIMIT 1;

-- name: add
INSERT INTO tokens (/*! tenant, */ id, user_id, name, scopes, created, expires, hash)
VALUES (/*! :tenant, */ ?, ?, ?, ?, ?, ?, ?);

-- name: every
SELECT id, user_id, name, scopes, created, expires, last_used, hash FROM tokens /*! WHERE tenant = :tenant */
ORDER BY created DESC, id;

-- name: one
SELECT id, user_id, name, scopes, created, expires, last_used, hash FROM tokens
WHERE /*! tenant = :tenant AND */ id = ?;

-- name: drop
DELETE FROM tokens WHERE /*! tenant = :tenant AND */ id = ?;

-- name: any_other
SELECT 1 FROM tokens WHERE /*! tenant = :tenant AND */ name <> ? LIMIT 1;

-- name: note_use
UPDATE tokens SET last_used = ? WHERE /*! tenant = :tenant AND */ id = ?;

-- name: links
SELECT key, value FROM state_meta WHERE /*! tenant = :tenant AND user_id = :user AND */ key LIKE ?;

-- name: value
SELECT value FROM state_meta WHERE /*! tenant = :tenant AND user_id = :user AND */ key = ?;

-- name: add_value
INSERT INTO state_meta (/*! tenant, user_id, */ key, value) VALUES (/*! :tenant, :user, */ ?, ?) ON CONFLICT DO NOTHING;

-- name: take_value
DELETE FROM state_meta WHERE /*! tenant = :tenant AND user_id = :user AND */ key = ? RETURNING value;

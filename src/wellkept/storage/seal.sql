-- name: put_key
INSERT INTO state_meta (/*! tenant, user_id, */ key, value) VALUES (/*! :tenant, :user, */ ?, ?)
ON CONFLICT (/*! tenant, user_id, */ key) DO UPDATE SET value = excluded.value;

-- name: key
SELECT value FROM state_meta WHERE /*! tenant = :tenant AND user_id = :user AND */ key = ?;

-- name: drop_key
DELETE FROM state_meta WHERE /*! tenant = :tenant AND user_id = :user AND */ key = ?;

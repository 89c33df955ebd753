-- name: put
INSERT INTO injections (/*! tenant, */ user_id, key, place, session_id, text, created)
VALUES (/*! :tenant, */ :user, :key, :place, :session, :text, :now)
ON CONFLICT (/*! tenant, */ user_id, key, place) DO UPDATE SET
  session_id = excluded.session_id, text = excluded.text, created = excluded.created;

-- name: of_key
SELECT place, session_id, text, created FROM injections
WHERE /*! tenant = :tenant AND */ user_id = :user AND key = :key AND (:place IS NULL OR place = :place);

-- name: old
SELECT user_id, key, place FROM injections WHERE /*! tenant = :tenant AND user_id = :user AND */ created < ? LIMIT ?;

-- name: drop
DELETE FROM injections WHERE /*! tenant = :tenant AND */ user_id = ? AND key = ? AND place = ?;

-- name: users
SELECT id FROM users WHERE tenant = :tenant ORDER BY id COLLATE "C";

-- name: highest_number
SELECT max(substr(title, :cut)::bigint) FROM sessions
WHERE tenant = :tenant AND user_id = :user AND title > :from AND title < :to AND substr(title, :cut) ~ '^[0-9]{1,18}$';

-- name: exists
SELECT s.trashed FROM session_owners AS o
LEFT JOIN sessions AS s ON s.tenant = :tenant AND s.user_id = :user AND s.id = o.id
WHERE o.tenant = :tenant AND o.id = ?;

-- Only a server that several hosts share has leases; times are the server's, because the clocks of hosts differ.

-- name: take
INSERT INTO leases AS l (tenant, user_id, name, holder, expires, fence)
VALUES (:tenant, :user, :name, :holder, extract(epoch FROM clock_timestamp()) + :seconds, 1)
ON CONFLICT (tenant, user_id, name) DO UPDATE SET holder = excluded.holder, expires = excluded.expires,
  fence = l.fence + CASE WHEN l.holder = excluded.holder THEN 0 ELSE 1 END
WHERE (l.holder = excluded.holder OR l.expires < extract(epoch FROM clock_timestamp())) AND :fence IN (0, l.fence)
RETURNING fence;

-- name: release
-- the row stays, so that the next holder gets the next number
UPDATE leases SET expires = 0 WHERE tenant = :tenant AND user_id = :user AND name = :name AND holder = :holder
  AND fence = :fence;

-- name: held
-- locks the row until the commit, so that nobody takes the lease in between
SELECT 1 FROM leases WHERE tenant = :tenant AND user_id = :user AND name = :name AND holder = :holder
  AND fence = :fence FOR SHARE;

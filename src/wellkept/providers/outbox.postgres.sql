-- name: make_lane
-- locks the lane until the commit: ids within a lane are then in the order in which they become visible
INSERT INTO outbox_lanes (tenant, provider, user_id) VALUES (:tenant, :lane, :user)
ON CONFLICT (tenant, user_id, provider) DO UPDATE SET provider = excluded.provider;

-- name: lease
SELECT lease_holder, lease_until FROM outbox_lanes
WHERE tenant = :tenant AND provider = :lane AND user_id = :user FOR UPDATE SKIP LOCKED;

-- name: enqueue
INSERT INTO outbox (provider, session_id, hook, payload, idempotency_key, created)
VALUES (:provider, :session_id, :hook, :payload, :idempotency_key, :created) ON CONFLICT DO NOTHING;

-- name: count
SELECT count(*) FROM outbox WHERE provider = :provider;

-- name: drop_oldest
DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE provider = :provider ORDER BY id LIMIT :count);

-- name: make_lane
INSERT INTO outbox_lanes (provider) VALUES (:provider) ON CONFLICT DO NOTHING;

-- name: count_dropped
UPDATE outbox_lanes SET dropped = dropped + :count WHERE provider = :provider;

-- name: count_delivered
UPDATE outbox_lanes SET delivered = delivered + 1 WHERE provider = :provider;

-- name: lane
SELECT lease_holder, lease_until FROM outbox_lanes WHERE provider = :provider;

-- name: lease
UPDATE outbox_lanes SET lease_holder = :holder, lease_until = :until WHERE provider = :provider;

-- name: release
UPDATE outbox_lanes SET lease_holder = NULL, lease_until = 0 WHERE provider = :provider AND lease_holder = :holder;

-- name: head
SELECT id, provider, session_id, hook, payload, idempotency_key, created, attempts, not_before, last_error
FROM outbox WHERE provider = :provider AND not_before < :never ORDER BY id LIMIT 1;

-- name: items
SELECT id, provider, session_id, hook, payload, idempotency_key, created, attempts, not_before, last_error
FROM outbox WHERE :provider IS NULL OR provider = :provider ORDER BY provider, id LIMIT :limit;

-- name: delete
DELETE FROM outbox WHERE id = :id;

-- name: failed
UPDATE outbox SET attempts = attempts + 1, not_before = :not_before, last_error = :error WHERE id = :id;

-- name: retry
UPDATE outbox SET not_before = 0
WHERE (:provider IS NULL OR provider = :provider) AND (:id IS NULL OR id = :id) RETURNING id;

-- name: drop
DELETE FROM outbox WHERE (:provider IS NULL OR provider = :provider) AND (:id IS NULL OR id = :id) RETURNING provider;

-- name: forget
DELETE FROM outbox WHERE session_id = :session_id RETURNING id;

-- name: waiting_of_session
SELECT count(*) FROM outbox WHERE provider = :provider AND session_id = :session_id AND not_before < :never;

-- name: lanes
SELECT l.provider, count(o.id) FILTER (WHERE o.not_before < :never),
  min(o.created) FILTER (WHERE o.not_before < :never), l.delivered, l.dropped,
  count(o.id) FILTER (WHERE o.not_before >= :never)
FROM outbox_lanes l LEFT JOIN outbox o ON o.provider = l.provider
GROUP BY l.provider ORDER BY l.provider;

-- name: cursor
SELECT ledger_id FROM outbox_lanes WHERE provider = :provider;

-- name: set_cursor
UPDATE outbox_lanes SET ledger_id = :ledger_id WHERE provider = :provider;

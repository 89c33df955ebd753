-- The column `provider` holds the name of the lane: `provider` for the owner, `provider/user` for anybody else.
-- Every statement also filters by user, so that no name given from outside reaches the lane of another user.

-- name: enqueue
INSERT INTO outbox (/*! tenant, */ provider, user_id, session_id, hook, payload, idempotency_key, created)
VALUES (/*! :tenant, */ :lane, :user, :session_id, :hook, :payload, :idempotency_key, :created) ON CONFLICT DO NOTHING;

-- name: count
SELECT count(*) FROM outbox WHERE /*! tenant = :tenant AND */ provider = :lane AND user_id = :user;

-- name: drop_oldest
DELETE FROM outbox WHERE /*! tenant = :tenant AND user_id = :user AND */ id IN (
  SELECT id FROM outbox WHERE /*! tenant = :tenant AND */ provider = :lane AND user_id = :user ORDER BY id LIMIT :count
);

-- name: make_lane
INSERT INTO outbox_lanes (provider, user_id) VALUES (:lane, :user) ON CONFLICT DO NOTHING;

-- name: count_dropped
UPDATE outbox_lanes SET dropped = dropped + :count
WHERE /*! tenant = :tenant AND */ provider = :lane AND user_id = :user;

-- name: count_delivered
UPDATE outbox_lanes SET delivered = delivered + 1
WHERE /*! tenant = :tenant AND */ provider = :lane AND user_id = :user;

-- name: lease
SELECT lease_holder, lease_until FROM outbox_lanes WHERE provider = :lane AND user_id = :user;

-- name: set_lease
UPDATE outbox_lanes SET lease_holder = :holder, lease_until = :until
WHERE /*! tenant = :tenant AND */ provider = :lane AND user_id = :user;

-- name: release
UPDATE outbox_lanes SET lease_holder = NULL, lease_until = 0
WHERE /*! tenant = :tenant AND */ provider = :lane AND user_id = :user AND lease_holder = :holder;

-- name: head
SELECT id, provider, session_id, hook, payload, idempotency_key, created, attempts, not_before, last_error
FROM outbox WHERE /*! tenant = :tenant AND */ provider = :lane AND user_id = :user AND not_before < :never
ORDER BY id LIMIT 1;

-- name: items
SELECT id, provider, session_id, hook, payload, idempotency_key, created, attempts, not_before, last_error
FROM outbox WHERE /*! tenant = :tenant AND */ user_id = :user AND (:lane IS NULL OR provider = :lane)
ORDER BY provider, id LIMIT :limit;

-- name: delete
DELETE FROM outbox WHERE /*! tenant = :tenant AND */ id = :id AND user_id = :user RETURNING id;

-- name: postpone
UPDATE outbox SET attempts = attempts + 1, not_before = :not_before, last_error = :error
WHERE /*! tenant = :tenant AND */ id = :id AND user_id = :user;

-- name: retry
UPDATE outbox SET not_before = 0
WHERE /*! tenant = :tenant AND */ user_id = :user AND (:lane IS NULL OR provider = :lane)
  AND (:id IS NULL OR id = :id) RETURNING id;

-- name: drop
DELETE FROM outbox
WHERE /*! tenant = :tenant AND */ user_id = :user AND (:lane IS NULL OR provider = :lane)
  AND (:id IS NULL OR id = :id) RETURNING provider;

-- name: forget
DELETE FROM outbox WHERE /*! tenant = :tenant AND */ session_id = :session_id AND user_id = :user RETURNING id;

-- name: waiting_of_session
SELECT count(*) FROM outbox
WHERE /*! tenant = :tenant AND */ provider = :lane AND user_id = :user AND session_id = :session_id
  AND not_before < :never;

-- name: lanes
SELECT l.provider, count(o.id) FILTER (WHERE o.not_before < :never),
  min(o.created) FILTER (WHERE o.not_before < :never), l.delivered, l.dropped,
  count(o.id) FILTER (WHERE o.not_before >= :never)
FROM outbox_lanes l LEFT JOIN outbox o ON /*! o.tenant = :tenant AND */ o.provider = l.provider AND o.user_id = :user
WHERE /*! l.tenant = :tenant AND */ l.user_id = :user
GROUP BY l.provider, l.delivered, l.dropped ORDER BY l.provider;

-- name: cursor
SELECT ledger_id FROM outbox_lanes WHERE /*! tenant = :tenant AND */ provider = :lane AND user_id = :user;

-- name: set_cursor
UPDATE outbox_lanes SET ledger_id = :ledger_id WHERE /*! tenant = :tenant AND */ provider = :lane AND user_id = :user;

-- The column `provider` of provider_health holds the name of the lane, as in the outbox: health is kept per user.

-- name: add
INSERT INTO provider_calls (/*! tenant, */ user_id, session_id, provider, call, started, seconds, outcome, bytes_out,
  bytes_in)
VALUES (/*! :tenant, */ :user, :session_id, :provider, :call, :started, :seconds, :outcome, :bytes_out, :bytes_in);

-- name: of_session
SELECT session_id, provider, call, started, seconds, outcome, bytes_out, bytes_in
FROM provider_calls WHERE /*! tenant = :tenant AND */ session_id = :session_id AND user_id = :user ORDER BY id;

-- name: prune
DELETE FROM provider_calls WHERE /*! tenant = :tenant AND user_id = :user AND */ started < :before;

-- name: forget
DELETE FROM provider_calls WHERE /*! tenant = :tenant AND */ session_id = :session_id AND user_id = :user RETURNING id;

-- name: resume
UPDATE provider_health SET paused_until = 0, failures = 0
WHERE /*! tenant = :tenant AND */ user_id = :user AND (:lane IS NULL OR provider = :lane);

-- name: since
SELECT provider, call, seconds, outcome, bytes_out, bytes_in
FROM provider_calls WHERE /*! tenant = :tenant AND */ started >= :since AND user_id = :user;

-- name: count_outcome
SELECT count(*) FROM provider_calls
WHERE /*! tenant = :tenant AND */ started >= :since AND user_id = :user AND provider = :provider AND outcome = :outcome;

-- name: set_health
INSERT INTO provider_health (/*! tenant, */ provider, user_id, failures, paused_until, last_error, last_error_at,
  last_success_at)
VALUES (/*! :tenant, */ :lane, :user, :failures, :paused_until, :last_error, :last_error_at, :last_success_at)
ON CONFLICT (/*! tenant, user_id, */ provider) DO UPDATE SET failures = excluded.failures,
  paused_until = excluded.paused_until, last_error = excluded.last_error, last_error_at = excluded.last_error_at,
  last_success_at = excluded.last_success_at;

-- name: health
SELECT failures, paused_until, last_error, last_error_at, last_success_at
FROM provider_health WHERE /*! tenant = :tenant AND */ provider = :lane AND user_id = :user;

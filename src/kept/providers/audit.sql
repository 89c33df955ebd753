-- name: add
INSERT INTO provider_calls (session_id, provider, call, started, seconds, outcome, bytes_out, bytes_in)
VALUES (:session_id, :provider, :call, :started, :seconds, :outcome, :bytes_out, :bytes_in);

-- name: of_session
SELECT session_id, provider, call, started, seconds, outcome, bytes_out, bytes_in
FROM provider_calls WHERE session_id = :session_id ORDER BY id;

-- name: prune
DELETE FROM provider_calls WHERE started < :before;

-- name: forget
DELETE FROM provider_calls WHERE session_id = :session_id RETURNING id;

-- name: resume
UPDATE provider_health SET paused_until = 0, failures = 0 WHERE :provider IS NULL OR provider = :provider;

-- name: since
SELECT provider, call, seconds, outcome, bytes_out, bytes_in FROM provider_calls WHERE started >= :since;

-- name: set_health
INSERT INTO provider_health (provider, failures, paused_until, last_error, last_error_at, last_success_at)
VALUES (:provider, :failures, :paused_until, :last_error, :last_error_at, :last_success_at)
ON CONFLICT (provider) DO UPDATE SET failures = excluded.failures, paused_until = excluded.paused_until,
  last_error = excluded.last_error, last_error_at = excluded.last_error_at, last_success_at = excluded.last_success_at;

-- name: health
SELECT failures, paused_until, last_error, last_error_at, last_success_at FROM provider_health WHERE provider = :provider;

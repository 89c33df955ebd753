-- name: add
INSERT INTO platform_messages (/*! tenant, */ platform, delivery, user_id, state, received, message, answer, session_id)
VALUES (/*! :tenant, */ ?, ?, ?, ?, ?, ?, '', '');

-- name: set
UPDATE platform_messages SET state = ?, message = ?, answer = ?, session_id = ?
WHERE /*! tenant = :tenant AND */ platform = ? AND delivery = ? AND user_id = ?;

-- name: one
SELECT platform, delivery, user_id, state, message, answer, session_id, received FROM platform_messages
WHERE /*! tenant = :tenant AND */ platform = ? AND delivery = ?;

-- name: own
SELECT platform, delivery, user_id, state, message, answer, session_id, received FROM platform_messages
WHERE /*! tenant = :tenant AND */ platform = ? AND delivery = ? AND user_id = ?;

-- name: drop
DELETE FROM platform_messages WHERE /*! tenant = :tenant AND */ platform = ? AND delivery = ? AND user_id = ?;

-- name: unfinished
SELECT platform, delivery, user_id, state, message, answer, session_id, received FROM platform_messages
WHERE /*! tenant = :tenant AND */ state IN ('received', 'running', 'answered') ORDER BY received, delivery;

-- name: count_unfinished
SELECT count(*) FROM platform_messages WHERE /*! tenant = :tenant AND */ state IN ('received', 'running', 'answered');

-- name: blank_finished
UPDATE platform_messages SET message = '', answer = ''
WHERE /*! tenant = :tenant AND */ state IN ('sent', 'failed') AND received < ? AND message <> '';

-- name: drop_finished
DELETE FROM platform_messages WHERE /*! tenant = :tenant AND */ state IN ('sent', 'failed') AND received < ?;

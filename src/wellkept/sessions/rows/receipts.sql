-- name: add
INSERT INTO receipts (
  /*! tenant, */ user_id, created, kind, client, query, session_id, project, candidates, tokens, milliseconds
) VALUES (
  /*! :tenant, */ :user, :created, :kind, :client, :query, :session, :project, :candidates, :tokens, :milliseconds
) RETURNING id;

-- name: add_item
INSERT INTO receipt_items (/*! tenant, user_id, */ receipt_id, position, message_id, session_id, page, score, parts)
VALUES (/*! :tenant, :user, */ ?, ?, ?, ?, ?, ?, ?);

-- name: list
SELECT id, created, kind, client, query, session_id, project, candidates, tokens, milliseconds FROM receipts
WHERE /*! tenant = :tenant AND */ user_id = :user AND id < :before
  AND (:kind IS NULL OR kind = :kind) AND (:client IS NULL OR client = :client)
  AND (:session IS NULL OR session_id = :session)
ORDER BY id DESC LIMIT :limit;

-- name: one
SELECT id, created, kind, client, query, session_id, project, candidates, tokens, milliseconds FROM receipts
WHERE /*! tenant = :tenant AND */ user_id = ? AND id = ?;

-- name: items
SELECT receipt_id, message_id, session_id, page, score, parts FROM receipt_items
WHERE receipt_id IN (SELECT value FROM json_each(?)) ORDER BY receipt_id, position;

-- name: marks
SELECT receipt_id, message_id, mark FROM receipt_marks
WHERE user_id = ? AND receipt_id IN (SELECT value FROM json_each(?));

-- name: mark
INSERT INTO receipt_marks (/*! tenant, */ user_id, receipt_id, message_id, mark, created)
VALUES (/*! :tenant, */ :user, :receipt, :message, :mark, :now)
ON CONFLICT (/*! tenant, */ user_id, receipt_id, message_id) DO UPDATE SET
  mark = excluded.mark, created = excluded.created;

-- name: unmark
DELETE FROM receipt_marks WHERE /*! tenant = :tenant AND */ user_id = :user AND receipt_id = :receipt
  AND (:message IS NULL OR message_id = :message);

-- name: never
SELECT DISTINCT message_id FROM receipt_marks
WHERE /*! tenant = :tenant AND */ user_id = ? AND mark = 'never' AND message_id <> 0;

-- name: expired
SELECT id FROM receipts WHERE /*! tenant = :tenant AND user_id = :user AND */ created < ? LIMIT ?;

-- name: of_user
SELECT id FROM receipts WHERE /*! tenant = :tenant AND */ user_id = ?;

-- name: of_session
SELECT id FROM receipts WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

-- name: queries
SELECT id, query FROM receipts WHERE /*! tenant = :tenant AND */ user_id = ? AND query <> '';

-- name: drop_items
DELETE FROM receipt_items WHERE /*! tenant = :tenant AND user_id = :user AND */ receipt_id = ?;

-- name: drop
DELETE FROM receipts WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: drop_marks
-- marks of messages stay when a receipt expires; marks of the receipt as a whole mean nothing without it
DELETE FROM receipt_marks WHERE /*! tenant = :tenant AND user_id = :user AND */ receipt_id = ?1
  AND (message_id = 0 OR mark <> 'never');

-- name: drop_all_marks
DELETE FROM receipt_marks WHERE /*! tenant = :tenant AND */ user_id = ?;

-- name: drop_items_of_message
DELETE FROM receipt_items WHERE /*! tenant = :tenant AND user_id = :user AND */ message_id = ?;

-- name: drop_marks_of_message
DELETE FROM receipt_marks WHERE /*! tenant = :tenant AND user_id = :user AND */ message_id = ?;

-- name: drop_items_of_session
DELETE FROM receipt_items WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

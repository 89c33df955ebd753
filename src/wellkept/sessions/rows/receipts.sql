-- name: add
INSERT INTO receipts (user_id, created, kind, client, query, session_id, project, candidates, tokens, milliseconds)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id;

-- name: add_item
INSERT INTO receipt_items (receipt_id, position, message_id, session_id, page, score, parts)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: list
SELECT id, created, kind, client, query, session_id, project, candidates, tokens, milliseconds FROM receipts
WHERE user_id = :user AND id < :before
  AND (:kind IS NULL OR kind = :kind) AND (:client IS NULL OR client = :client)
  AND (:session IS NULL OR session_id = :session)
ORDER BY id DESC LIMIT :limit;

-- name: one
SELECT id, created, kind, client, query, session_id, project, candidates, tokens, milliseconds FROM receipts
WHERE user_id = ? AND id = ?;

-- name: items
SELECT receipt_id, message_id, session_id, page, score, parts FROM receipt_items
WHERE receipt_id IN (SELECT value FROM json_each(?)) ORDER BY receipt_id, position;

-- name: marks
SELECT receipt_id, message_id, mark FROM receipt_marks
WHERE user_id = ? AND receipt_id IN (SELECT value FROM json_each(?));

-- name: mark
INSERT INTO receipt_marks (user_id, receipt_id, message_id, mark, created) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (user_id, receipt_id, message_id) DO UPDATE SET mark = excluded.mark, created = excluded.created;

-- name: unmark
DELETE FROM receipt_marks WHERE user_id = :user AND receipt_id = :receipt
  AND (:message IS NULL OR message_id = :message);

-- name: never
SELECT DISTINCT message_id FROM receipt_marks WHERE user_id = ? AND mark = 'never' AND message_id <> 0;

-- name: expired
SELECT id FROM receipts WHERE created < ? LIMIT ?;

-- name: of_user
SELECT id FROM receipts WHERE user_id = ?;

-- name: of_session
SELECT id FROM receipts WHERE session_id = ?;

-- name: queries
SELECT id, query FROM receipts WHERE user_id = ? AND query <> '';

-- name: drop_items
DELETE FROM receipt_items WHERE receipt_id = ?;

-- name: drop
DELETE FROM receipts WHERE id = ?;

-- name: drop_marks
-- marks of messages stay when a receipt expires; marks of the receipt as a whole mean nothing without it
DELETE FROM receipt_marks WHERE receipt_id = ?1 AND (message_id = 0 OR mark <> 'never');

-- name: drop_all_marks
DELETE FROM receipt_marks WHERE user_id = ?;

-- name: drop_items_of_message
DELETE FROM receipt_items WHERE message_id = ?;

-- name: drop_marks_of_message
DELETE FROM receipt_marks WHERE message_id = ?;

-- name: drop_items_of_session
DELETE FROM receipt_items WHERE session_id = ?;

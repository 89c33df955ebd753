-- name: items
SELECT receipt_id, message_id, session_id, page, score, parts FROM receipt_items
WHERE tenant = :tenant AND user_id = :user AND receipt_id IN (SELECT json_array_elements_text(?::json)::bigint)
ORDER BY receipt_id, position;

-- name: marks
SELECT receipt_id, message_id, mark FROM receipt_marks
WHERE tenant = :tenant AND user_id = ? AND receipt_id IN (SELECT json_array_elements_text(?::json)::bigint);

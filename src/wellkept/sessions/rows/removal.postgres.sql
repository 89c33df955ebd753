-- name: borrowed
SELECT DISTINCT c.message_id, c.session_id FROM carried AS c JOIN messages AS m ON m.id = c.message_id
WHERE m.session_id = ?1 AND c.session_id <> ?1 AND c.session_id NOT IN (SELECT json_array_elements_text(?2::json));

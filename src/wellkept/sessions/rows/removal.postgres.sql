-- name: borrowed
SELECT DISTINCT c.message_id, c.session_id FROM carried AS c
JOIN messages AS m ON m.tenant = :tenant AND m.user_id = :user AND m.id = c.message_id
WHERE c.tenant = :tenant AND c.user_id = :user AND m.session_id = ?1 AND c.session_id <> ?1 AND c.session_id NOT IN
  (SELECT json_array_elements_text(?2::json));

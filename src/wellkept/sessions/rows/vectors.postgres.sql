-- The tables exist since a migration, with one model for each user.

-- name: create_vectors
SELECT 1;

-- name: create_state
SELECT 1;

-- name: create_trigger
SELECT 1;

-- name: exists
SELECT 1;

-- name: state
SELECT model FROM vector_state WHERE tenant = :tenant AND user_id = :user;

-- name: claim
-- writers of one user wait for each other, so that numbers become visible in their order
SELECT model FROM vector_state WHERE tenant = :tenant AND user_id = :user FOR UPDATE;

-- name: set_state
INSERT INTO vector_state (tenant, user_id, model) VALUES (:tenant, :user, ?)
ON CONFLICT (tenant, user_id) DO UPDATE SET model = excluded.model;

-- name: put
INSERT INTO message_vectors (tenant, user_id, message_id, vectors)
SELECT :tenant, :user, :number, :vectors
WHERE EXISTS (SELECT 1 FROM messages WHERE tenant = :tenant AND user_id = :user AND id = :number AND content = :content)
ON CONFLICT DO NOTHING;

-- name: of_messages
SELECT message_id, vectors FROM message_vectors
WHERE tenant = :tenant AND user_id = :user AND message_id IN (SELECT json_array_elements_text(?::json)::bigint);

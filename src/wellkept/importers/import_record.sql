-- name: begin
INSERT INTO imports (/*! tenant, */ id, user_id, source, started)
VALUES (/*! :tenant, */ :id, :user, :source, :now) RETURNING number;

-- name: finish
UPDATE imports SET finished = :now, counts = :counts, folder = :folder
WHERE /*! tenant = :tenant AND user_id = :user AND */ number = :number;

-- name: discard
DELETE FROM imports WHERE /*! tenant = :tenant AND user_id = :user AND */ number = :number;

-- name: imports
SELECT number, id, source, started, finished, undone, counts, folder FROM imports
WHERE /*! tenant = :tenant AND */ user_id = :user ORDER BY number DESC;

-- name: set_undone
UPDATE imports SET undone = :now WHERE /*! tenant = :tenant AND user_id = :user AND */ number = :number;

-- name: items
SELECT kind, name, part, mark, state, place, import_number FROM imported_items
WHERE /*! tenant = :tenant AND */ user_id = :user AND source = :source ORDER BY kind, name, part;

-- name: drop_parts
DELETE FROM imported_items WHERE /*! tenant = :tenant AND */ user_id = :user AND source = :source AND kind = :kind
  AND name = :name;

-- name: put
INSERT INTO imported_items (/*! tenant, */ user_id, source, kind, name, part, mark, state, place, import_number)
VALUES (/*! :tenant, */ :user, :source, :kind, :name, :part, :mark, :state, :place, :number)
ON CONFLICT (/*! tenant, */ user_id, source, kind, name, part) DO UPDATE SET mark = excluded.mark,
  state = excluded.state, place = excluded.place, import_number = excluded.import_number;

-- name: drop_items
DELETE FROM imported_items WHERE /*! tenant = :tenant AND */ user_id = :user AND import_number = :number;

-- name: count_messages
SELECT count(*) FROM captured_messages AS c
JOIN messages AS m ON /*! m.tenant = :tenant AND m.user_id = :user AND */ m.id = c.message_id
WHERE /*! c.tenant = :tenant AND c.user_id = :user AND */ c.import_number = :number;

-- name: sessions
SELECT session_id FROM captured_sessions WHERE /*! tenant = :tenant AND */ user_id = :user AND import_number = :number;

-- name: some_messages
SELECT key, message_id FROM captured_messages
WHERE /*! tenant = :tenant AND user_id = :user AND */ import_number = :number AND message_id > 0 AND key > :after
ORDER BY key LIMIT :limit;

-- name: drop_keys
DELETE FROM captured_messages WHERE key IN (SELECT unhex(value) FROM json_each(?));

-- name: drop_usage_keys
-- a key of a withdrawal has the negative id of the first message that it rewound
DELETE FROM captured_messages WHERE /*! tenant = :tenant AND user_id = :user AND */ (
  (import_number = :number AND message_id = 0) OR (message_id < 0 AND NOT EXISTS (
    SELECT 1 FROM messages AS m WHERE /*! m.tenant = :tenant AND m.user_id = :user AND */ m.id = -message_id)));

-- name: usage
SELECT day, model, task, session_id, calls, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens
FROM imported_usage WHERE /*! tenant = :tenant AND user_id = :user AND */ import_number = :number;

-- name: drop_usage
DELETE FROM imported_usage WHERE /*! tenant = :tenant AND user_id = :user AND */ import_number = :number;

-- name: drop_sessions
DELETE FROM captured_sessions WHERE user_id = :user AND session_id IN (SELECT value FROM json_each(:listed));

-- name: drop_turns
DELETE FROM captured_turns WHERE user_id = :user AND client = :source AND external_id IN (
  SELECT external_id FROM captured_sessions WHERE user_id = :user AND client = :source
    AND session_id IN (SELECT value FROM json_each(:listed))
);

-- name: reset_positions
DELETE FROM transcripts WHERE /*! tenant = :tenant AND */ user_id = :user AND client = :source;

-- name: known
SELECT key, message_id, mark FROM captured_messages WHERE key IN (SELECT unhex(value) FROM json_each(?));

-- name: remember
-- a replacement belongs to the import that first stored the message
INSERT INTO captured_messages (/*! tenant, user_id, */ key, message_id, mark, import_number)
VALUES (/*! :tenant, :user, */ ?, ?, ?, ?)
ON CONFLICT (/*! tenant, user_id, */ key) DO UPDATE SET message_id = excluded.message_id, mark = excluded.mark;

-- name: session
SELECT session_id, title FROM captured_sessions
WHERE /*! tenant = :tenant AND */ user_id = :user AND client = :client AND external_id = :external;

-- name: add_session
INSERT INTO captured_sessions (/*! tenant, */ user_id, client, external_id, session_id, waits_for, title, captured,
  import_number)
VALUES (/*! :tenant, */ :user, :client, :external, :session, :waits_for, :title, :now, :import);

-- name: set_title
UPDATE captured_sessions SET title = :title
WHERE /*! tenant = :tenant AND */ user_id = :user AND client = :client AND external_id = :external;

-- name: touch_session
UPDATE captured_sessions SET captured = :now
WHERE /*! tenant = :tenant AND */ user_id = :user AND client = :client AND external_id = :external;

-- name: waiting_children
UPDATE captured_sessions SET waits_for = NULL
WHERE /*! tenant = :tenant AND */ user_id = :user AND client = :client AND waits_for = :external
RETURNING session_id;

-- name: turns
SELECT turn, prompt, messages FROM captured_turns
WHERE /*! tenant = :tenant AND */ user_id = :user AND client = :client AND external_id = :external AND messages <> '[]';

-- name: turn
SELECT messages FROM captured_turns
WHERE /*! tenant = :tenant AND */ user_id = :user AND client = :client AND external_id = :external AND turn = :turn;

-- name: write_turn
INSERT INTO captured_turns (/*! tenant, */ user_id, client, external_id, turn, prompt, messages)
VALUES (/*! :tenant, */ :user, :client, :external, :turn, :prompt, :messages)
ON CONFLICT (/*! tenant, */ user_id, client, external_id, turn) DO UPDATE SET messages = excluded.messages;

-- name: position
SELECT position, check_bytes, state FROM transcripts
WHERE /*! tenant = :tenant AND */ user_id = :user AND client = :client AND path = :path;

-- name: read_times
SELECT path, read_at FROM transcripts WHERE /*! tenant = :tenant AND */ user_id = :user AND client = :client;

-- name: save_position
INSERT INTO transcripts (/*! tenant, */ user_id, client, path, position, check_bytes, state, waiting_bytes, read_at)
VALUES (/*! :tenant, */ :user, :client, :path, :position, :check, :state, :waiting, :now)
ON CONFLICT (/*! tenant, */ user_id, client, path) DO UPDATE SET
  position = excluded.position, check_bytes = excluded.check_bytes, state = excluded.state,
  waiting_bytes = excluded.waiting_bytes, read_at = excluded.read_at;

-- name: health
SELECT c.client, count(*), max(c.captured) FROM captured_sessions AS c
JOIN sessions AS s ON /*! s.tenant = :tenant AND s.user_id = :user AND */ s.id = c.session_id AND s.trashed IS NULL
WHERE /*! c.tenant = :tenant AND */ c.user_id = :user GROUP BY c.client ORDER BY c.client;

-- name: waiting
SELECT client, sum(waiting_bytes), max(read_at) FROM transcripts
WHERE /*! tenant = :tenant AND */ user_id = :user GROUP BY client;

-- name: oldest
SELECT s.id, coalesce(s.last_active, s.started),
  (SELECT coalesce(sum(octet_length(m.content) + coalesce(octet_length(m.tool_calls), 0)
    + coalesce(octet_length(m.reasoning), 0)), 0) FROM messages AS m
    WHERE /*! m.tenant = :tenant AND m.user_id = :user AND */ m.session_id = s.id)
FROM captured_sessions AS c
JOIN sessions AS s ON /*! s.tenant = :tenant AND */ s.id = c.session_id AND s.user_id = :user
WHERE /*! c.tenant = :tenant AND */ c.user_id = :user AND s.trashed IS NULL
ORDER BY coalesce(s.last_active, s.started);

-- name: release
DELETE FROM captured_sessions WHERE /*! tenant = :tenant AND */ user_id = :user AND session_id = :session;

-- name: pruned
SELECT value FROM state_meta WHERE /*! tenant = :tenant AND user_id = :user AND */ key = :key;

-- name: write_pruned
INSERT INTO state_meta (/*! tenant, user_id, */ key, value) VALUES (/*! :tenant, :user, */ :key, :value)
ON CONFLICT (/*! tenant, user_id, */ key) DO UPDATE SET value = excluded.value;

-- name: count_usage
INSERT INTO imported_usage (
  /*! tenant, user_id, */
  import_number, session_id, day, model, task, calls, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens
) VALUES (/*! :tenant, :user, */ ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)
ON CONFLICT (/*! tenant, user_id, */ import_number, session_id, day, model, task) DO UPDATE SET
  calls = imported_usage.calls + 1,
  input_tokens = imported_usage.input_tokens + excluded.input_tokens,
  output_tokens = imported_usage.output_tokens + excluded.output_tokens,
  cache_read_tokens = imported_usage.cache_read_tokens + excluded.cache_read_tokens,
  cache_write_tokens = imported_usage.cache_write_tokens + excluded.cache_write_tokens;

-- name: clients
SELECT DISTINCT client FROM transcripts WHERE /*! tenant = :tenant AND */ user_id = :user ORDER BY client;

-- name: of_user
SELECT client, external_id, session_id, title, captured FROM captured_sessions
WHERE /*! tenant = :tenant AND */ user_id = :user;

-- name: messages_of_user
SELECT c.key, c.message_id, c.mark FROM captured_messages AS c
JOIN messages AS m ON /*! m.tenant = :tenant AND m.user_id = :user AND */ m.id = c.message_id
JOIN sessions AS s ON /*! s.tenant = :tenant AND */ s.id = m.session_id AND s.user_id = :user
/*! WHERE c.tenant = :tenant AND c.user_id = :user */;

-- name: take_session
INSERT INTO captured_sessions (/*! tenant, */ user_id, client, external_id, session_id, title, captured)
SELECT /*! :tenant, */ :user, :client, :external, id, :title, :now FROM sessions
WHERE /*! tenant = :tenant AND */ id = :session AND user_id = :user
ON CONFLICT DO NOTHING;

-- name: take_message
INSERT INTO captured_messages (/*! tenant, user_id, */ key, message_id, mark) VALUES (/*! :tenant, :user, */ ?, ?, ?)
ON CONFLICT DO NOTHING;

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

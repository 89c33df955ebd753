-- name: insert
INSERT INTO sessions (
  /*! tenant, */ user_id, id, source, started, profile, project, model, title, parent_session_id, link, ended, end_reason,
  archived, last_active, message_count, metadata
) VALUES (
  /*! :tenant, */ :user, :id, :source, :started, :profile, :project, :model, :title, :parent_session_id, :link, :ended,
  :end_reason, :archived, :last_active, 0, :metadata
);

-- name: one
SELECT id, source, started, user_id, profile, project, model, title, parent_session_id, link, ended, end_reason,
  archived, last_active, message_count, metadata
FROM sessions WHERE /*! tenant = :tenant AND */ id = ? AND user_id = ? AND trashed IS NULL;

-- name: exists
SELECT trashed FROM sessions WHERE id = ?;

-- name: users
WITH RECURSIVE each_user (name) AS (
  SELECT min(user_id) FROM sessions WHERE user_id > '' -- not the sessions in quarantine
  UNION ALL
  SELECT (SELECT min(user_id) FROM sessions WHERE user_id > name) FROM each_user WHERE name IS NOT NULL
)
SELECT name FROM each_user WHERE name IS NOT NULL;

-- name: recent
SELECT id, source, started, user_id, profile, project, model, title, parent_session_id, link, ended, end_reason,
  archived, last_active, message_count, metadata
FROM sessions
WHERE /*! tenant = :tenant AND */ user_id = :user AND trashed IS NULL AND archived <= :archived
  AND (:source IS NULL AND source NOT IN ('subagent', 'tool', 'review') OR source = :source)
  AND (:project IS NULL OR project = :project)
  AND (:since IS NULL OR last_active >= :since) AND (:until IS NULL OR last_active < :until)
ORDER BY last_active DESC NULLS LAST, id DESC LIMIT :limit OFFSET :offset;

-- name: totals
SELECT count(*), coalesce(sum(message_count), 0) FROM sessions
WHERE /*! tenant = :tenant AND */ user_id = ? AND trashed IS NULL;

-- name: in_trash
SELECT id, source, started, user_id, profile, project, model, title, parent_session_id, link, ended, end_reason,
  archived, last_active, message_count, metadata
FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ? AND trashed IS NOT NULL ORDER BY trashed DESC;

-- name: due
SELECT id FROM sessions WHERE /*! tenant = :tenant AND */ trashed <= ? AND user_id = ? ORDER BY trashed DESC;

-- name: due_of_others
SELECT id FROM sessions WHERE /*! tenant = :tenant AND user_id = :user AND */ trashed <= ? AND user_id <> ?
ORDER BY trashed DESC;

-- name: end
UPDATE sessions SET ended = ?, end_reason = ?
WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ? AND ended IS NULL;

-- name: reopen
UPDATE sessions SET ended = NULL, end_reason = NULL WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: archive
UPDATE sessions SET archived = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: trash
UPDATE sessions SET trashed = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ? AND trashed IS NULL;

-- name: untrash
UPDATE sessions SET trashed = NULL WHERE /*! tenant = :tenant AND */ id = ? AND user_id = ? AND trashed IS NOT NULL;

-- name: title_taken
SELECT id FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ? AND title = ?;

-- name: highest_number
SELECT max(CAST(substr(title, :cut) AS INTEGER)) FROM sessions
WHERE user_id = :user AND title > :from AND title < :to AND substr(title, :cut) NOT GLOB '*[^0-9]*';

-- name: set_title
UPDATE sessions SET title = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: prompt
SELECT p.text FROM sessions AS s JOIN prompts AS p ON /*! p.tenant = :tenant AND p.user_id = :user AND */
  p.hash = s.prompt_hash WHERE /*! s.tenant = :tenant AND s.user_id = :user AND */ s.id = ?;

-- name: insert_prompt
INSERT INTO prompts (/*! tenant, user_id, */ hash, text) VALUES (/*! :tenant, :user, */ ?, ?) ON CONFLICT DO NOTHING;

-- name: set_prompt
UPDATE sessions SET prompt_hash = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: drop_unused_prompt
DELETE FROM prompts WHERE /*! tenant = :tenant AND user_id = :user AND */ hash = ?1 AND NOT EXISTS (
  SELECT 1 FROM sessions WHERE /*! tenant = :tenant AND user_id = :user AND */ prompt_hash = ?1);

-- name: prompt_hash
SELECT prompt_hash FROM sessions WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: by_title
SELECT id FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ? AND title = ? AND trashed IS NULL LIMIT 6;

-- name: by_prefix
SELECT id FROM sessions WHERE /*! tenant = :tenant AND */ id >= ? AND id < ? AND user_id = ?
  AND trashed IS NULL LIMIT 6;

-- name: note
INSERT INTO notes (/*! tenant, user_id, */ session_id, key, value) VALUES (/*! :tenant, :user, */ ?, ?, ?)
ON CONFLICT (/*! tenant, user_id, */ session_id, key) DO UPDATE SET value = excluded.value;

-- name: forget_note
DELETE FROM notes WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ? AND key = ?;

-- name: noted
SELECT value FROM notes WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ? AND key = ?;

-- name: lease
INSERT INTO leases (/*! tenant, user_id, */ name, holder, expires) VALUES (/*! :tenant, :user, */ ?, ?, ?)
ON CONFLICT (/*! tenant, user_id, */ name) DO UPDATE SET holder = excluded.holder, expires = excluded.expires;

-- name: held_lease
SELECT holder, expires FROM leases WHERE /*! tenant = :tenant AND user_id = :user AND */ name = ?;

-- name: release
DELETE FROM leases WHERE /*! tenant = :tenant AND user_id = :user AND */ name = ? AND holder = ?;

-- name: add_usage
INSERT INTO usage (
  /*! tenant, */ user_id, session_id, day, model, task, api_call_count,
  input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost
) VALUES (
  /*! :tenant, */ :user, :session, :day, :model, :task, 1,
  :input_tokens, :output_tokens, :cache_read_tokens, :cache_write_tokens, :cost
)
ON CONFLICT (/*! tenant, */ user_id, session_id, day, model, task) DO UPDATE SET
  api_call_count = usage.api_call_count + 1,
  input_tokens = usage.input_tokens + excluded.input_tokens,
  output_tokens = usage.output_tokens + excluded.output_tokens,
  cache_read_tokens = usage.cache_read_tokens + excluded.cache_read_tokens,
  cache_write_tokens = usage.cache_write_tokens + excluded.cache_write_tokens,
  cost = CASE WHEN usage.cost IS NULL THEN excluded.cost ELSE usage.cost + coalesce(excluded.cost, 0) END;

-- name: usage
SELECT day, model, task, session_id, api_call_count,
  input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost
FROM usage WHERE /*! tenant = :tenant AND */ user_id = :user AND (:session IS NULL OR session_id = :session)
  AND day >= :since ORDER BY day, model, task;

-- name: add_node
INSERT INTO nodes (/*! tenant, user_id, */ session_id, depth, text, children, created)
VALUES (/*! :tenant, :user, */ ?, ?, ?, ?, ?) RETURNING id;

-- name: nodes
SELECT id, depth, text, children FROM nodes
WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ? ORDER BY id;

-- name: quarantine
SELECT id, source, started, user_id, profile, project, model, title, parent_session_id, link, ended, end_reason,
  archived, last_active, message_count, metadata
FROM sessions WHERE /*! tenant = :tenant AND */ user_id = ? ORDER BY id;

-- name: give
UPDATE sessions SET user_id = ? WHERE /*! tenant = :tenant AND */ id = ? AND user_id = ?;

-- name: recount
UPDATE sessions SET
  message_count = (SELECT count(*) FROM messages
    WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = sessions.id AND state <> 'rewound'),
  last_active = coalesce((SELECT max(timestamp) FROM messages
    WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = sessions.id), last_active)
WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

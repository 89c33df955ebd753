-- name: add_text
SELECT index_text(?, ?, ?, ?);

-- name: not_gone
DELETE FROM gone_messages WHERE tenant = :tenant AND user_id = :user AND message_id = ANY(:ids);

-- name: drop_words
DELETE FROM fresh_words WHERE tenant = :tenant AND user_id = :user AND message_id = ANY(:ids);

-- name: drop_substrings
DELETE FROM fresh_substrings WHERE tenant = :tenant AND user_id = :user AND message_id = ANY(:ids);

-- name: set_gone
INSERT INTO gone_messages (tenant, user_id, message_id) SELECT :tenant, :user, unnest(:ids::bigint[])
ON CONFLICT DO NOTHING;

-- name: queue
INSERT INTO index_queue (tenant, user_id, message_id) SELECT :tenant, :user, unnest(:ids::bigint[])
ON CONFLICT DO NOTHING;

-- name: done
DELETE FROM index_queue WHERE tenant = :tenant AND user_id = :user AND message_id = ANY(:ids);

-- name: waiting
-- rewound messages are indexed as empty, so that they add no weight to their neighbours either
SELECT q.message_id, m.session_id, m.role, CASE WHEN m.state = 'rewound' THEN '' ELSE m.content END, m.origin,
  CASE WHEN m.state = 'rewound' THEN NULL ELSE m.tool_name END,
  CASE WHEN m.state = 'rewound' THEN NULL ELSE m.tool_calls END
FROM index_queue AS q LEFT JOIN messages AS m ON m.tenant = :tenant AND m.user_id = :user AND m.id = q.message_id
WHERE q.tenant = :tenant AND q.user_id = :user ORDER BY q.message_id LIMIT :limit;

-- name: rows_after
SELECT id, role, CASE WHEN state = 'rewound' THEN '' ELSE content END, origin,
  CASE WHEN state = 'rewound' THEN NULL ELSE tool_name END, CASE WHEN state = 'rewound' THEN NULL ELSE tool_calls END
FROM messages WHERE tenant = :tenant AND user_id = :user AND id > :after ORDER BY id LIMIT :limit;

-- name: count_waiting, short
SELECT (SELECT count(*) FROM fresh_words WHERE tenant = :tenant AND user_id = :user),
  (SELECT count(*) FROM gone_messages WHERE tenant = :tenant AND user_id = :user);

-- name: fresh
-- locked, so that nobody indexes one of them again before its row is removed
SELECT w.message_id, w.length, w.terms, s.text
FROM fresh_words AS w
JOIN fresh_substrings AS s ON s.tenant = :tenant AND s.user_id = :user AND s.message_id = w.message_id
WHERE w.tenant = :tenant AND w.user_id = :user ORDER BY w.message_id LIMIT :limit FOR UPDATE OF w, s;

-- name: gone
SELECT message_id FROM gone_messages WHERE tenant = :tenant AND user_id = :user;

-- name: clear_gone
DELETE FROM gone_messages WHERE tenant = :tenant AND user_id = :user;

-- name: lock
SELECT pg_try_advisory_xact_lock(hashtextextended(:tenant || chr(1) || :user, 0));

-- name: wait_for_lock
SELECT pg_advisory_xact_lock(hashtextextended(:tenant || chr(1) || :user, 0));

-- name: allow_pauses
-- while lists are packed; writers of messages do not wait for the locks held here
SELECT set_config('idle_in_transaction_session_timeout', '600000', true);

-- name: segments
SELECT id, documents, messages, lengths FROM segments WHERE tenant = :tenant AND user_id = :user ORDER BY id;

-- name: buckets
SELECT lists FROM postings WHERE tenant = :tenant AND user_id = :user AND segment = :segment ORDER BY bucket;

-- name: add_segment
INSERT INTO segments (tenant, user_id, documents, words, buckets, messages, lengths)
VALUES (:tenant, :user, ?, ?, ?, ?, ?) RETURNING id;

-- name: add_bucket
INSERT INTO postings (tenant, user_id, segment, bucket, lists) VALUES (:tenant, :user, ?, ?, ?);

-- name: drop_segment
DELETE FROM segments WHERE tenant = :tenant AND user_id = :user AND id = :segment;

-- name: drop_buckets
DELETE FROM postings WHERE tenant = :tenant AND user_id = :user AND segment = :segment;

-- name: drop_all
DELETE FROM segments WHERE tenant = :tenant AND user_id = :user;

-- name: drop_all_buckets
DELETE FROM postings WHERE tenant = :tenant AND user_id = :user;

-- name: drop_all_fresh
DELETE FROM fresh_words WHERE tenant = :tenant AND user_id = :user;

-- name: drop_all_fresh_substrings
DELETE FROM fresh_substrings WHERE tenant = :tenant AND user_id = :user;

-- name: add_user
INSERT INTO users (tenant, user_id, id) VALUES (:tenant, :user, :identity) ON CONFLICT DO NOTHING;

-- name: drop_user
DELETE FROM users WHERE tenant = :tenant AND user_id = :user
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE tenant = :tenant AND user_id = :user);

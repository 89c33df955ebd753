-- name: add_text
SELECT index_text(?, ?, ?, ?);

-- name: not_gone
DELETE FROM gone_messages WHERE user_id = :user AND message_id = ANY(:ids);

-- name: drop_words
DELETE FROM fresh_words WHERE user_id = :user AND message_id = ANY(:ids);

-- name: drop_substrings
DELETE FROM fresh_substrings WHERE user_id = :user AND message_id = ANY(:ids);

-- name: set_gone
INSERT INTO gone_messages (message_id) SELECT unnest(:ids::bigint[]) ON CONFLICT DO NOTHING;

-- name: queue
INSERT INTO index_queue (message_id) SELECT unnest(:ids::bigint[]) ON CONFLICT DO NOTHING;

-- name: done
DELETE FROM index_queue WHERE user_id = :user AND message_id = ANY(:ids);

-- name: waiting
-- rewound messages are indexed as empty, so that they add no weight to their neighbours either
SELECT q.message_id, m.session_id, m.role, CASE WHEN m.state = 'rewound' THEN '' ELSE m.content END, m.origin,
  CASE WHEN m.state = 'rewound' THEN NULL ELSE m.tool_name END,
  CASE WHEN m.state = 'rewound' THEN NULL ELSE m.tool_calls END
FROM index_queue AS q LEFT JOIN messages AS m ON m.id = q.message_id AND m.user_id = q.user_id
WHERE q.user_id = :user ORDER BY q.message_id LIMIT :limit;

-- name: rows_after
SELECT id, role, CASE WHEN state = 'rewound' THEN '' ELSE content END, origin,
  CASE WHEN state = 'rewound' THEN NULL ELSE tool_name END, CASE WHEN state = 'rewound' THEN NULL ELSE tool_calls END
FROM messages WHERE user_id = :user AND id > :after ORDER BY id LIMIT :limit;

-- name: count_waiting
SELECT (SELECT count(*) FROM fresh_words WHERE user_id = :user), (SELECT count(*) FROM gone_messages WHERE user_id = :user);

-- name: fresh
-- locked, so that nobody indexes one of them again before its row is removed
SELECT w.message_id, w.length, w.terms, s.text
FROM fresh_words AS w JOIN fresh_substrings AS s ON s.user_id = w.user_id AND s.message_id = w.message_id
WHERE w.user_id = :user ORDER BY w.message_id LIMIT :limit FOR UPDATE OF w, s;

-- name: gone
SELECT message_id FROM gone_messages WHERE user_id = :user;

-- name: clear_gone
DELETE FROM gone_messages WHERE user_id = :user;

-- name: lock
SELECT pg_try_advisory_xact_lock(hashtextextended(current_setting('kept.tenant') || chr(1) || :user, 0));

-- name: wait_for_lock
SELECT pg_advisory_xact_lock(hashtextextended(current_setting('kept.tenant') || chr(1) || :user, 0));

-- name: allow_pauses
-- while lists are packed; writers of messages do not wait for the locks held here
SELECT set_config('idle_in_transaction_session_timeout', '600000', true);

-- name: segments
SELECT id, documents, messages, lengths FROM segments WHERE user_id = :user ORDER BY id;

-- name: buckets
SELECT lists FROM postings WHERE user_id = :user AND segment = :segment ORDER BY bucket;

-- name: add_segment
INSERT INTO segments (documents, words, buckets, messages, lengths) VALUES (?, ?, ?, ?, ?) RETURNING id;

-- name: add_bucket
INSERT INTO postings (segment, bucket, lists) VALUES (?, ?, ?);

-- name: drop_segment
DELETE FROM segments WHERE user_id = :user AND id = :segment;

-- name: drop_buckets
DELETE FROM postings WHERE user_id = :user AND segment = :segment;

-- name: drop_all
DELETE FROM segments WHERE user_id = :user;

-- name: drop_all_buckets
DELETE FROM postings WHERE user_id = :user;

-- name: drop_all_fresh
DELETE FROM fresh_words WHERE user_id = :user;

-- name: drop_all_fresh_substrings
DELETE FROM fresh_substrings WHERE user_id = :user;

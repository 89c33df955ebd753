-- What a search and an append ask for, as functions: a server keeps their plans, which take longer to make than to run.
-- Statements that are prepared by name are no way to keep them, because PgBouncer gives each transaction another connection.
-- Rows are those of the transaction's user, by conditions of their own as well as by row-level security.

-- segments with id, messages, words and buckets; texts that are in no segment, and what segments must not tell any more
CREATE FUNCTION open_search(
  OUT segments bigint[], OUT fresh_ids bigint[], OUT fresh_lengths integer[], OUT fresh_terms text, OUT gone bigint[],
  OUT sessions bigint
) LANGUAGE plpgsql STABLE AS $$
BEGIN
  SELECT array_agg(ARRAY[s.id, s.documents, s.words, s.buckets] ORDER BY s.id) INTO segments FROM segments AS s
  WHERE s.tenant = current_setting('kept.tenant') AND s.user_id = current_setting('kept.user');
  -- no term contains the separator
  SELECT array_agg(f.message_id), array_agg(f.length), string_agg(f.terms, chr(2))
  INTO fresh_ids, fresh_lengths, fresh_terms FROM (
    SELECT w.message_id, w.length, w.terms FROM fresh_words AS w
    WHERE w.tenant = current_setting('kept.tenant') AND w.user_id = current_setting('kept.user') ORDER BY w.message_id
  ) AS f;
  SELECT array_agg(g.message_id) INTO gone FROM gone_messages AS g
  WHERE g.tenant = current_setting('kept.tenant') AND g.user_id = current_setting('kept.user');
  SELECT count(*) INTO sessions FROM sessions AS s
  WHERE s.tenant = current_setting('kept.tenant') AND s.user_id = current_setting('kept.user');
END $$;

CREATE FUNCTION read_postings(wanted_segments bigint[], wanted_buckets integer[])
RETURNS TABLE (segment bigint, bucket integer, lists bytea) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT w.segment, w.bucket, p.lists
  FROM unnest(wanted_segments, wanted_buckets) AS w (segment, bucket) CROSS JOIN LATERAL (
    SELECT lists FROM postings
    WHERE tenant = current_setting('kept.tenant') AND user_id = current_setting('kept.user')
      AND segment = w.segment AND bucket = w.bucket
    OFFSET 0 -- keeps one lookup per bucket: the planner knows nothing of the arrays
  ) AS p;
END $$;

-- Messages that were not taken back, with their texts where they are short; then, without an id, their sessions unless
-- those are in the trash: `kind` is the role of a message and the source of a session, `detail` the external id of a
-- message and the project of a session. A driver reads `bpchar` as it is: no role contains a character that is escaped.
CREATE FUNCTION find_messages(wanted bigint[], most_bytes integer) RETURNS TABLE (
  id bigint, session_id text, kind bpchar, moment double precision, detail text, content text,
  last_active double precision, message_count integer, is_headless boolean, has_parent boolean
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY WITH found AS MATERIALIZED (
    SELECT m.id, m.session_id, m.role, m.timestamp, m.external_id,
      CASE WHEN octet_length(m.content) <= most_bytes THEN m.content END AS content
    FROM messages AS m
    WHERE m.tenant = current_setting('kept.tenant') AND m.user_id = current_setting('kept.user')
      AND m.id = ANY(wanted) AND m.state <> 'rewound'
  )
  SELECT f.id, f.session_id, f.role::bpchar, f.timestamp, f.external_id, f.content,
    NULL::double precision, NULL::integer, NULL::boolean, NULL::boolean
  FROM found AS f
  UNION ALL
  SELECT NULL, s.id, s.source::bpchar, s.started, s.project, NULL, coalesce(s.last_active, s.started), s.message_count,
    strpos(coalesce(s.metadata, ''), '"headless": true') > 0, s.parent_session_id IS NOT NULL
  FROM sessions AS s
  WHERE s.tenant = current_setting('kept.tenant') AND s.user_id = current_setting('kept.user')
    AND s.id = ANY(ARRAY(SELECT DISTINCT f.session_id FROM found AS f)) AND s.trashed IS NULL;
END $$;

CREATE FUNCTION list_messages(wanted text[]) RETURNS TABLE (session_id text, ids bigint[]) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT session_id, array_agg(id ORDER BY id) FROM messages
  WHERE tenant = current_setting('kept.tenant') AND user_id = current_setting('kept.user') AND session_id = ANY(wanted)
  GROUP BY session_id;
END $$;

-- Count messages that are appended to a session, and return their ids, or the first where they follow each other; none if
-- there is no such session. The row of numbers is locked before that of the session, as everywhere.
CREATE FUNCTION begin_append(wanted bigint, latest double precision, session text) RETURNS SETOF bigint
LANGUAGE plpgsql AS $$
DECLARE
  first bigint;
  given bigint[];
BEGIN
  UPDATE message_numbers SET next_id = next_id + wanted
  WHERE tenant = current_setting('kept.tenant') AND user_id = current_setting('kept.user')
    AND next_id + wanted <= range_end
  RETURNING next_id - wanted INTO first;
  IF first IS NULL THEN
    given := ARRAY(SELECT take_message_ids(wanted));
  END IF;
  UPDATE sessions SET message_count = message_count + wanted, last_active = greatest(coalesce(last_active, 0), latest)
  WHERE tenant = current_setting('kept.tenant') AND user_id = current_setting('kept.user')
    AND id = session AND trashed IS NULL;
  IF FOUND AND first IS NULL THEN
    RETURN QUERY SELECT unnest(given);
  ELSIF FOUND THEN
    RETURN NEXT first;
  END IF;
END $$;

CREATE FUNCTION add_message(
  id bigint, session_id text, role text, content text, sent double precision, origin text, tool_name text,
  tool_calls text, tool_call_id text, reasoning text, parts text, token_count integer, api_content text,
  external_id text, interrupted integer, state text, source bigint, checksum bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO messages (
    id, session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
    reasoning, parts, token_count, api_content, external_id, interrupted, state, source, checksum
  ) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18);
END $$;

-- index a text, or index it again
CREATE FUNCTION index_text(message bigint, words integer, word_terms text, whole text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO fresh_words (message_id, length, terms) VALUES (message, words, word_terms)
  ON CONFLICT (tenant, user_id, message_id) DO UPDATE SET length = excluded.length, terms = excluded.terms;
  INSERT INTO fresh_substrings (message_id, text) VALUES (message, whole)
  ON CONFLICT (tenant, user_id, message_id) DO UPDATE SET text = excluded.text;
END $$;

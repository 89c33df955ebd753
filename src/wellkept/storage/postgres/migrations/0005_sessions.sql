-- Sessions and messages are canonical; what searches them is derived and rebuilt from here. Tenant and user begin every
-- key. Texts that are compared or sorted use the collation "C", which is the order of SQLite.

CREATE SEQUENCE message_ids;

CREATE TABLE state_meta (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  value text NOT NULL,
  PRIMARY KEY (tenant, user_id, key)
);

CREATE TABLE prompts (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  hash text COLLATE "C" NOT NULL,
  text text NOT NULL,
  PRIMARY KEY (tenant, user_id, hash)
);

CREATE TABLE sessions (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  -- the order in which sessions were stored
  number bigint GENERATED ALWAYS AS IDENTITY,
  source text NOT NULL,
  profile text,
  project text,
  model text,
  title text COLLATE "C",
  parent_session_id text COLLATE "C",
  link text CHECK (link IN ('compression', 'branch', 'delegate', 'import')),
  started double precision NOT NULL,
  ended double precision,
  end_reason text,
  archived integer NOT NULL DEFAULT 0,
  trashed double precision,
  last_active double precision,
  message_count integer NOT NULL DEFAULT 0,
  prompt_hash text COLLATE "C",
  context_from bigint NOT NULL DEFAULT 0,
  metadata text,
  PRIMARY KEY (tenant, user_id, id)
);
CREATE UNIQUE INDEX sessions_title ON sessions (tenant, user_id, title) WHERE title IS NOT NULL;
CREATE INDEX sessions_recent ON sessions (tenant, user_id, last_active);
CREATE INDEX sessions_parent ON sessions (tenant, user_id, parent_session_id) WHERE parent_session_id IS NOT NULL;
CREATE INDEX sessions_trashed ON sessions (tenant, user_id, trashed) WHERE trashed IS NOT NULL;

-- an id belongs to one user of the tenant, as in a file; nothing else of a session is visible to others
CREATE TABLE session_owners (
  tenant text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, id)
);

CREATE FUNCTION own_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO session_owners (tenant, id, user_id) VALUES (NEW.tenant, NEW.id, NEW.user_id);
  ELSE
    DELETE FROM session_owners WHERE tenant = OLD.tenant AND id = OLD.id;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER sessions_owned AFTER INSERT OR DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION own_session();

CREATE TABLE messages (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  id bigint NOT NULL DEFAULT nextval('message_ids'),
  session_id text COLLATE "C" NOT NULL,
  role text NOT NULL,
  content text NOT NULL DEFAULT '',
  timestamp double precision NOT NULL,
  state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'compacted', 'rewound')),
  origin text,
  tool_name text,
  tool_calls text,
  tool_call_id text,
  reasoning text,
  parts text,
  token_count integer,
  api_content text,
  external_id text,
  interrupted integer NOT NULL DEFAULT 0,
  rewind_run bigint,
  source bigint,
  checksum bigint,
  PRIMARY KEY (tenant, user_id, id)
);
CREATE INDEX messages_session ON messages (tenant, user_id, session_id, id);
CREATE INDEX messages_rewound ON messages (tenant, user_id, session_id) WHERE state = 'rewound';
CREATE INDEX messages_source ON messages (tenant, user_id, source) WHERE source IS NOT NULL;

CREATE TABLE carried (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  session_id text COLLATE "C" NOT NULL,
  position integer NOT NULL,
  message_id bigint NOT NULL,
  rewind_run bigint,
  PRIMARY KEY (tenant, user_id, session_id, position)
);
CREATE INDEX carried_message ON carried (tenant, user_id, message_id);

CREATE TABLE blobs (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  hash text COLLATE "C" NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (tenant, user_id, hash)
);

CREATE TABLE blob_uses (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  message_id bigint NOT NULL,
  hash text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, user_id, message_id, hash)
);
CREATE INDEX blob_uses_hash ON blob_uses (tenant, user_id, hash);

CREATE TABLE sources (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  id bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, user_id, id)
);

CREATE TABLE usage (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  session_id text COLLATE "C" NOT NULL,
  day text COLLATE "C" NOT NULL,
  model text COLLATE "C" NOT NULL,
  task text COLLATE "C" NOT NULL,
  api_call_count bigint NOT NULL DEFAULT 0,
  input_tokens bigint NOT NULL DEFAULT 0,
  output_tokens bigint NOT NULL DEFAULT 0,
  cache_read_tokens bigint NOT NULL DEFAULT 0,
  cache_write_tokens bigint NOT NULL DEFAULT 0,
  cost double precision,
  PRIMARY KEY (tenant, user_id, session_id, day, model, task)
);

CREATE TABLE notes (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  session_id text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  value text NOT NULL,
  PRIMARY KEY (tenant, user_id, session_id, key)
);

CREATE TABLE leases (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  holder text NOT NULL,
  expires double precision NOT NULL,
  PRIMARY KEY (tenant, user_id, name)
);

CREATE TABLE nodes (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  id bigint GENERATED BY DEFAULT AS IDENTITY,
  session_id text COLLATE "C" NOT NULL,
  depth integer NOT NULL,
  text text NOT NULL,
  children text NOT NULL,
  created double precision NOT NULL,
  PRIMARY KEY (tenant, user_id, id)
);
CREATE INDEX nodes_session ON nodes (tenant, user_id, session_id);

-- salted hashes of what was forgotten, so that an import does not bring it back
CREATE TABLE tombstones (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  hash text COLLATE "C" NOT NULL,
  forgotten double precision NOT NULL,
  PRIMARY KEY (tenant, user_id, hash)
);

CREATE TABLE receipts (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  id bigint GENERATED BY DEFAULT AS IDENTITY,
  created double precision NOT NULL,
  kind text NOT NULL CHECK (kind IN ('start', 'prompt', 'search', 'tool')),
  client text NOT NULL,
  query text NOT NULL,
  session_id text COLLATE "C",
  project text,
  candidates integer NOT NULL,
  tokens integer NOT NULL,
  milliseconds double precision NOT NULL,
  PRIMARY KEY (tenant, user_id, id)
);
CREATE INDEX receipts_of_session ON receipts (tenant, user_id, session_id) WHERE session_id IS NOT NULL;
CREATE INDEX receipts_by_time ON receipts (tenant, user_id, created);

CREATE TABLE receipt_items (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  receipt_id bigint NOT NULL,
  position integer NOT NULL,
  message_id bigint,
  session_id text COLLATE "C",
  page text,
  score double precision,
  parts text,
  PRIMARY KEY (tenant, user_id, receipt_id, position)
);
CREATE INDEX receipt_items_of_message ON receipt_items (tenant, user_id, message_id) WHERE message_id IS NOT NULL;
CREATE INDEX receipt_items_of_session ON receipt_items (tenant, user_id, session_id) WHERE session_id IS NOT NULL;

CREATE TABLE receipt_marks (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  receipt_id bigint NOT NULL,
  message_id bigint NOT NULL DEFAULT 0,
  mark text NOT NULL CHECK (mark IN ('useful', 'wrong', 'never')),
  created double precision NOT NULL,
  PRIMARY KEY (tenant, user_id, receipt_id, message_id)
);
CREATE INDEX receipt_marks_of_message ON receipt_marks (tenant, user_id, message_id) WHERE message_id <> 0;

-- The search index. New texts wait in `fresh_words` and `fresh_substrings`; some hundred of them become a segment, and segments are merged. A segment is never changed: `sessions/postgres/index.py`
-- writes another one in its place, so that readers may keep what they have read of it.

CREATE TABLE fresh_words (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  message_id bigint NOT NULL,
  -- the number of words, and each term once, a line each
  length integer NOT NULL,
  terms text NOT NULL,
  PRIMARY KEY (tenant, user_id, message_id)
);

CREATE TABLE fresh_substrings (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  message_id bigint NOT NULL,
  text text NOT NULL,
  PRIMARY KEY (tenant, user_id, message_id)
);

CREATE SEQUENCE segment_ids;

CREATE TABLE segments (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  id bigint NOT NULL DEFAULT nextval('segment_ids'),
  documents integer NOT NULL,
  -- of all its messages together
  words bigint NOT NULL,
  buckets integer NOT NULL,
  -- message ids in ascending order, 8 bytes each, and the number of words of each, 2 bytes each
  messages bytea NOT NULL,
  lengths bytea NOT NULL,
  PRIMARY KEY (tenant, user_id, id)
);

-- the posting lists of the terms that share a hash of their first two characters
CREATE TABLE postings (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  segment bigint NOT NULL,
  bucket integer NOT NULL,
  lists bytea NOT NULL,
  PRIMARY KEY (tenant, user_id, segment, bucket)
);

-- messages that segments name and that no search may find any more
CREATE TABLE gone_messages (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  message_id bigint NOT NULL,
  PRIMARY KEY (tenant, user_id, message_id)
);

-- ids whose index rows are out of date
CREATE TABLE index_queue (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  message_id bigint NOT NULL,
  PRIMARY KEY (tenant, user_id, message_id)
);

CREATE FUNCTION queue_message() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO index_queue (tenant, user_id, message_id) VALUES (NEW.tenant, NEW.user_id, NEW.id) ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;

-- as in SQLite: whoever changes a row without its checksum leaves none, and it is computed again with the index
CREATE FUNCTION drop_checksum() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.checksum IS NOT DISTINCT FROM OLD.checksum THEN
    NEW.checksum := NULL;
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER messages_changed AFTER UPDATE OF session_id, content, role, tool_name, tool_calls ON messages
FOR EACH ROW EXECUTE FUNCTION queue_message();

CREATE TRIGGER messages_unchecked BEFORE UPDATE OF
  session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id, reasoning, parts, token_count,
  api_content, external_id, interrupted, source ON messages
FOR EACH ROW EXECUTE FUNCTION drop_checksum();

SELECT protect_user_table(name) FROM unnest(ARRAY[
  'state_meta', 'prompts', 'sessions', 'messages', 'carried', 'blobs', 'blob_uses', 'sources', 'usage', 'notes', 'leases',
  'nodes', 'tombstones', 'receipts', 'receipt_items', 'receipt_marks', 'fresh_words', 'fresh_substrings', 'segments',
  'postings', 'gone_messages', 'index_queue'
]) AS name;
SELECT protect_tenant_table('session_owners');

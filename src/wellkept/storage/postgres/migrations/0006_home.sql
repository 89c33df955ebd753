-- What belongs to the home as a whole: who may call the gateway, who is which user, and messages on their way. A row is
-- visible in a transaction without a user, which the gateway needs before it knows who calls, and in one of its user.

CREATE TABLE tokens (
  tenant text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  name text NOT NULL,
  scopes text NOT NULL,
  created double precision NOT NULL,
  expires double precision,
  last_used double precision,
  hash bytea NOT NULL,
  PRIMARY KEY (tenant, id)
);

CREATE TABLE platform_people (
  tenant text COLLATE "C" NOT NULL,
  platform text COLLATE "C" NOT NULL,
  person text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  name text NOT NULL,
  paired double precision NOT NULL,
  PRIMARY KEY (tenant, platform, person)
);

CREATE TABLE pairing_codes (
  tenant text COLLATE "C" NOT NULL,
  platform text COLLATE "C" NOT NULL,
  person text COLLATE "C" NOT NULL,
  name text NOT NULL,
  code text COLLATE "C" NOT NULL,
  created double precision NOT NULL,
  told double precision NOT NULL,
  PRIMARY KEY (tenant, platform, person)
);

CREATE TABLE platform_messages (
  tenant text COLLATE "C" NOT NULL,
  platform text COLLATE "C" NOT NULL,
  delivery text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  state text NOT NULL,
  received double precision NOT NULL,
  message text NOT NULL,
  answer text NOT NULL,
  session_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, platform, delivery)
);
CREATE INDEX platform_messages_by_state ON platform_messages (tenant, state, received);

CREATE TABLE moved_chats (
  tenant text COLLATE "C" NOT NULL,
  platform text COLLATE "C" NOT NULL,
  chat text COLLATE "C" NOT NULL,
  origin text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, platform, chat)
);

SELECT protect_tenant_table(name)
FROM unnest(ARRAY['tokens', 'platform_people', 'pairing_codes', 'platform_messages', 'moved_chats']) AS name;

CREATE FUNCTION is_seen_by_home(owner text) RETURNS boolean LANGUAGE sql STABLE
RETURN coalesce(current_setting('kept.user', true), '') IN ('', owner);

-- a second policy that must hold as well: rows of another user stay hidden
CREATE POLICY of_user ON tokens AS RESTRICTIVE USING (is_seen_by_home(user_id));
CREATE POLICY of_user ON platform_people AS RESTRICTIVE USING (is_seen_by_home(user_id));
CREATE POLICY of_user ON platform_messages AS RESTRICTIVE USING (is_seen_by_home(user_id));

-- notes of the home itself have the empty user
DROP POLICY own_rows ON state_meta;
CREATE POLICY own_rows ON state_meta USING (tenant = nullif(current_setting('kept.tenant', true), '')
  AND user_id = coalesce(current_setting('kept.user', true), ''));

-- a page that is copied from a file begins with the first version
ALTER TABLE pages ALTER COLUMN version SET DEFAULT 1;

-- Curated memory: the pages of a user as they are in files elsewhere, byte for byte, and the ledger of their edits.

CREATE TABLE pages (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  -- memory, user, or project/FOLDER
  name text COLLATE "C" NOT NULL,
  raw bytea NOT NULL,
  -- counts the writes; whoever replaces a page names the version that it read
  version bigint NOT NULL,
  PRIMARY KEY (tenant, user_id, name)
);

CREATE TABLE page_copies (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  epoch bigint NOT NULL,
  raw bytea NOT NULL,
  PRIMARY KEY (tenant, user_id, name, epoch)
);

CREATE TABLE edits (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  id bigint NOT NULL,
  write_id bigint NOT NULL,
  group_id text NOT NULL,
  time double precision NOT NULL,
  target text COLLATE "C" NOT NULL,
  action text NOT NULL,
  before text,
  after text,
  position integer NOT NULL,
  origin text NOT NULL,
  session_id text,
  reason text,
  allowed text,
  undoes bigint,
  page_before text NOT NULL,
  page_after text NOT NULL,
  page_stamp bigint,
  source text,
  checksum bigint,
  voided integer NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, user_id, id)
);
CREATE INDEX edits_by_target ON edits (tenant, user_id, target, id);
CREATE INDEX edits_by_source ON edits (tenant, user_id) WHERE source IS NOT NULL;
CREATE INDEX edits_unchecked ON edits (tenant, user_id) WHERE checksum IS NULL;

-- The newest numbers of a user's ledger: the row is locked while numbers are given, so that none is given twice.
CREATE TABLE ledger_numbers (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  edit_id bigint NOT NULL,
  write_id bigint NOT NULL,
  PRIMARY KEY (tenant, user_id)
);

-- Derived: the entries of each page that the scanner found clean, as joined digests.
CREATE TABLE clean_entries (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  target text COLLATE "C" NOT NULL,
  digests bytea NOT NULL,
  PRIMARY KEY (tenant, user_id, target)
);

-- Texts of rows change only when they are forgotten or repaired: nothing that was made of them stays.
CREATE FUNCTION drop_clean_entries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM clean_entries WHERE tenant = new.tenant AND user_id = new.user_id;
  RETURN NULL;
END $$;
CREATE TRIGGER edits_blanked AFTER UPDATE OF before, after ON edits FOR EACH ROW EXECUTE FUNCTION drop_clean_entries();

SELECT protect_user_table(name)
FROM unnest(ARRAY['pages', 'page_copies', 'edits', 'ledger_numbers', 'clean_entries']) AS name;

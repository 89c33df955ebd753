-- Row-level security for every table: a row is visible only in a transaction that has named its tenant and its user.
-- A setting that was never made is NULL, one that was reset is empty; neither matches a row.

CREATE FUNCTION protect_user_table(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('ALTER TABLE %I ALTER COLUMN tenant SET DEFAULT current_setting(''kept.tenant'')', name);
  EXECUTE format('ALTER TABLE %I ALTER COLUMN user_id SET DEFAULT current_setting(''kept.user'')', name);
  EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
  EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
  EXECUTE format(
    'CREATE POLICY own_rows ON %I USING (tenant = nullif(current_setting(''kept.tenant'', true), '''')'
    ' AND user_id = nullif(current_setting(''kept.user'', true), ''''))', name);
END $$;

CREATE FUNCTION protect_tenant_table(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('ALTER TABLE %I ALTER COLUMN tenant SET DEFAULT current_setting(''kept.tenant'')', name);
  EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
  EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
  EXECUTE format(
    'CREATE POLICY own_rows ON %I USING (tenant = nullif(current_setting(''kept.tenant'', true), ''''))', name);
END $$;

-- every user who has stored something, for administration: the id only, and the key that stands for it in other tables
CREATE TABLE users (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  id text NOT NULL,
  created double precision NOT NULL DEFAULT extract(epoch FROM now()),
  PRIMARY KEY (tenant, user_id)
);
SELECT protect_tenant_table('users');

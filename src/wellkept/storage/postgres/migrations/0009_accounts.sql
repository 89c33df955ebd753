-- Users who were created, with or without a conversation: each host has folders of its own, and all must know them.
CREATE TABLE accounts (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  id text NOT NULL,
  created text NOT NULL,
  PRIMARY KEY (tenant, user_id)
);
SELECT protect_tenant_table('accounts');

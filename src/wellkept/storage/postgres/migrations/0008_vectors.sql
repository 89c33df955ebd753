-- Vectors of messages: derived, optional, of one model for each user.
CREATE SEQUENCE vector_numbers;

CREATE TABLE message_vectors (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  message_id bigint NOT NULL,
  -- counts in the order in which rows become visible: a process reads those after the last one that it has seen
  seq bigint NOT NULL DEFAULT nextval('vector_numbers'),
  vectors bytea NOT NULL,
  PRIMARY KEY (tenant, user_id, message_id)
);
CREATE INDEX message_vectors_by_number ON message_vectors (tenant, user_id, seq);
-- 8-bit numbers do not compress
ALTER TABLE message_vectors ALTER COLUMN vectors SET STORAGE EXTERNAL;

CREATE TABLE vector_state (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  model text NOT NULL,
  PRIMARY KEY (tenant, user_id)
);

SELECT protect_user_table(name) FROM unnest(ARRAY['message_vectors', 'vector_state']) AS name;

CREATE FUNCTION drop_vectors() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM message_vectors WHERE tenant = OLD.tenant AND user_id = OLD.user_id AND message_id = OLD.id;
  RETURN NULL;
END $$;

CREATE TRIGGER vectors_of_old_text AFTER DELETE OR UPDATE OF content ON messages
FOR EACH ROW EXECUTE FUNCTION drop_vectors();

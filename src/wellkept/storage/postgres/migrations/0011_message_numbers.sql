-- Ids of one user's messages are consecutive, as in a file, whoever else writes meanwhile: the search takes messages with
-- neighbouring ids for neighbours, and 32 of them, counted from a multiple of 32, for a part of a conversation. A user has
-- ranges of 1,048,576 ids, so that no two users of a tenant have the same one and a home can move back to one file.

CREATE SEQUENCE message_ranges INCREMENT BY 1048576 MINVALUE 1048576;

-- beyond every id that was given until now
SELECT setval('message_ranges', CASE WHEN is_called THEN (last_value / 1048576 + 2) * 1048576 ELSE 1048576 END, false)
FROM message_ids;

ALTER TABLE messages ALTER COLUMN id DROP DEFAULT;
DROP SEQUENCE message_ids;

-- The row is locked until the transaction ends that took ids: two writers of one user take turns, as in a file.
CREATE TABLE message_numbers (
  tenant text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  next_id bigint NOT NULL,
  -- the first id behind the range
  range_end bigint NOT NULL,
  PRIMARY KEY (tenant, user_id)
);
SELECT protect_user_table('message_numbers');

CREATE FUNCTION take_message_ids(wanted bigint) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
  own message_numbers;
  given bigint;
BEGIN
  UPDATE message_numbers SET next_id = next_id + wanted
  WHERE tenant = current_setting('kept.tenant') AND user_id = current_setting('kept.user')
    AND next_id + wanted <= range_end
  RETURNING * INTO own;
  IF FOUND THEN
    RETURN QUERY SELECT generate_series(own.next_id - wanted, own.next_id - 1);
    RETURN;
  END IF;
  -- a new user, or a range that is used up
  INSERT INTO message_numbers (next_id, range_end) VALUES (0, 0) ON CONFLICT DO NOTHING;
  SELECT * INTO own FROM message_numbers
  WHERE tenant = current_setting('kept.tenant') AND user_id = current_setting('kept.user') FOR UPDATE;
  WHILE wanted > 0 LOOP
    IF own.next_id >= own.range_end THEN
      given := nextval('message_ranges');
      -- the first id of a file is 1
      own.next_id := given - 1048576 + CASE WHEN own.range_end = 0 THEN 1 ELSE 0 END;
      own.range_end := given;
    END IF;
    given := least(wanted, own.range_end - own.next_id);
    RETURN QUERY SELECT generate_series(own.next_id, own.next_id + given - 1);
    own.next_id := own.next_id + given;
    wanted := wanted - given;
  END LOOP;
  UPDATE message_numbers SET next_id = own.next_id, range_end = own.range_end
  WHERE tenant = own.tenant AND user_id = own.user_id;
END $$;

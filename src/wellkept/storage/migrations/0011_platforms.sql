-- Chat platforms: who of them is which user, who asked to be let in, and the messages on their way.

CREATE TABLE platform_people (
  platform TEXT NOT NULL,
  person TEXT NOT NULL,
  user_id TEXT NOT NULL,
  name TEXT NOT NULL,
  paired REAL NOT NULL,
  checksum INTEGER,
  PRIMARY KEY (platform, person)
) WITHOUT ROWID;
CREATE TRIGGER platform_people_unchecked AFTER UPDATE OF
  platform, person, user_id, name, paired
ON platform_people WHEN new.checksum IS old.checksum BEGIN
  UPDATE platform_people SET checksum = NULL
  WHERE platform = new.platform AND person = new.person;
END;

CREATE TABLE pairing_codes (
  platform TEXT NOT NULL,
  person TEXT NOT NULL,
  name TEXT NOT NULL,
  code TEXT NOT NULL,
  created REAL NOT NULL,
  told REAL NOT NULL,
  checksum INTEGER,
  PRIMARY KEY (platform, person)
) WITHOUT ROWID;
CREATE TRIGGER pairing_codes_unchecked AFTER UPDATE OF
  platform, person, name, code, created, told
ON pairing_codes WHEN new.checksum IS old.checksum BEGIN
  UPDATE pairing_codes SET checksum = NULL
  WHERE platform = new.platform AND person = new.person;
END;

-- a message is stored before it is answered, so that a crash loses none and a redelivery is recognised
CREATE TABLE platform_messages (
  platform TEXT NOT NULL,
  delivery TEXT NOT NULL,
  user_id TEXT NOT NULL,
  state TEXT NOT NULL,
  received REAL NOT NULL,
  message TEXT NOT NULL,
  answer TEXT NOT NULL,
  session_id TEXT NOT NULL,
  checksum INTEGER,
  PRIMARY KEY (platform, delivery)
) WITHOUT ROWID;
CREATE INDEX platform_messages_by_state ON platform_messages (state, received);
CREATE TRIGGER platform_messages_unchecked AFTER UPDATE OF
  platform, delivery, user_id, state, received, message, answer, session_id
ON platform_messages WHEN new.checksum IS old.checksum BEGIN
  UPDATE platform_messages SET checksum = NULL
  WHERE platform = new.platform AND delivery = new.delivery;
END;

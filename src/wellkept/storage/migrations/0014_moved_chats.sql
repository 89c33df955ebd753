-- Chats that got another id on their platform: keys and users of groups go on with the first one.

CREATE TABLE moved_chats (
  platform TEXT NOT NULL,
  chat TEXT NOT NULL,
  origin TEXT NOT NULL,
  checksum INTEGER,
  PRIMARY KEY (platform, chat)
) WITHOUT ROWID;
CREATE TRIGGER moved_chats_unchecked AFTER UPDATE OF
  platform, chat, origin
ON moved_chats WHEN new.checksum IS old.checksum BEGIN
  UPDATE moved_chats SET checksum = NULL
  WHERE platform = new.platform AND chat = new.chat;
END;

-- Where texts came from. A message names a source by a hash of its name, so that a number of six bytes is stored with
-- each message and a file that is merged with another keeps its numbers. NULL: the text is its author's own.

CREATE TABLE sources (
  -- a hash of the name
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL
);

ALTER TABLE messages ADD COLUMN source INTEGER;
CREATE INDEX messages_source ON messages (source) WHERE source IS NOT NULL;

-- a program that changes a row leaves its checksum as it was: then the checksum is computed again with the index
DROP TRIGGER messages_changed;
CREATE TRIGGER messages_changed AFTER UPDATE OF
  session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id, reasoning, parts, token_count,
  api_content, external_id, interrupted, source ON messages
BEGIN
  INSERT OR IGNORE INTO index_queue (message_id) VALUES (new.id);
  UPDATE messages SET checksum = NULL WHERE id = new.id AND new.checksum IS old.checksum;
END;

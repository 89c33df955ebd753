-- A checksum of every column of a message that does not change with its state. Rows without one are checked by their
-- form only, until `sessions/sqlite/checksums.py` fills it in.

ALTER TABLE messages ADD COLUMN checksum INTEGER;

INSERT OR REPLACE INTO state_meta (key, value)
SELECT 'checksums_missing_to', CAST(max(id) AS TEXT) FROM messages HAVING max(id) IS NOT NULL;

-- a program that changes a row leaves its checksum as it was: then the checksum is computed again with the index
DROP TRIGGER messages_changed;
CREATE TRIGGER messages_changed AFTER UPDATE OF
  session_id, role, content, timestamp, origin, tool_name, tool_calls, tool_call_id, reasoning, parts, token_count,
  api_content, external_id, interrupted ON messages
BEGIN
  INSERT OR IGNORE INTO index_queue (message_id) VALUES (new.id);
  UPDATE messages SET checksum = NULL WHERE id = new.id AND new.checksum IS old.checksum;
END;

-- Words past the first 200,000 characters were not indexed once. The next searches index such messages again.
-- octet_length reads the header of a row only, so that texts are not loaded; a few shorter ones with long letters are
-- indexed again without need.
INSERT OR IGNORE INTO index_queue (message_id)
SELECT id FROM messages WHERE octet_length(content) > 200000;

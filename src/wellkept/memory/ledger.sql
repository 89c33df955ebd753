-- name: insert
INSERT INTO edits (/*! tenant, */ id, write_id, group_id, time, target, action, before, after, position, origin,
                   session_id, user_id, reason, allowed, undoes, page_before, page_after, page_stamp, source,
                   checksum)
VALUES (/*! :tenant, */ :id, :write_id, :group_id, :time, :target, :action, :before, :after, :position, :origin,
        :session_id, :user, :reason, :allowed, :undoes, :page_before, :page_after, :page_stamp, :source,
        :checksum);

-- name: next_write
-- write numbers grow with the ids of rows and have no index, so the newest rows have the highest; 64 rows, because a
-- damaged number must not end the sequence
SELECT coalesce(max(write_id), 0) + 1
FROM (SELECT write_id FROM edits WHERE write_id < 1 << 62 ORDER BY id DESC LIMIT 64) AS newest;

-- name: newest_id
SELECT max(coalesce((SELECT max(id) FROM edits), 0),
           coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'edits' AND seq BETWEEN 0 AND 1 << 62), 0));

-- name: newest
SELECT id, write_id, group_id, time, target, action, before, after, position, origin,
       session_id, user_id, reason, allowed, undoes, page_before, page_after, page_stamp, source, checksum
FROM edits WHERE /*! tenant = :tenant AND user_id = :user AND */ target = ? AND voided = 0 ORDER BY id DESC LIMIT 1;

-- name: void
UPDATE edits SET voided = 1 WHERE /*! tenant = :tenant AND user_id = :user AND */ write_id = ?;

-- name: rows
SELECT id, write_id, group_id, time, target, action, before, after, position, origin,
       session_id, user_id, reason, allowed, undoes, page_before, page_after, page_stamp, source, checksum
FROM edits WHERE /*! tenant = :tenant AND user_id = :user AND */ voided = 0 AND id > :after
  AND (target = :target OR :target IS NULL AND (:everywhere OR target = :project OR target NOT LIKE 'project/%'))
ORDER BY id LIMIT :limit;

-- name: known_after
SELECT 1 FROM edits WHERE /*! tenant = :tenant AND user_id = :user AND */ target = ? AND after = ?
  AND voided = 0 LIMIT 1;

-- name: written_after
SELECT 1 FROM edits WHERE /*! tenant = :tenant AND user_id = :user AND */ target = ? AND after = ?
  AND origin <> 'outside' AND voided = 0 LIMIT 1;

-- name: last_change
SELECT max(id) FROM edits WHERE /*! tenant = :tenant AND user_id = :user AND */ target = ? AND after = ?
  AND (before IS NULL OR before <> after) AND voided = 0;

-- name: blank_session
UPDATE edits SET before = CASE WHEN before IS NULL THEN NULL ELSE '' END,
                 after = CASE WHEN after IS NULL THEN NULL ELSE '' END,
                 reason = NULL
WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ? RETURNING id;

-- name: blank_entry
UPDATE edits SET before = CASE WHEN before = :entry THEN '' ELSE before END,
                 after = CASE WHEN after = :entry THEN '' ELSE after END
WHERE /*! tenant = :tenant AND user_id = :user AND */ target = :target
  AND (before = :entry OR after = :entry) RETURNING id;

-- name: texts
SELECT id, CAST(source AS TEXT), CAST(before AS TEXT), CAST(after AS TEXT), CAST(reason AS TEXT)
FROM edits /*! WHERE tenant = :tenant AND user_id = :user */;

-- name: sessions
SELECT id, CAST(session_id AS TEXT) FROM edits
WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id IS NOT NULL;

-- name: set_session
UPDATE edits SET session_id = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: of_target
SELECT id FROM edits WHERE /*! tenant = :tenant AND user_id = :user AND */ target = ?;

-- name: set_target
UPDATE edits SET target = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: rename_clean
UPDATE clean_entries SET target = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ target = ?;

-- name: set_source
UPDATE edits SET source = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: blank_row
UPDATE edits SET before = CASE WHEN before IS NULL THEN NULL ELSE '' END,
                 after = CASE WHEN after IS NULL THEN NULL ELSE '' END,
                 reason = NULL
WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: truncate_log
PRAGMA wal_checkpoint(TRUNCATE);

-- name: whole
SELECT id, write_id, group_id, time, target, action, before, after, position, origin,
       session_id, user_id, reason, allowed, undoes, page_before, page_after, page_stamp, source, checksum
FROM edits WHERE /*! tenant = :tenant AND user_id = :user AND */ id > ? ORDER BY id;

-- name: one
SELECT id, write_id, group_id, time, target, action, before, after, position, origin,
       session_id, user_id, reason, allowed, undoes, page_before, page_after, page_stamp, source, checksum
FROM edits WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: raw_texts
SELECT CAST(before AS BLOB), CAST(after AS BLOB) FROM edits WHERE id = ?;

-- name: set_checksum
UPDATE edits SET checksum = ? WHERE /*! tenant = :tenant AND user_id = :user AND */ id = ?;

-- name: set_row
UPDATE edits SET write_id = :write_id, group_id = :group_id, time = :time, target = :target, action = :action,
  before = :before, after = :after, position = :position, origin = :origin, session_id = :session_id, user_id = :user_id,
  reason = :reason, allowed = :allowed, undoes = :undoes, page_before = :page_before, page_after = :page_after,
  page_stamp = :page_stamp, source = :source, checksum = :checksum
WHERE /*! tenant = :tenant AND user_id = :user AND */ id = :id;

-- name: unchecked
SELECT id FROM edits WHERE /*! tenant = :tenant AND user_id = :user AND */ checksum IS NULL LIMIT 1000;

-- name: has_sources
SELECT 1 FROM edits WHERE /*! tenant = :tenant AND user_id = :user AND */ source IS NOT NULL LIMIT 1;

-- name: keep_clean
INSERT INTO clean_entries (/*! tenant, user_id, */ target, digests) VALUES (/*! :tenant, :user, */ ?, ?)
ON CONFLICT (/*! tenant, user_id, */ target) DO UPDATE SET digests = excluded.digests;

-- name: clean
SELECT digests FROM clean_entries WHERE /*! tenant = :tenant AND user_id = :user AND */ target = ?;

-- name: check_file
PRAGMA integrity_check(20);

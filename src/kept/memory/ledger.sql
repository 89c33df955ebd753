-- name: insert
INSERT INTO edits (write_id, group_id, time, target, action, before, after, position, origin,
                   session_id, user_id, reason, allowed, undoes, page_before, page_after, page_stamp)
VALUES (:write_id, :group_id, :time, :target, :action, :before, :after, :position, :origin,
        :session_id, :user_id, :reason, :allowed, :undoes, :page_before, :page_after, :page_stamp)
RETURNING id;

-- name: next_write
SELECT coalesce(max(write_id), 0) + 1 FROM edits;

-- name: newest
SELECT id, write_id, group_id, time, target, action, before, after, position, origin,
       session_id, user_id, reason, allowed, undoes, page_before, page_after, page_stamp
FROM edits WHERE target = ? AND NOT voided ORDER BY id DESC LIMIT 1;

-- name: void
UPDATE edits SET voided = 1 WHERE write_id = ?;

-- name: rows
SELECT id, write_id, group_id, time, target, action, before, after, position, origin,
       session_id, user_id, reason, allowed, undoes, page_before, page_after, page_stamp
FROM edits WHERE NOT voided AND id > :after AND (:target IS NULL OR target = :target) ORDER BY id LIMIT :limit;

-- name: known_after
SELECT 1 FROM edits WHERE target = ? AND after = ? AND NOT voided LIMIT 1;

-- name: written_after
SELECT 1 FROM edits WHERE target = ? AND after = ? AND origin <> 'outside' AND NOT voided LIMIT 1;

-- name: last_change
SELECT max(id) FROM edits WHERE target = ? AND after = ? AND NOT voided;

-- name: blank_session
UPDATE edits SET before = CASE WHEN before IS NULL THEN NULL ELSE '' END,
                 after = CASE WHEN after IS NULL THEN NULL ELSE '' END,
                 reason = NULL
WHERE session_id = ? RETURNING id;

-- name: blank_entry
UPDATE edits SET before = CASE WHEN before = :entry THEN '' ELSE before END,
                 after = CASE WHEN after = :entry THEN '' ELSE after END
WHERE target = :target AND (before = :entry OR after = :entry) RETURNING id;

-- name: texts
SELECT id, before, after, reason FROM edits;

-- name: blank_row
UPDATE edits SET before = CASE WHEN before IS NULL THEN NULL ELSE '' END,
                 after = CASE WHEN after IS NULL THEN NULL ELSE '' END,
                 reason = NULL
WHERE id = ?;

-- name: truncate_log
PRAGMA wal_checkpoint(TRUNCATE);

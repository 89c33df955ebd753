-- name: user
SELECT user_id FROM platform_people WHERE /*! tenant = :tenant AND */ platform = ? AND person = ?;

-- name: drop_old_codes
DELETE FROM pairing_codes WHERE /*! tenant = :tenant AND */ (created < ? OR created > ?);

-- name: code_of
SELECT code, told FROM pairing_codes WHERE /*! tenant = :tenant AND */ platform = ? AND person = ?;

-- name: note_told
UPDATE pairing_codes SET told = ? WHERE /*! tenant = :tenant AND */ platform = ? AND person = ?;

-- name: count_waiting
SELECT count(*) FROM pairing_codes WHERE /*! tenant = :tenant AND */ platform = ?;

-- name: add_code
INSERT INTO pairing_codes (/*! tenant, */ platform, person, name, code, created, told)
VALUES (/*! :tenant, */ ?, ?, ?, ?, ?, ?);

-- name: stranger
SELECT platform, person, name FROM pairing_codes WHERE /*! tenant = :tenant AND */ code = ? AND created >= ?;

-- name: pair
INSERT INTO platform_people (/*! tenant, */ platform, person, user_id, name, paired)
VALUES (/*! :tenant, */ ?, ?, ?, ?, ?)
ON CONFLICT (/*! tenant, */ platform, person) DO UPDATE SET
  user_id = excluded.user_id, name = excluded.name, paired = excluded.paired;

-- name: drop_code
DELETE FROM pairing_codes WHERE /*! tenant = :tenant AND */ platform = ? AND person = ?;

-- name: people
SELECT platform, person, name, user_id, paired FROM platform_people /*! WHERE tenant = :tenant */ ORDER BY 1, 2;

-- name: strangers
SELECT platform, person, name, code, created FROM pairing_codes
WHERE /*! tenant = :tenant AND */ created >= ? ORDER BY created;

-- name: person
SELECT platform, person, name, user_id, paired FROM platform_people
WHERE /*! tenant = :tenant AND */ platform = ? AND person = ?;

-- name: unpair
DELETE FROM platform_people WHERE /*! tenant = :tenant AND */ platform = ? AND person = ?;

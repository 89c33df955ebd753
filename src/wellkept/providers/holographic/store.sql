-- name: insert
INSERT INTO facts (user_id, text, key, speaker, category, tags, source, session_id, trust, created, updated, length, vector)
VALUES (:user, :text, :key, :speaker, :category, :tags, :source, :session_id, :trust, :now, :now, :length, :vector)
RETURNING id;

-- name: by_key
SELECT id FROM facts WHERE user_id = :user AND key = :key;

-- name: rewrite
UPDATE facts SET text = :text, key = :key, speaker = :speaker, updated = :now, length = :length, vector = :vector
WHERE id = :id;

-- name: describe
UPDATE facts SET category = :category, tags = :tags, trust = :trust, updated = :now
WHERE id = :id AND user_id = :user;

-- name: feedback
UPDATE facts SET trust = min(1.0, max(0.0, trust + :change)), helpful = helpful + :helpful,
  unhelpful = unhelpful + :unhelpful
WHERE id = :id AND user_id = :user;

-- name: delete
DELETE FROM facts WHERE id = :id;

-- name: fact
SELECT id, text, speaker, category, tags, source, session_id, trust, helpful, unhelpful, created, updated, length, vector
FROM facts WHERE id = :id AND user_id = :user;

-- name: facts
SELECT id, text, speaker, category, tags, source, session_id, trust, helpful, unhelpful, created, updated, length, vector
FROM facts WHERE user_id = :user AND id IN (SELECT value FROM json_each(:ids));

-- name: outlines
SELECT id, length, speaker, session_id, source, text LIKE '%?', trust, created, updated, category
FROM facts WHERE user_id = :user AND id IN (SELECT value FROM json_each(:ids));

-- name: vectors_of
SELECT id, vector FROM facts WHERE user_id = :user AND id IN (SELECT value FROM json_each(:ids));

-- name: newest
SELECT id, text, speaker, category, tags, source, session_id, trust, helpful, unhelpful, created, updated, length, vector
FROM facts
WHERE user_id = :user AND trust >= :min_trust AND (:category IS NULL OR category = :category)
ORDER BY id DESC LIMIT :limit;

-- name: vectors
SELECT id, vector FROM facts WHERE user_id = :user AND trust >= :min_trust ORDER BY id DESC LIMIT :limit;

-- name: count
SELECT count(*) FROM facts WHERE user_id = :user;

-- name: session_sizes
SELECT session_id, count(*), sum(length) FROM facts INDEXED BY facts_by_session WHERE user_id = :user GROUP BY session_id;

-- name: speakers
SELECT DISTINCT speaker FROM facts WHERE user_id = :user AND speaker IN (SELECT value FROM json_each(:words));

-- name: index
INSERT INTO facts_index (rowid, words) VALUES (:id, :words);

-- name: unindex
DELETE FROM facts_index WHERE rowid = :id;

-- name: postings
SELECT f.id, f.session_id, f.speaker FROM facts_index JOIN facts f ON f.id = facts_index.rowid
WHERE facts_index MATCH :term AND f.user_id = :user;

-- name: near
SELECT rowid FROM facts_index WHERE facts_index MATCH :pair;

-- name: add_entity
INSERT INTO entities (key, name) VALUES (:key, :name) ON CONFLICT (key) DO UPDATE SET name = name RETURNING id;

-- name: link
INSERT OR IGNORE INTO fact_entities (fact_id, entity_id) VALUES (:fact_id, :entity_id);

-- name: unlink
DELETE FROM fact_entities WHERE fact_id = :fact_id;

-- name: drop_unused_entities
DELETE FROM entities WHERE id NOT IN (SELECT entity_id FROM fact_entities);

-- name: entities_of
SELECT fe.fact_id, e.name FROM fact_entities fe JOIN entities e ON e.id = fe.entity_id
WHERE fe.fact_id IN (SELECT value FROM json_each(:ids)) ORDER BY fe.fact_id, e.id;

-- name: facts_about
SELECT fe.fact_id FROM fact_entities fe JOIN entities e ON e.id = fe.entity_id JOIN facts f ON f.id = fe.fact_id
WHERE e.key = :key AND f.user_id = :user AND f.trust >= :min_trust ORDER BY fe.fact_id DESC LIMIT :limit;

-- name: related_entities
SELECT other.name, count(*) AS times FROM fact_entities mine
JOIN entities me ON me.id = mine.entity_id AND me.key = :key
JOIN facts f ON f.id = mine.fact_id AND f.user_id = :user AND f.trust >= :min_trust
JOIN fact_entities theirs ON theirs.fact_id = mine.fact_id AND theirs.entity_id <> mine.entity_id
JOIN entities other ON other.id = theirs.entity_id
GROUP BY other.id ORDER BY times DESC, other.name LIMIT :limit;

-- name: mark_mirrored
INSERT INTO mirrored_writes (user_id, ledger_id) VALUES (:user, :ledger_id) ON CONFLICT DO NOTHING RETURNING ledger_id;

-- name: wrong_length
SELECT id, text FROM facts WHERE length(vector) <> :dim;

-- name: set_vector
UPDATE facts SET vector = :vector WHERE id = :id;

-- name: contents
SELECT id, session_id, text, category, tags FROM facts WHERE user_id = :user;

-- name: hide_session
UPDATE facts SET session_id = '' WHERE session_id = :session_id AND user_id = :user;

-- name: merge_index
INSERT INTO facts_index (facts_index) VALUES ('optimize');

-- name: truncate_log
PRAGMA wal_checkpoint(TRUNCATE);

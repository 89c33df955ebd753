-- name: tables
SELECT format('%%I.%%I', schemaname, tablename), pg_has_role(tableowner, 'MEMBER') FROM pg_tables
WHERE schemaname = %(schema)s ORDER BY tablename;

-- name: size
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace(%(schema)s) AND c.relkind = 'r';

-- name: rights
SELECT rolsuper OR pg_has_role(datdba, 'MEMBER'),
  has_function_privilege('pg_read_binary_file(text, bigint, bigint, boolean)', 'EXECUTE')
  AND has_function_privilege('pg_ls_waldir()', 'EXECUTE')
FROM pg_roles, pg_database WHERE rolname = current_user AND datname = current_database();

-- name: relations
-- tables, what is too long for their rows, the indexes of both, and the planner's samples
WITH held AS (
  SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = to_regnamespace(%(schema)s) AND c.relkind = 'r'
  UNION SELECT 'pg_catalog.pg_statistic'::regclass
), with_long AS (
  SELECT oid FROM held
  UNION SELECT c.reltoastrelid FROM pg_class AS c JOIN held ON held.oid = c.oid WHERE c.reltoastrelid <> 0
)
SELECT c.oid::regclass::text, pg_relation_filepath(c.oid), pg_relation_size(c.oid) FROM pg_class AS c
WHERE pg_relation_filepath(c.oid) IS NOT NULL AND (
  c.oid IN (SELECT oid FROM with_long)
  OR c.oid IN (SELECT i.indexrelid FROM pg_index AS i JOIN with_long AS w ON w.oid = i.indrelid)
) ORDER BY 1;

-- name: log
SELECT name, size FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$' ORDER BY name;

-- name: read
SELECT pg_read_binary_file(%s, %s, %s, true);

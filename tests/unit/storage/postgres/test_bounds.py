"""Every statement on PostgreSQL names the tenant and the user of the rows that it reads or writes."""

import json
import re
from pathlib import Path

import psycopg
import pytest
from tests.bounds import find_unbounded

import wellkept
from wellkept.sessions.postgres.upkeep import size_statement
from wellkept.storage.connections import statements
from wellkept.storage.postgres.schema import list_tenant_tables, list_user_tables
from wellkept.storage.postgres.unit import Owner, Unit

SOURCE = Path(wellkept.__file__).parent
FILES_ONLY = {"ledger.next_write", "ledger.newest_id", "ledger.raw_texts", "messages.insert_waiting", "vectors.places"}
"""Statements in shared files that only SQLite is sent: its numbers, its damage, its queue, and its file of vectors."""


def list_statements():
    """Return every statement that a server may be sent, by file and name; those of one database have a folder."""
    found = {}
    for path in sorted(SOURCE.rglob("*.sql")):
        place = path.relative_to(SOURCE.parent)
        if (
            {"migrations", "sqlite", "holographic"} & {*place.parts}
            or ".postgres." in path.name
            or path.stem == "rewrite"
        ):
            continue
        for name, statement in statements(".".join(place.parts[:-1]), path.name).by_name.items():
            found[f"{path.stem}.{name}"] = statement
    return {name: statement for name, statement in found.items() if name not in FILES_ONLY}


@pytest.mark.parametrize("name", list_statements())
def test_a_statement_is_limited_to_tenant_and_user(name):
    """As it is written, in its own query and without OR beside it."""
    assert find_unbounded(list_statements()[name]) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM notes WHERE tenant = :tenant AND user_id = :user AND (a OR b)",
        "SELECT 1 FROM notes AS n WHERE user_id = ?2 AND n.tenant = :tenant",
        "SELECT 1 FROM users, notes AS n JOIN messages m ON m.tenant = :tenant AND m.user_id = :user WHERE n.tenant = :tenant AND n.user_id = :user AND users.tenant = :tenant",
        "SELECT 1 FROM f(1, notes) AS j WHERE a IS NOT DISTINCT FROM notes OR 'FROM notes' -- FROM notes",
        "INSERT INTO notes (tenant, user_id, a) VALUES (:tenant, :user, f(?, 1)) ON CONFLICT (tenant, user_id, a) DO UPDATE SET a = 1",
        "INSERT INTO notes AS n (a, user_id, tenant) SELECT ?, :user, :tenant FROM other WHERE b",
        "INSERT INTO users (tenant, id) VALUES (:tenant, ?) ON CONFLICT (tenant, id) DO NOTHING",
        "UPDATE notes AS n SET a = 1 WHERE n.tenant = :tenant AND n.user_id = :user RETURNING 1",
        "DELETE FROM notes WHERE /*! tenant = :tenant AND user_id = :user AND */ a = ?",
        "SELECT pg_advisory_xact_lock(?)",
    ],
)
def test_a_limited_statement_passes(sql):
    """Conditions may name the table, its alias or nothing; a function or a string is no table."""
    assert find_unbounded(sql) == []


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT 1 FROM notes", "notes is not limited by tenant"),
        ("SELECT 1 FROM notes WHERE tenant = :tenant", "notes is not limited by user_id"),
        ("SELECT 1 FROM notes WHERE tenant = ? AND user_id = :user", "notes is not limited by tenant"),
        ("SELECT 1 FROM notes WHERE tenant = :tenant AND user_id = 'anna'", "notes is not limited by user_id"),
        ("SELECT 1 FROM notes WHERE tenant = :tenant AND user_id = :user OR a", "OR beside"),
        ("SELECT 1 FROM notes n, messages m WHERE m.tenant = :tenant AND m.user_id = :user", "n is not limited"),
        ("SELECT 1 FROM notes n, messages m WHERE tenant = :tenant AND user_id = :user", "n is not limited"),
        ("SELECT (SELECT 1 FROM notes) FROM messages WHERE tenant = :tenant AND user_id = :user", "notes is not"),
        ("SELECT 1 FROM notes WHERE tenant = :tenant AND user_id = :user UNION SELECT 1 FROM messages", "messages is not"),
        ("WITH gone AS (DELETE FROM notes) SELECT 1 FROM gone", "notes is not limited"),
        ("UPDATE notes SET a = 1 WHERE user_id = :user", "notes is not limited by tenant"),
        ("INSERT INTO notes (a) VALUES (1)", "does not store the tenant"),
        ("INSERT INTO notes (tenant, user_id) VALUES (:tenant, 'anna')", "does not store the user_id"),
        ("INSERT INTO notes SELECT 1", "names no columns"),
        ("INSERT INTO notes (tenant, user_id) VALUES (:tenant, :user) ON CONFLICT (a) DO NOTHING", "the key of ON CONFLICT"),
        ("DELETE FROM users WHERE id = ?", "users is not limited by tenant"),
    ],
)  # fmt: skip
def test_a_statement_without_limits_is_noticed(sql, problem):
    """Whatever is read, changed or stored, also in a part of it."""
    assert any(problem in one for one in find_unbounded(sql))


def test_statements_that_are_built_are_limited_too():
    """That of statistics counts the rows of every table; tests on a server check all others as they run."""
    assert find_unbounded(size_statement()) == []
    assert size_statement().count("FROM") == len(list_user_tables())


@pytest.fixture(scope="module")
def unlimited(postgres_server):
    """A connection of a role that row-level security does not bind, so that plans show the conditions of statements."""
    url = postgres_server.create_database()
    with psycopg.connect(postgres_server.owner_url(url), cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("SET search_path = kept")
        connection.execute("SET row_security = off")
        yield connection
    postgres_server.drop_database(url)


def list_nodes(plan):
    """Return a node of a plan with all below it."""
    return [plan, *(node for child in plan.get("Plans", ()) for node in list_nodes(child))]


def explain(connection, statement):
    """Return the nodes of the plan of a statement for the user U! of the tenant T!."""
    arrays = set(re.findall(r"ANY\((:\w+|\?\d*)\)|ALL\((:\w+|\?\d*)\)|unnest\((:\w+)", statement))
    lists = {name for names in arrays for name in names if name}
    unit = Unit(None, is_writing=True, owner=Owner("T!", "U!"))
    sql, named = unit.bind(statement)
    values = {name: "{1}" if f":{name}" in lists else "1" for name in re.findall(r"%\((\w+)\)s", sql.decode())}
    rows = connection.execute(b"EXPLAIN (FORMAT JSON, VERBOSE) " + sql, values | named).fetchall()
    found = rows[0][0] if isinstance(rows[0][0], list) else json.loads(rows[0][0])
    return list_nodes(found[0]["Plan"])


def test_plans_read_and_write_rows_of_the_user_only(unlimited):
    """As PostgreSQL understands the statements: each scan has both conditions, each new row both values."""
    scans = stored = 0
    for name, statement in list_statements().items():
        text = str(statement.for_server)
        if not re.search(r"\b(tenant|user)\b", text) or text.startswith(("PRAGMA", "CREATE")):
            continue
        with unlimited.transaction(force_rollback=True):
            nodes = explain(unlimited, statement)
        for node in nodes:
            table = node.get("Relation Name")
            if table not in list_user_tables() | list_tenant_tables():
                continue
            if node["Node Type"] == "ModifyTable":
                if node["Operation"] == "Insert":
                    values = " ".join(str(child.get("Output")) for child in list_nodes(node))
                    assert "T!" in values, f"{name} stores another tenant in {table}: {values}"
                    # or that of the rows that are copied
                    own = ("'U!'", ".user_id'")
                    assert table in list_tenant_tables() or any(one in values for one in own), f"{name}: {values}"
                    stored += 1
                continue
            conditions = " ".join(str(node.get(key, "")) for key in ("Index Cond", "Filter", "Recheck Cond"))
            conditions += " ".join(str(child.get("Index Cond", "")) for child in node.get("Plans", ()))
            assert "tenant = 'T!'" in conditions, f"{name} reads {table} of other tenants: {conditions}"
            needed = table in list_user_tables()
            assert not needed or "user_id = '" in conditions, f"{name} reads {table} of other users: {conditions}"
            scans += 1
    assert (scans > 200, stored > 30) == (True, True), (scans, stored)

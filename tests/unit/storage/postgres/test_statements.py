"""Statements on their way to PostgreSQL, errors on their way back, rows that are copied; no server is needed here."""

import re
from types import SimpleNamespace

import apsw
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from wellkept.core.errors import Busy, ConfigError, NewerDatabase, StorageError, Unreadable, UsageError
from wellkept.storage.postgres import schema
from wellkept.storage.postgres.database import parse_url
from wellkept.storage.postgres.errors import Place, is_lost, translate
from wellkept.storage.postgres.rows import FileTables, _hash, copy_table
from wellkept.storage.postgres.statements import adapt, by_name, make_key
from wellkept.storage.postgres.unit import Owner, Unit

MINE = "tenant = %(kept_tenant)s AND user_id = %(kept_user)s"


def of_user(table):
    """Return what is read in place of a table of users."""
    return f"(SELECT * FROM {table} WHERE {MINE})"


def limit(name):
    """Return the condition on the rows that a statement changes."""
    return f"{name}.tenant = %(kept_tenant)s AND {name}.user_id = %(kept_user)s"


def read(sql):
    """Return a statement as PostgreSQL takes it, with single spaces."""
    return re.sub(r"\s+", " ", adapt(sql).sql.decode()).strip()


MESSAGES, NOTES, SESSIONS = of_user("messages"), of_user("notes"), of_user("sessions")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM messages", f"SELECT * FROM {MESSAGES} AS messages"),
        ("SELECT * FROM messages ORDER BY id", f"SELECT * FROM {MESSAGES} AS messages ORDER BY id"),
        ("SELECT m.id FROM messages m", f"SELECT m.id FROM {MESSAGES} m"),
        ("SELECT 1 FROM messages AS m JOIN sessions AS s ON true",
         f"SELECT 1 FROM {MESSAGES} AS m JOIN {SESSIONS} AS s ON true"),
        ("SELECT 1 FROM users AS u, messages AS m, notes WHERE f(1, notes)",
         f"SELECT 1 FROM users AS u, {MESSAGES} AS m, {NOTES} AS notes WHERE f(1, notes)"),
        ("SELECT 1 FROM f(1, notes) AS j, messages", f"SELECT 1 FROM f(1, notes) AS j, {MESSAGES} AS messages"),
        ("SELECT 1 FROM -- all, notes\nmessages", f"SELECT 1 FROM -- all, notes {MESSAGES} AS messages"),
        ("SELECT (SELECT 1 FROM messages), notes FROM users, notes",
         f"SELECT (SELECT 1 FROM {MESSAGES} AS messages), notes FROM users, {NOTES} AS notes"),
        ("SELECT 1 FROM users GROUP BY id, notes", "SELECT 1 FROM users GROUP BY id, notes"),
        ("SELECT a IS NOT DISTINCT FROM messages FROM users", "SELECT a IS NOT DISTINCT FROM messages FROM users"),
        ("SELECT 'FROM messages'", "SELECT 'FROM messages'"),
    ],
)  # fmt: skip
def test_only_rows_of_the_user_are_read(sql, expected):
    """Wherever a table of users is read: alone, joined, in a list, with or without another name."""
    assert read(sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("DELETE FROM messages", f"DELETE FROM messages WHERE {limit('messages')}"),
        ("DELETE FROM messages WHERE a OR b", f"DELETE FROM messages WHERE {limit('messages')} AND ( a OR b )"),
        ("DELETE FROM messages WHERE a RETURNING id",
         f"DELETE FROM messages WHERE {limit('messages')} AND ( a ) RETURNING id"),
        ("UPDATE messages SET a = 1 WHERE b;", f"UPDATE messages SET a = 1 WHERE {limit('messages')} AND ( b ) ;"),
        ("UPDATE messages AS m SET a = 1 RETURNING 1", f"UPDATE messages AS m SET a = 1 WHERE {limit('m')} RETURNING 1"),
        ("UPDATE messages m SET a = 1 WHERE b -- c\n",
         f"UPDATE messages m SET a = 1 WHERE {limit('m')} AND ( b -- c )"),
        ("WITH gone AS (DELETE FROM messages WHERE a) SELECT 1 FROM gone WHERE b",
         f"WITH gone AS (DELETE FROM messages WHERE {limit('messages')} AND ( a ) ) SELECT 1 FROM gone WHERE b"),
        ("WITH gone AS (UPDATE messages SET a = 1) SELECT 1",
         f"WITH gone AS (UPDATE messages SET a = 1 WHERE {limit('messages')} ) SELECT 1"),
        ("DELETE FROM messages WHERE id IN (SELECT id FROM notes WHERE a)",
         f"DELETE FROM messages WHERE {limit('messages')} AND ( id IN (SELECT id FROM {NOTES} AS notes WHERE a) )"),
        ("UPDATE messages SET a = (SELECT 1 FROM notes WHERE b)",
         f"UPDATE messages SET a = (SELECT 1 FROM {NOTES} AS notes WHERE b) WHERE {limit('messages')}"),
        ("DELETE FROM users WHERE a", "DELETE FROM users WHERE a"),
        ("UPDATE users SET a = 1", "UPDATE users SET a = 1"),
    ],
)  # fmt: skip
def test_only_rows_of_the_user_are_changed(sql, expected):
    """The condition of the statement stays whole, whatever it is, and ends where the statement or its part ends."""
    assert read(sql) == expected


def test_a_statement_about_places_of_rows_names_the_user_itself():
    """The place of a row is not seen through a subquery."""
    sql = "DELETE FROM notes WHERE user_id = ? AND ctid = ?::tid"

    assert read(sql) == "DELETE FROM notes WHERE user_id = %(p1)s AND ctid = %(p2)s::tid"


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("INSERT INTO notes (a) VALUES (1) ON CONFLICT (a) DO NOTHING", "(tenant, user_id, a)"),
        ("INSERT INTO notes (a) VALUES (1) ON CONFLICT (user_id, a) DO NOTHING", "(tenant, user_id, a)"),
        ("INSERT INTO notes (a) VALUES (1) ON CONFLICT (tenant, a) DO NOTHING", "(tenant, a)"),
        ("INSERT INTO moved_chats (a)\nVALUES (1) ON CONFLICT (a) DO NOTHING", "(tenant, a)"),
        ("INSERT INTO platform_people (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 2", "(tenant, a)"),
    ],
)
def test_every_unique_key_begins_with_the_tenant(sql, key):
    """And with the user, except in tables of the whole home."""
    assert f"ON CONFLICT {key} DO" in read(sql)


@pytest.mark.parametrize(
    ("sql", "users"),
    [
        ("SELECT 1 FROM notes WHERE user_id = ? AND a = ?", {"p1"}),
        ("SELECT 1 FROM notes WHERE a = ? AND :who = user_id", {"who"}),
        ("SELECT 1 FROM notes WHERE user_id < ? AND ? < a", {"p1"}),
        ("SELECT 1 FROM notes WHERE user_id = a", set()),
        ("INSERT INTO notes (a, user_id) VALUES (?, ?)", {"p2"}),
        ("INSERT INTO notes (user_id, a) VALUES (?, ?)", {"p1"}),
        ("INSERT INTO notes (user_id, a) VALUES (f(?, 1), ?)", set()),
        ("INSERT INTO notes (a, user_id) VALUES (f(1, ?), :who)", {"who"}),
        ("INSERT INTO notes AS n (user_id, a) SELECT ?, a FROM sessions WHERE b = ?", {"p1"}),
        ("INSERT INTO notes (a, user_id) SELECT f(1, 2), ? WHERE b = ?", {"p1"}),
        ("INSERT INTO notes (a) VALUES (?)", set()),
        ("INSERT INTO notes SELECT ?", set()),
        ("INSERT INTO notes (user_id, a) SELECT * FROM sessions", set()),
        ("INSERT INTO notes (user_id)", set()),
    ],
)
def test_values_that_are_users_are_found(sql, users):
    """Compared with the column of the user, or stored in it; only they are replaced by the key of a long id."""
    assert adapt(sql).users == users


def test_the_id_of_a_user_is_bound_as_its_key():
    """Only where it is a user, and only that of the transaction."""
    unit = Unit(None, is_writing=True, owner=Owner("acme", "key", "id"))
    sql = "SELECT 1 FROM notes WHERE user_id = ? AND a = ?"

    bound = unit.bind(sql, ("id", "id"))[1]
    assert bound == {"p1": "key", "p2": "id", "kept_tenant": "acme", "kept_user": "key"}
    assert unit.bind(sql, ("other", "id"))[1]["p1"] == "other"
    assert Unit(None, is_writing=True).bind("SELECT ? FROM notes", (1,)) == (b"SELECT %(p1)s FROM notes", {"p1": 1})
    assert by_name({"a": 1}) == {"a": 1}


def test_only_an_id_that_no_index_could_hold_is_shortened():
    """It keeps its beginning, so that a person can recognise it, and gets its hash."""
    assert make_key("x" * 256) == "x" * 256
    for identity in ("x" * 257, "ä" * 129):
        key = make_key(identity)
        assert key.startswith(f"{identity[:32]}")
        assert len(key.partition("~sha256:")[0].encode()) == 64
        assert len(key.partition("~sha256:")[2]) == 64
    for odd in ("", "a\0b", "\ufdd0", "a~sha256:b", "\ud800"):
        assert "~sha256:" in make_key(odd)
        assert make_key(odd) != odd


# addresses


def test_an_address_gets_what_it_does_not_say():
    """How long to wait for the server, and who asks; what it does say stays."""
    found = conninfo_to_dict(parse_url(" postgres://an%40na:s@db.example:6000/ke%2Fpt ")[0])
    assert (found["user"], found["dbname"], found["port"]) == ("an@na", "ke/pt", "6000")
    assert (found["connect_timeout"], found["application_name"]) == ("5", "kept")

    said = "postgresql://anna@db.example/kept?connect_timeout=9&application_name=mine&port=7"
    address, place = parse_url(said)
    assert conninfo_to_dict(address) == conninfo_to_dict(said)
    assert (place.port, str(place)) == ("7", "PostgreSQL at db.example:7")
    assert parse_url("postgresql://?host=h&user=u&dbname=d")[1].__dict__ == {
        "host": "h", "port": "5432", "database": "d", "role": "u",
    }  # fmt: skip


@pytest.mark.parametrize("url", ["postgresql://a%00b@h/d", "postgresql://a@h/d%00"])
def test_an_address_without_sense_is_refused(url):
    """The driver would cut it."""
    with pytest.raises(ConfigError, match="NUL"):
        parse_url(url)


# errors

HERE = Place(host="db.example", port="5432", database="kept", role="anna")


def failure(state, text="said\nDETAIL: a text of somebody"):
    """Return an error of the driver with this code."""
    kind = type("Failure", (psycopg.OperationalError,), {"sqlstate": state})
    return kind(text)


@pytest.mark.parametrize(
    ("state", "kind", "said"),
    [
        ("28P01", StorageError, "PostgreSQL at db.example:5432 refused the password of 'anna'"),
        ("3D000", StorageError, "has no database 'kept'"),
        ("42P01", StorageError, "'kept' lacks a table: said"),
        ("42501", StorageError, "'anna' may not do this: said"),
        ("53300", Busy, "is out of connections"),
        ("40P01", Busy, "two writers waited for each other"),
        ("XX001", Unreadable, "'kept' is damaged: said"),
        ("54000", UsageError, "too long for PostgreSQL at"),
        ("08006", StorageError, "the connection to PostgreSQL at db.example:5432 was lost"),
        ("57P05", StorageError, "was ended by the server"),
        ("53999", Busy, "is short of a resource: said"),
        ("40999", Busy, "rolled a transaction back: said"),
        ("99999", StorageError, "refused a statement: said"),
    ],
)
def test_an_error_of_the_server_is_one_line_in_our_words(state, kind, said):
    """By its code, else by the class of its code; never with the details, which may hold texts of people."""
    error = translate(failure(state), HERE)

    assert type(error) is kind
    assert said in error.message
    assert "somebody" not in str(error)
    assert error.remedy


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ('connection failed: FATAL:  password authentication failed for user "anna"', StorageError, "refused the password"),
        ('FATAL:  role "anna" does not exist', StorageError, "does not let 'anna' in: role \"anna\" does not exist"),
        ("FATAL:  sorry, too many clients already", Busy, "out of connections"),
        ("FATAL:  the database system is starting up", Busy, "starting or stopping"),
        ("session is read-only", StorageError, "is read-only"),
        ("Connection refused\n\tIs the server running?", StorageError, "does not answer: connection refused"),
        ("timeout expired", StorageError, "does not answer in time"),
        ("Name or service not known", StorageError, "cannot be found: unknown host name"),
        ("no route to host", StorageError, "cannot be reached"),
        ("server closed the connection unexpectedly", StorageError, "is gone"),
        ("odd", StorageError, "cannot be used: odd"),
        ("", StorageError, "cannot be used: Failure"),
    ],
)  # fmt: skip
def test_a_failed_connection_is_explained_by_its_text(text, kind, said):
    """The library of the driver gives no code for it."""
    error = translate(failure(None, text), HERE)

    assert type(error) is kind
    assert said in error.message


def test_a_statement_that_the_server_does_not_know_asks_for_a_newer_one():
    """The connection is not at fault."""
    error = psycopg.NotSupportedError("no such feature")

    assert translate(error, HERE).remedy == "use a newer server"
    assert len(translate(psycopg.DataError("x" * 500), HERE).message) < 400


def test_only_a_lost_connection_may_be_replaced():
    """A code of the server says that it is there."""
    assert [is_lost(failure(state)) for state in (None, "08003", "57P01")] == [True] * 3
    assert [is_lost(failure(state)) for state in ("57014", "42P01", "25006")] == [False] * 3
    assert not is_lost(psycopg.DataError("x"))


# the schema


def test_a_server_or_schema_that_does_not_fit_is_named():
    """Version 14 is enough; a migration that this kept does not know is one of a newer kept."""

    def connection(version):
        return SimpleNamespace(info=SimpleNamespace(server_version=version))

    schema._refuse_old(connection(140_000), HERE)
    with pytest.raises(StorageError, match=r"is version 13 \(kept needs PostgreSQL 14"):
        schema._refuse_old(connection(139_999), HERE)
    schema._refuse_newer(set(schema.list_migrations()), HERE)
    with pytest.raises(NewerDatabase, match="has migration 9999, this kept knows"):
        schema._refuse_newer({9_999, 1, 9_998}, HERE)


def test_the_statements_for_the_serving_role():
    """It may read and write rows and take numbers, and no more; quotes in names and passwords end nothing."""
    made = schema.role_statements("kept_serving", database='odd"name', password="it's")

    assert made[1] == "ALTER ROLE kept_serving LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE PASSWORD 'it''s'"
    assert made[2] == 'GRANT CONNECT ON DATABASE "odd""name" TO kept_serving'
    assert sum("SELECT, INSERT, UPDATE, DELETE ON" in one for one in made) == 2
    assert "PASSWORD" not in schema.role_statements("a", database="kept")[1]
    assert schema.role_statements("a" * 63, database="kept")
    with pytest.raises(UsageError):
        schema.role_statements("a" * 64, database="kept")


# rows of whole tables

CONDITIONS = {"notes": "user_id = :user", "edits": "1"}
TABLES = "CREATE TABLE notes (id INTEGER PRIMARY KEY, user_id TEXT, text TEXT, checksum INTEGER{more}); CREATE TABLE edits (id, checksum)"


class Side(FileTables):
    """A database in memory with two tables, which can lose what is written to it."""

    def __init__(self, user="anna", *, more="", lose=0):
        self.connection = apsw.Connection(":memory:")
        self.connection.execute(TABLES.format(more=more))
        self.sizes = []
        self._lose = lose
        super().__init__(self.connection, user, CONDITIONS)

    def put(self, *rows):
        self.connection.executemany("INSERT INTO notes (id, user_id, text, checksum) VALUES (?, ?, ?, 7)", rows)
        return self

    def write(self, table, columns, rows):
        self.sizes.append(len(rows))
        super().write(table, columns, rows[self._lose :])

    @property
    def notes(self):
        return self.connection.execute("SELECT id, user_id, text, checksum FROM notes ORDER BY id").fetchall()


def copy(source, target, table="notes", *, exact=True):
    told = []
    return copy_table(source, target, table, exact=exact, report=told.append), told


def test_the_rows_of_one_user_are_copied():
    """Under the user of the target; a checksum is computed there, except where it is a part of the row."""
    source = Side(more=", newer").put((1, "anna", "a"), (2, "ben", "b"), (3, "anna", None))
    target = Side("carl").put((9, "ben", "stays"))

    done, told = copy(source, target)

    assert (done.table, done.rows, done.was_there, told) == ("notes", 2, False, [2])
    assert target.notes == [(1, "carl", "a", None), (3, "carl", None, None), (9, "ben", "stays", 7)]
    again, told = copy(source, target)
    assert (again.was_there, again.rows, again.checksum, told) == (True, 2, done.checksum, [])
    assert len(done.checksum) == 16
    source.connection.execute("INSERT INTO edits VALUES (1, 5)")
    copy(source, target, "edits")
    assert target.connection.execute("SELECT * FROM edits").fetchall() == [(1, 5)]


def test_what_an_interrupted_copy_has_left_is_completed():
    """Only what is missing is written; rows that differ are written again."""
    source = Side().put((1, "anna", "a"), (2, "anna", "b"), (3, "anna", "c"))
    begun = Side().put((1, "anna", "a"))
    wrong = Side().put((1, "anna", "x"), (4, "anna", "y"))

    assert copy(source, begun)[1] == [2]
    assert copy(source, wrong)[1] == [3]
    assert [row[::2] for row in begun.notes] == [row[::2] for row in wrong.notes] == [(1, "a"), (2, "b"), (3, "c")]


def test_a_target_in_use_keeps_its_own_rows():
    """It has to hold the rows of the source, and may hold others."""
    source, target = Side().put((1, "anna", "a")), Side().put((4, "anna", "y"))

    assert copy(source, target, exact=False)[0].rows == 1
    assert [row[2] for row in target.notes] == ["a", "y"]
    assert copy(source, target, exact=False)[0].was_there
    source.put((2, "anna", "b"))
    assert copy(source, target, exact=False)[1] == [1]


def test_long_tables_are_copied_in_batches(monkeypatch):
    """A copy that is killed loses no more than one of them."""
    monkeypatch.setattr("wellkept.storage.postgres.rows.BATCH", 2)
    source, target = Side().put(*((n, "anna", str(n)) for n in range(5))), Side()

    assert copy(source, target)[1] == [2, 4, 5]
    assert target.sizes == [2, 2, 1]


@pytest.mark.parametrize("exact", [True, False])
def test_rows_that_did_not_arrive_are_an_error(exact):
    """With their number and what to do."""
    source, target = Side().put((1, "anna", "a"), (2, "anna", "b"), (3, "anna", "c")), Side(lose=2)

    with pytest.raises(StorageError, match="notes: 2 rows differ after the copy"):
        copy(source, target, exact=exact)


def test_rows_that_come_from_elsewhere_meanwhile_are_an_error():
    """Somebody else writes to a target that must hold nothing else."""

    class Busy(Side):
        def write(self, table, columns, rows):
            super().write(table, columns, [*rows, (9, "theirs")])

    with pytest.raises(StorageError, match="notes: 1 rows differ"):
        copy(Side().put((1, "anna", "a")), Busy())


def test_numbers_are_compared_by_their_value():
    """SQLite gives a whole number from a column of any type as an integer, a server as it declares it."""
    assert _hash((1.0, "a", None)) == _hash((1, "a", None))
    assert len({_hash((value,)) for value in (1, 1.5, 2, "1", None, b"1")}) == 6

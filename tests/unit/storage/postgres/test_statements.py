"""Statements on their way to PostgreSQL, errors on their way back, rows that are copied; no server is needed here."""

from types import SimpleNamespace

import apsw
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from wellkept.core.errors import Busy, ConfigError, NewerDatabase, StorageError, Unreadable, UsageError
from wellkept.storage.connections import Statements
from wellkept.storage.postgres import schema
from wellkept.storage.postgres.database import make_key, parse_url
from wellkept.storage.postgres.errors import Place, is_lost, translate
from wellkept.storage.postgres.rows import FileTables, _hash, copy_table
from wellkept.storage.postgres.unit import Owner, Unit, to_driver

PARAGRAPHS = """-- name: plain
SELECT 1 FROM notes WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?;

-- name: other, short
SELECT value FROM json_each(?);
"""


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT ? WHERE a = ?", "SELECT %(p1)s WHERE a = %(p2)s"),
        ("SELECT ?2, ?1, ?1", "SELECT %(p2)s, %(p1)s, %(p1)s"),
        ("SELECT :user, :a_b", "SELECT %(user)s, %(a_b)s"),
        ("SELECT ?::text, ':a ? %', 1 % 2", "SELECT %(p1)s::text, ':a ? %%', 1 %% 2"),
        ("SELECT 1 -- :a ? 5 %\n, ?", "SELECT 1 -- :a ? 5 %%\n, %(p1)s"),
        ("SELECT 1 WHERE /*! tenant = :tenant AND */ a = ?", "SELECT 1 WHERE tenant = %(tenant)s AND a = %(p1)s"),
        ("INSERT INTO a (/*! tenant, */ b) VALUES (/*! :tenant, */ ?)",
         "INSERT INTO a (tenant, b) VALUES (%(tenant)s, %(p1)s)"),
    ],
)  # fmt: skip
def test_only_the_notation_of_a_statement_changes(statement, expected):
    """Placeholders and the parts that are a comment for SQLite; strings, comments and casts stay."""
    assert to_driver(statement).decode() == expected


def test_a_statement_has_another_text_where_one_stands_beside_it(tmp_path, monkeypatch):
    """In FILE.postgres.sql, by its name; the flag is that of the text that is sent."""
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "a.sql").write_text(PARAGRAPHS.replace(", short", ""))
    monkeypatch.setattr("wellkept.storage.connections.resource_path", lambda _, *names: tmp_path.joinpath(*names))
    monkeypatch.setattr(
        "wellkept.storage.connections.resource_text", lambda _, *names: tmp_path.joinpath(*names).read_text()
    )
    alone = Statements("here", "a.sql")
    assert (alone.plain.for_server, alone.other.for_server) == (alone.plain, alone.other)
    (tmp_path / "a.postgres.sql").write_text("-- name: other, short\nSELECT json_array_elements_text(?);\n")
    both = Statements("here", "a.sql")

    assert both.other == "SELECT value FROM json_each(?)"
    assert (both.other.for_server, both.other.for_server.is_short) == ("SELECT json_array_elements_text(?)", True)
    assert (both.plain.for_server, both.plain.is_short, both.other.is_short) == (both.plain, False, False)
    with pytest.raises(AttributeError, match="no statement 'missing'"):
        _ = both.missing


def test_tenant_and_user_are_those_of_the_transaction():
    """Whatever the caller binds; a value without a name is the caller's."""
    unit = Unit(None, is_writing=True, owner=Owner("acme", "key"))

    assert unit.bind("SELECT ?, :user", ("id",)) == (
        b"SELECT %(p1)s, %(user)s", {"p1": "id", "tenant": "acme", "user": "key"}
    )  # fmt: skip
    assert unit.bind("SELECT :a", {"a": [1, 2], "user": "other"})[1] == {"a": "{1,2}", "tenant": "acme", "user": "key"}
    assert Unit(None, is_writing=True).bind("SELECT ? FROM a", (1,)) == (b"SELECT %(p1)s FROM a", {"p1": 1})


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

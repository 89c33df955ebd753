"""What a file declares: its version, whether it is ours, and the shapes of its records."""

from contextlib import closing

import apsw
import pytest

from wellkept.salvage.pages import PageFile
from wellkept.salvage.rows import SCHEMA, Salvage, Shape, describe_shapes
from wellkept.storage.connections import Migration
from wellkept.storage.versions import (
    build_reference,
    find_version,
    holds_later_tables,
    is_of_another_program,
    is_schema_of,
    is_schema_whole,
)

STEPS = (
    Migration(1, "CREATE TABLE facts (text TEXT); CREATE TABLE places (name TEXT)"),
    Migration(2, "ALTER TABLE facts ADD COLUMN seen INTEGER"),
    Migration(4, "CREATE TABLE later (x); CREATE INDEX later_x ON later (x)"),
)


def make(tmp_path, version, *statements, header=None):
    """Write a file with the schema of a version and more."""
    path = tmp_path / "a.db"
    path.unlink(missing_ok=True)
    with closing(apsw.Connection(str(path))) as connection, closing(build_reference(STEPS, version)) as made:
        for (sql,) in made.execute("SELECT sql FROM sqlite_schema").fetchall():
            connection.execute(str(sql))
        for sql in statements:
            connection.execute(sql)
        connection.pragma("user_version", version if header is None else header)
    return path


def salvage(path):
    return Salvage(PageFile(path))


@pytest.mark.parametrize("version", [1, 2, 4])
@pytest.mark.parametrize("header", [None, 0, 3, 4, 1])
def test_the_version_is_what_the_declarations_say(tmp_path, version, header):
    """Whatever the header says, also with tables of indexes beside them, which no migration makes."""
    path = make(tmp_path, version, "CREATE TABLE message_words (x)", "CREATE TABLE vectors (x)", header=header)

    assert find_version(salvage(path), STEPS) == version


def test_a_table_of_somebody_is_no_sign_of_another_version(tmp_path):
    """What fits best counts, and of what fits equally the version of the header."""
    same = (Migration(1, "CREATE TABLE t (a)"), Migration(2, "INSERT INTO t VALUES (1)"), Migration(3, "DELETE FROM t"))
    path = tmp_path / "b.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE t (a)")
        for header, expected in ((2, 2), (1, 1), (0, 3), (9, 3)):
            connection.pragma("user_version", header)
            assert find_version(salvage(path), same) == expected
    assert find_version(salvage(make(tmp_path, 2, "CREATE TABLE own (x)")), STEPS) == 2


@pytest.mark.parametrize(("header", "expected"), [(0, 4), (5, 4), (1, 1), (2, 2), (3, 4), (4, 4)])
def test_without_declarations_the_header_is_believed(tmp_path, header, expected):
    """If it names a version that there is; else the file is taken for one of the newest."""
    path = make(tmp_path, 4, header=header)
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes(len(data) - 100))

    assert find_version(salvage(path), STEPS) == expected


def test_a_file_has_our_schema_or_not(tmp_path):
    """Exactly that of the newest version, apart from comments, quotes, line breaks and tables of indexes."""
    assert is_schema_of(make(tmp_path, 4, header=77), STEPS)
    assert is_schema_of(make(tmp_path, 4, "CREATE TABLE next_words (x)"), STEPS)
    assert not is_schema_of(make(tmp_path, 2), STEPS)
    assert not is_schema_of(make(tmp_path, 4, "CREATE TABLE own (x)"), STEPS)
    assert not is_schema_of(make(tmp_path, 4, "ALTER TABLE later ADD COLUMN y"), STEPS)
    odd = (Migration(1, 'CREATE TABLE "t" (a, -- one\n\n  b)'),)
    path = tmp_path / "b.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE t (a, b)")
    assert is_schema_of(path, odd)


@pytest.mark.parametrize(("theirs", "expected"), [(3, False), (4, False), (5, True)])
def test_a_file_with_mostly_other_tables_is_of_another_program(tmp_path, theirs, expected):
    """Of four declarations of ours at most as many others may be there."""
    path = make(tmp_path, 4, *(f"CREATE TABLE their_{n} (x)" for n in range(theirs)))

    assert is_of_another_program(salvage(path), STEPS) is expected


def test_an_empty_file_is_of_nobody(tmp_path):
    """It declares nothing, so nothing of it is foreign."""
    path = tmp_path / "a.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE t (a); DROP TABLE t")

    assert not is_of_another_program(salvage(path), STEPS)


@pytest.mark.parametrize(
    ("damage", "is_whole"),
    [
        ("SELECT 1", True),
        ("CREATE TABLE more (x)", True),
        ("DROP INDEX later_x", False),
        ("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET type = 'tablf' WHERE name = 'later_x'", False),
        ("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET tbl_name = 'x' WHERE name = 'later_x'", False),
    ],
)
def test_a_schema_is_whole_when_everything_is_declared(tmp_path, damage, is_whole):
    """Also the kind and the table of a declaration, which SQLite does not check."""
    path = make(tmp_path, 4)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(damage)

        assert is_schema_whole(connection, STEPS) is is_whole


def test_tables_of_a_later_version_are_noticed(tmp_path):
    """A header that names an older version than the tables have is damaged."""
    with closing(apsw.Connection(str(make(tmp_path, 4)))) as connection:
        assert [holds_later_tables(connection, STEPS, version) for version in (1, 2, 3, 4)] == [True, True, True, False]
    with closing(apsw.Connection(str(make(tmp_path, 2)))) as connection:
        assert not holds_later_tables(connection, STEPS, 2)


# shapes

DECLARED = """
CREATE TABLE one (id INTEGER PRIMARY KEY AUTOINCREMENT, name VARCHAR(9) NOT NULL, size BIGINT NOT NULL DEFAULT 1, w DOUBLE,
  any, raw BLOB, t CLOB, f FLOAT, d DECIMAL);
CREATE INDEX one_name ON one (name) WHERE size > 1;
CREATE TABLE two (b TEXT, a INTEGER NOT NULL, c REAL, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE INDEX two_c ON two (c);
CREATE TABLE three (k TEXT PRIMARY KEY, v INT);
CREATE VIEW four AS SELECT 1;
"""


@pytest.fixture(scope="module")
def shapes():
    with closing(apsw.Connection(":memory:")) as connection:
        connection.execute(DECLARED)
        return {shape.name: shape for shape in describe_shapes(connection)}


def test_the_shapes_of_tables_and_indexes(shapes):
    """In the order of the record: a table without numbers begins with its key, an index ends with it."""
    assert set(shapes) == {"one", "one_name", "two", "two_c", "three", "sqlite_autoindex_three_1", "sqlite_sequence"}
    assert shapes["one"] == Shape(
        "one", "one", ("id", "name", "size", "w", "any", "raw", "t", "f", "d"),
        ("INTEGER", "TEXT", "INTEGER", "REAL", "", "BLOB", "TEXT", "REAL", ""),
        (False, True, False, False, False, False, False, False, False), has_numbers=True, alias=0, key=("rowid",),
    )  # fmt: skip
    assert shapes["two"] == Shape(
        "two", "two", ("a", "b", "c"), ("INTEGER", "TEXT", "REAL"), (True, True, False),
        has_numbers=False, key=("a", "b"),
    )  # fmt: skip
    assert shapes["three"].alias is None
    assert shapes["one_name"] == Shape(
        "one_name", "one", ("name", "rowid"), ("TEXT", "INTEGER"), (False, True),
        has_numbers=False, key=("rowid",), is_partial=True,
    )  # fmt: skip
    assert (shapes["two_c"].columns, shapes["two_c"].is_partial) == (("c", "a", "b"), False)
    assert shapes["sqlite_sequence"].affinities == ("TEXT", "INTEGER")
    assert shapes["sqlite_sequence"].required == (True, True)
    assert [shapes[name].is_index for name in ("one", "one_name")] == [False, True]


NULL, NUMBER, FLOAT, BYTES, TEXT = 0, 6, 7, 12, 13


@pytest.mark.parametrize(
    ("name", "types", "accepted"),
    [
        ("two", [NUMBER, TEXT, FLOAT], True),
        ("two", [NUMBER, TEXT, NULL], True),
        ("two", [NUMBER, TEXT], True),  # a column that was added later
        ("two", [NUMBER, TEXT, 9], True),  # a whole number in a column of reals
        ("two", [NUMBER, TEXT, 10], False),
        ("two", [NUMBER, TEXT, TEXT], False),
        ("two", [NULL, TEXT, FLOAT], False),
        ("two", [NUMBER], False),
        ("two", [FLOAT, TEXT], False),
        ("two", [10, TEXT], False),
        ("two", [NUMBER, BYTES], False),
        ("two", [NUMBER, 11], False),
        ("two", [NUMBER, TEXT, FLOAT, NULL], False),
        ("two", [], False),
        ("one", [NULL, TEXT], True),
        ("one", [NUMBER, TEXT], False),  # the number of a row is stored as NULL
        ("one", [NULL, TEXT, 8, NULL, TEXT, BYTES], True),
        ("one", [NULL, TEXT, 1, 9, 9, TEXT], True),
        ("one", [NULL, TEXT, NULL, NULL, NULL, 9], False),
    ],
)
def test_a_record_fits_a_shape_by_its_types(shapes, name, types, accepted):
    """Every value has the type of its column or is NULL where it may be, and none is too many."""
    assert shapes[name].accepts(types) is accepted


def test_of_two_shapes_the_stricter_one_asks_for_more(shapes):
    """Types and columns that must be there count."""
    assert (shapes["one"].strictness, shapes["two"].strictness) == (8, 5)


@pytest.mark.parametrize(
    ("types", "accepted"),
    [
        ([TEXT, TEXT, TEXT, 1, TEXT], True),
        ([TEXT, TEXT, TEXT, 1, NULL], True),
        ([NULL, TEXT, TEXT, 1, TEXT], False),
        ([TEXT, NULL, TEXT, 1, TEXT], False),
        ([TEXT, TEXT, NULL, 1, TEXT], False),
        ([TEXT, TEXT, TEXT, TEXT, TEXT], False),
        ([TEXT, TEXT, TEXT, 1, BYTES], False),
        ([TEXT, TEXT, TEXT, NULL, NULL], True),
    ],
)
def test_the_shape_of_the_schema_itself(types, accepted):
    """Kind, name and table are always there; an automatic index has no declaration."""
    assert SCHEMA.accepts(types) is accepted
    assert (SCHEMA.has_numbers, SCHEMA.is_index, SCHEMA.is_partial) == (True, False, False)

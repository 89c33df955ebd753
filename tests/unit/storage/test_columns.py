"""Columns that hold text: a text is removed from one user's rows, and what still holds it is counted."""

import apsw
import pytest

from wellkept.core.errors import Unreadable
from wellkept.storage.columns import Part, TextColumn, count_holding, count_rows, keep_rows, scrub, text_columns
from wellkept.storage.sqlite import Database
from wellkept.storage.texts import Texts

SECRET = Texts(["walnut"])
OF_USER = "user_id = :user"


@pytest.fixture
def database(tmp_path):
    """Two tables, one with a number and one with a key of two columns, with rows of two users."""
    database = Database(tmp_path / "a.db", application_id=7, migrations=())
    with database.writing() as connection:
        connection.execute("CREATE TABLE notes (body TEXT, title TEXT, user_id TEXT, size INTEGER)")
        connection.execute("CREATE TABLE pairs (a TEXT, b INTEGER, said TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID")
        connection.executemany(
            "INSERT INTO notes VALUES (?, ?, ?, ?)",
            [
                ("a Walnut tree", "one", "owner", 1),
                ("an oak", "walnuts", "owner", 2),
                ("a walnut", "three", "kim", 3),
                (None, None, "owner", 4),
            ],
        )
        connection.executemany("INSERT INTO pairs VALUES (?, ?, ?)", [("x", 1, "walnut"), ("x", 2, "oak")])
    yield database
    database.close()


def rows(database, sql):
    return database.connection.execute(sql).fetchall()


def test_rows_that_hold_the_text_are_removed(database):
    """Of this user, in any case; other rows stay."""
    done = scrub(database, [TextColumn("notes", "body", Part.ROW, OF_USER)], SECRET, user="owner", neutral_id=str.upper)

    assert done == 1
    assert rows(database, "SELECT size FROM notes") == [(2,), (3,), (4,)]


@pytest.mark.parametrize(("part", "left"), [(Part.NULL, None), (Part.BLANK, ""), (Part.WORDS, "a [forgotten] tree")])
def test_only_the_column_is_changed(database, part, left):
    """To nothing, to an empty text, or to the text without the words."""
    done = scrub(database, [TextColumn("notes", "body", part, OF_USER)], SECRET, user="owner", neutral_id=str.upper)

    assert done == 1
    assert rows(database, "SELECT body, title FROM notes WHERE size = 1") == [(left, "one")]
    assert rows(database, "SELECT body FROM notes WHERE size = 3") == [("a walnut",)]


def test_a_row_is_found_by_its_whole_key(database):
    """A table without numbers is known by the columns of its key."""
    done = scrub(database, [TextColumn("pairs", "said", Part.ROW)], SECRET, user="owner", neutral_id=str.upper)

    assert done == 1
    assert rows(database, "SELECT a, b, said FROM pairs") == [("x", 2, "oak")]


def test_what_a_store_removes_is_left_to_it_and_counted(database):
    """The store knows what depends on the row."""
    column = TextColumn("notes", "body", Part.BY_STORE, OF_USER)

    assert scrub(database, [column], SECRET, user="owner", neutral_id=str.upper) == 0
    assert count_holding(database.path, [column], SECRET, user="owner") == 1


def test_every_row_of_the_user_that_holds_the_text_is_counted(database, tmp_path):
    """In all columns together; damaged text is searched as bytes, and a missing file or column holds nothing."""
    columns = [TextColumn("notes", name, Part.ROW, OF_USER) for name in ("body", "title", "gone")]
    with database.writing() as connection:
        connection.execute("INSERT INTO notes (body, user_id) VALUES (CAST(x'ff77616c6e7574' AS TEXT), 'owner')")

    assert count_holding(database.path, columns, SECRET, user="owner") == 3
    assert count_holding(database.path, columns, SECRET, user="kim") == 1
    assert count_holding(tmp_path / "missing.db", columns, SECRET, user="owner") == 0
    assert scrub(database, columns[2:], SECRET, user="owner", neutral_id=str.upper) == 0


def test_a_file_that_is_not_a_database_is_an_error_in_our_words(tmp_path):
    """Not one of the driver."""
    (tmp_path / "b.db").write_bytes(b"garbage" * 500)

    with pytest.raises(Unreadable):
        count_rows(tmp_path / "b.db", "notes")


def test_only_the_rows_of_one_user_are_kept(database):
    """Tables without a condition are emptied, indexes of texts go, and no byte of the others is left."""
    with database.writing() as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(body)")
        connection.execute("INSERT INTO words VALUES ('hazel')")
    path = database.path
    database.close()

    keep_rows(path, {"notes": OF_USER, "nowhere": OF_USER}, user="kim")

    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT body FROM notes").fetchall() == [("a walnut",)]
    assert connection.execute("SELECT count(*) FROM pairs").fetchall() == [(0,)]
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name GLOB 'words*'").fetchall() == [(0,)]
    connection.close()
    data = path.read_bytes()
    assert b"oak" not in data
    assert b"hazel" not in data


def test_rows_whose_condition_is_unknown_are_not_kept(database):
    """A comparison with NULL says nothing, so the row is nobody's."""
    with database.writing() as connection:
        connection.execute("INSERT INTO notes (body, user_id) VALUES ('nobody', NULL)")
    path = database.path
    database.close()

    keep_rows(path, {"notes": OF_USER}, user="kim")

    assert count_rows(path, "notes") == 1


def test_rows_are_counted(database, tmp_path):
    """None where there is no file or no such table."""
    assert count_rows(database.path, "notes") == 4
    assert count_rows(database.path, "nowhere") == 0
    assert count_rows(tmp_path / "missing.db", "notes") == 0


def test_columns_of_text_are_listed(database):
    """Text, bytes and columns of any type; not numbers, and not those of search indexes."""
    with database.writing() as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(body)")
        connection.execute("CREATE TABLE loose (anything, data BLOB, weight REAL)")

    assert set(text_columns(database.connection)) == {
        ("notes", "body"), ("notes", "title"), ("notes", "user_id"), ("pairs", "a"), ("pairs", "said"),
        ("loose", "anything"), ("loose", "data"),
    }  # fmt: skip

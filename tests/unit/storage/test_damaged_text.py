"""Text in a database that is not valid UTF-8 is read with U+FFFD, in every way that rows are read."""

from pathlib import Path

import apsw
import pytest

from wellkept.core.errors import Unreadable
from wellkept.storage.connections import DamagedText, Migration
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.sqlite import Database

ROWS = ((1, "one"), (2, "tw\ufffdo"), (3, "three"), (4, "\ufffd"), (5, "five"))


@pytest.fixture
def database(tmp_path: Path) -> Database:
    schema = "CREATE TABLE items (id INTEGER PRIMARY KEY, text TEXT, data BLOB)"
    opened = Database(tmp_path / "x.db", application_id=APPLICATION_ID, migrations=(Migration(1, schema),))
    with opened.writing() as connection:
        connection.execute(
            "INSERT INTO items (id, text, data) VALUES (1, 'one', x'ff'), (2, CAST(x'7477ff6f' AS TEXT), NULL),"
            " (3, 'three', 'three'), (4, CAST(x'c3' AS TEXT), NULL), (5, 'five', NULL)"
        )
    return opened


def test_rows_around_a_damaged_one_are_read(database: Database) -> None:
    """Every row comes once and in order, and only damaged text is marked."""
    connection = database.connection

    assert tuple(connection.execute("SELECT id, text FROM items ORDER BY id")) == ROWS
    assert tuple(connection.execute("SELECT id, text FROM items ORDER BY id").fetchall()) == ROWS
    assert tuple(connection.execute("SELECT id, text FROM items ORDER BY id DESC")) == ROWS[::-1]
    marked = [number for number, text in connection.execute("SELECT id, text FROM items") if type(text) is DamagedText]
    assert marked == [2, 4]


def test_single_rows_are_read(database: Database) -> None:
    """`fetchone` returns the damaged row, and then the next."""
    cursor = database.connection.execute("SELECT id, text FROM items WHERE id >= ?", (2,))

    assert [cursor.fetchone(), cursor.fetchone(), cursor.fetchone()] == list(ROWS[1:4])


def test_a_loop_continues_after_fetchone(database: Database) -> None:
    """Rows that `fetchone` gave are not given again."""
    cursor = database.connection.execute("SELECT id, text FROM items ORDER BY id")

    assert cursor.fetchone() == ROWS[0]
    assert tuple(cursor) == ROWS[1:]


def test_the_rest_is_fetched_after_fetchone(database: Database) -> None:
    """`fetchall` gives what `fetchone` left, damaged rows included."""
    cursor = database.connection.execute("SELECT id, text FROM items ORDER BY id")

    assert cursor.fetchone() == ROWS[0]
    assert tuple(cursor.fetchall()) == ROWS[1:]


@pytest.mark.parametrize("bindings", [("x\0y", 1e-17, b"\0'"), {"a": "x\0y", "b": 1e-17, "c": b"\0'"}])
def test_bindings_are_used_again(database: Database, bindings: tuple[object, ...] | dict[str, object]) -> None:
    """The second reading has exactly the bindings of the first."""
    names = ("?", "?", "?") if isinstance(bindings, tuple) else (":a", ":b", ":c")
    sql = f"-- a comment\nSELECT text, {names[0]}, {names[1]}, {names[2]} FROM items WHERE id = 2; -- the end"

    found = database.connection.execute(sql.replace("; -- the end", " -- the end"), bindings).fetchall()

    assert found == [("tw\ufffdo", "x\0y", 1e-17, b"\0'")]


def test_other_types_stay_as_they_are(database: Database) -> None:
    """Blobs remain bytes and NULL remains None."""
    assert database.connection.execute("SELECT data, text, 1.5, NULL FROM items LIMIT 2").fetchall() == [
        (b"\xff", "one", 1.5, None),
        (None, "tw\ufffdo", 1.5, None),
    ]


def test_both_readings_see_the_same_state(database: Database) -> None:
    """A row that another process inserts meanwhile does not shift the rows of the second reading."""
    cursor = iter(database.connection.execute("SELECT id, text FROM items ORDER BY id"))
    first = next(cursor)
    other = apsw.Connection(str(database.path))
    other.execute("INSERT INTO items (id, text) VALUES (0, 'zero')")
    other.close()

    assert (first, *cursor) == ROWS


def test_a_change_that_returns_damaged_text_is_not_run_twice(database: Database) -> None:
    """An UPDATE cannot be read again: the damage is reported instead."""
    with pytest.raises(Unreadable), database.writing() as connection:
        connection.execute("UPDATE items SET data = NULL WHERE id = 2 RETURNING text").fetchall()

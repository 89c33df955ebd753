"""SQLite files of other programs are read from a copy: with their log, locked, damaged, with foreign bytes."""

import os
import sqlite3

import pytest

from wellkept.core.errors import Unreadable
from wellkept.storage import foreign
from wellkept.storage.foreign import open_copy

ROWS = 400


@pytest.fixture
def path(tmp_path):
    """A database of another program with two tables, several pages each."""
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE talks (id TEXT PRIMARY KEY, title TEXT NOT NULL)")
    connection.execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, talk TEXT, body TEXT, weight REAL DEFAULT 1)")
    connection.executemany("INSERT INTO talks VALUES (?, ?)", [(f"t{n}", f"title {n} " * 20) for n in range(ROWS)])
    connection.executemany(
        "INSERT INTO lines VALUES (?, ?, ?, ?)", [(n + 1, f"t{n}", f"body {n} " * 40, n / 2) for n in range(ROWS)]
    )
    connection.commit()
    connection.close()
    return path


def read(path, rescue=("talks", "lines")):
    with open_copy(path, rescue=rescue) as tables:
        return tables.damage, list(tables.rows("SELECT id, body FROM lines ORDER BY id"))


def overwrite(path, share, data):
    whole = bytearray(path.read_bytes())
    at = int(len(whole) * share) // 4096 * 4096
    whole[at : at + len(data)] = data
    path.write_bytes(whole)


def test_a_healthy_file_is_given_as_it_is(path):
    """No damage is claimed, and every row is there."""
    damage, rows = read(path)

    assert damage == ""
    assert len(rows) == ROWS


def test_a_locked_file_with_rows_in_its_log_is_read(path):
    """The lock of a writer does not matter, and what is only in the log counts."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("INSERT INTO lines VALUES (9999, 't', 'only in the log', 0)")
    connection.commit()
    connection.execute("BEGIN EXCLUSIVE")
    damage, rows = read(path)
    connection.close()

    assert damage == ""
    assert rows[-1] == (9999, "only in the log")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_damaged_page_costs_only_its_rows(path, share):
    """What other pages hold is read, each row once and with its own text, and the damage is told."""
    overwrite(path, share, b"\xa5" * 4096)
    damage, rows = read(path)

    assert "damaged" in damage
    assert len(rows) >= ROWS * 0.8
    assert all(body == f"body {number - 1} " * 40 for number, body in rows)
    assert len({number for number, _ in rows}) == len(rows)


def test_rows_that_were_read_and_lost_are_counted(path):
    """A damaged row is not given, and it is told."""
    with sqlite3.connect(path) as connection:
        pages = connection.execute("SELECT pageno FROM dbstat WHERE name = 'lines' AND pagetype = 'leaf'").fetchall()
    connection.close()
    whole = bytearray(path.read_bytes())
    start = (pages[3][0] - 1) * 4096
    at = int.from_bytes(whole[start + 8 : start + 10], "big")  # the first cell
    whole[start + at + 3] = 0x7F  # the header of its record is longer than the record
    whole[start : start + 1] = b"\x0d"
    overwritten = (pages[5][0] - 1) * 4096
    whole[overwritten : overwritten + 4096] = b"\xa5" * 4096
    path.write_bytes(whole)
    damage, rows = read(path, rescue=("lines",))

    assert damage == f"the database is damaged: {len(rows):,} rows could be read, at least 1 could not"


def test_only_the_tables_that_are_asked_for_are_rescued(path):
    """A table, and nothing else of that name or of that kind."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE VIEW extra AS SELECT 1 AS one")
        connection.execute("CREATE TABLE others (a)")
    connection.close()
    overwrite(path, 0.5, b"\xa5" * 4096)
    with open_copy(path, rescue=("lines", "talks", "extra")) as tables:
        assert tables.damage
        assert tables.columns("lines") == {"id", "talk", "body", "weight"}
        assert tables.columns("others") == set()
        assert tables.columns("extra") == set()


def test_a_cut_file_gives_what_is_left(path):
    """A copy that ended too early is damage, not the end of the import."""
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    damage, rows = read(path)

    assert "damaged" in damage
    assert len(rows) > 100


def test_a_damaged_table_that_nobody_needs_is_no_damage(path):
    """Only the tables that a reader asks for are checked."""
    with sqlite3.connect(path) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'talks'").fetchone()
    whole = bytearray(path.read_bytes())
    whole[(root - 1) * 4096 : root * 4096] = b"\xa5" * 4096
    path.write_bytes(whole)
    damage, rows = read(path, rescue=("lines",))

    assert (damage, len(rows)) == ("", ROWS)


def test_text_that_is_not_utf8_does_not_end_the_reading(path):
    """The bytes that cannot be decoded are replaced."""
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE lines SET body = CAST(x'4142ff43' AS TEXT) WHERE id = 7")
    connection.close()
    _, rows = read(path)

    assert rows[6] == (7, "AB\ufffdC")
    assert len(rows) == ROWS


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\0" + b"\xff" * 9000])
def test_what_holds_no_tables_is_refused(tmp_path, content):
    """Garbage is one sentence, not a traceback."""
    path = tmp_path / "garbage.db"
    path.write_bytes(content)

    if not content:  # an empty file is an empty database
        with open_copy(path, rescue=("lines",)) as tables:
            assert tables.columns("lines") == set()
        return
    with pytest.raises(Unreadable), open_copy(path, rescue=("lines",)):
        pass


@pytest.mark.parametrize(("changes", "is_read"), [(4, True), (5, False)])
def test_a_file_that_changes_while_it_is_copied_is_copied_again(path, monkeypatch, changes, is_read):
    """File and log have to be of one moment; after five attempts it is told."""
    copied, real = [], foreign.copy_bytes

    def copy(source, target):
        real(source, target)
        copied.append(source)
        if len(copied) <= changes:
            os.utime(path, ns=(1, len(copied)))

    monkeypatch.setattr(foreign, "copy_bytes", copy)

    if is_read:
        assert read(path)[0] == ""
    else:
        with pytest.raises(Unreadable, match="changes too fast"):
            read(path)
    assert len(copied) == 5


def test_a_file_that_cannot_be_copied_says_why(tmp_path):
    """A missing one, or a folder in its place."""
    for place in (tmp_path / "absent.db", tmp_path):
        with pytest.raises(Unreadable, match="cannot copy"), open_copy(place):
            pass


def test_rows_keep_their_numbers_and_keys_when_they_are_rescued(path):
    """Of a table without a column for them, and of one that has none."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE plain (body TEXT)")
        connection.execute("CREATE TABLE pairs (a TEXT, b INTEGER, PRIMARY KEY (b, a)) WITHOUT ROWID")
        connection.execute("INSERT INTO plain (rowid, body) VALUES (7, 'seven'), (9, 'nine')")
        connection.execute("INSERT INTO pairs VALUES ('x', 1), ('y', 2)")
    connection.close()
    overwrite(path, 0.5, b"\xa5" * 4096)

    with open_copy(path, rescue=("lines", "talks", "plain", "pairs")) as tables:
        assert tables.damage
        assert list(tables.rows("SELECT rowid, body FROM plain")) == [(7, "seven"), (9, "nine")]
        assert list(tables.rows("SELECT a, b FROM pairs")) == [("x", 1), ("y", 2)]

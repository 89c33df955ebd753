"""Maintenance of database files: integrity checks, rebuilt indexes, consistent copies."""

import os
import stat

import apsw
import pytest

from wellkept.core.errors import Busy, StorageError, Unreadable
from wellkept.storage.maintenance import (
    Snapshot,
    check_integrity,
    copy_file,
    drop_from_schema,
    rebuild_indexes,
    vacuum,
)

ROWS = 2_000


@pytest.fixture
def path(tmp_path):
    """A file with a table, its key's own index and an index made by name."""
    path = tmp_path / "a.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE facts (name TEXT UNIQUE, size INTEGER)")
    connection.execute("CREATE INDEX facts_size ON facts (size)")
    with connection:
        connection.executemany("INSERT INTO facts VALUES (?, ?)", [(f"fact {n}", n) for n in range(ROWS)])
    connection.close()
    return path


@pytest.fixture
def connection(path):
    connection = apsw.Connection(str(path))
    yield connection
    connection.close()


def root_page(connection, name):
    ((page,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchall()
    return page


def damage(path, page):
    """Overwrite the content of a page with zeros."""
    size = apsw.Connection(str(path)).pragma("page_size")
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\0" * size)


class TestIndexes:
    """Indexes are rebuilt from the rows, whatever their own pages hold."""

    @pytest.mark.parametrize("name", ["facts_size", "sqlite_autoindex_facts_1"])
    def test_a_damaged_index_is_replaced(self, path, name):
        """An index by name, and one that belongs to a key."""
        looking = apsw.Connection(str(path))
        page = root_page(looking, name)
        looking.close()
        damage(path, page)
        connection = apsw.Connection(str(path))
        assert check_integrity(connection, path)

        with connection:
            rebuild_indexes(connection, "facts")
        vacuum(connection, path)

        assert check_integrity(connection, path) == []
        plan = "SELECT size FROM facts INDEXED BY {} WHERE {} = ?"
        for index, column, value in (
            ("facts_size", "size", 7),
            ("sqlite_autoindex_facts_1", "name", "fact 7"),
        ):
            found = connection.execute(plan.format(index, column), (value,)).fetchall()
            assert found == [(7,)]
        with pytest.raises(apsw.ConstraintError):
            connection.execute("INSERT INTO facts VALUES ('fact 7', 1)")
        names = connection.execute("SELECT name FROM sqlite_schema ORDER BY name").fetchall()
        assert names == [("facts",), ("facts_size",), ("sqlite_autoindex_facts_1",)]
        connection.close()

    def test_the_schema_is_protected_again(self, connection):
        """Nobody else can write to it by mistake."""
        with connection:
            drop_from_schema(connection, "name = 'facts_size'")
            rebuild_indexes(connection, "facts")

        assert connection.execute("SELECT name FROM sqlite_schema WHERE name = 'facts_size'").fetchall() == []
        with pytest.raises(apsw.SQLError, match="may not be modified"):
            connection.execute("DELETE FROM sqlite_schema")

    def test_it_is_protected_after_an_error_too(self, connection):
        """The setting is taken back in any case."""
        with pytest.raises(apsw.SQLError):
            drop_from_schema(connection, "no such column")
        with pytest.raises(apsw.SQLError, match="may not be modified"):
            connection.execute("DELETE FROM sqlite_schema")


class TestChecks:
    """What SQLite's own check says, without its headings."""

    def test_a_healthy_file_has_no_problems(self, connection, path):
        """Neither by the full check nor by that of one table."""
        assert check_integrity(connection, path) == []
        assert check_integrity(connection, path, "integrity_check(facts)") == []

    def test_damage_is_described_line_by_line(self, path, connection):
        """Each line is a problem."""
        page = root_page(connection, "facts_size")
        connection.close()
        damage(path, page)
        opened = apsw.Connection(str(path))
        found = check_integrity(opened, path)
        opened.close()

        assert found
        assert all(line and not line.startswith("***") and line != "ok" for line in found)
        assert any(str(page) in line or "facts_size" in line for line in found)

    def test_a_file_in_use_is_made_smaller_later(self, connection, path):
        """Inside a transaction SQLite refuses a vacuum."""
        connection.execute("BEGIN")
        with pytest.raises(Busy, match="cannot be made smaller now"):
            vacuum(connection, path)
        connection.execute("ROLLBACK")
        connection.execute("DELETE FROM facts WHERE size >= 20")
        before = path.stat().st_size
        vacuum(connection, path)
        assert path.stat().st_size < before


class TestCopies:
    """Any file can be copied, a database while others use it."""

    def test_an_ordinary_file_keeps_its_times_and_mode(self, tmp_path):
        """As `cp -p` does it."""
        source = tmp_path / "page.md"
        source.write_bytes(b"text\r\n")
        source.chmod(0o640)
        os.utime(source, (1_000, 2_000))

        copy_file(str(source), str(tmp_path / "copy.md"))

        copy = tmp_path / "copy.md"
        assert copy.read_bytes() == b"text\r\n"
        assert (stat.S_IMODE(copy.stat().st_mode), copy.stat().st_mtime) == (0o640, 2_000)

    def test_a_database_is_copied_with_its_log(self, path, connection, tmp_path):
        """What is only in the log is in the copy, which has none."""
        connection.pragma("journal_mode", "wal")
        connection.execute("INSERT INTO facts VALUES ('new', 1000)")

        copy_file(str(path), str(tmp_path / "copy.db"))

        assert sorted(each.name for each in tmp_path.glob("copy.db*")) == ["copy.db"]
        copy = apsw.Connection(str(tmp_path / "copy.db"))
        assert copy.execute("SELECT count(*) FROM facts").fetchall() == [(ROWS + 1,)]
        copy.close()

    def test_a_snapshot_is_of_one_moment(self, path, connection, tmp_path):
        """What is written while it is copied is not in it; the copy is private, and its version can be asked before."""
        connection.pragma("journal_mode", "wal")
        connection.pragma("user_version", 5)
        snapshot = Snapshot(path)
        connection.execute("INSERT INTO facts VALUES ('late', 1000)")

        steps = list(snapshot.copy_to(tmp_path / "copy.db"))

        assert snapshot.version == 5
        snapshot.close()
        copy = apsw.Connection(str(tmp_path / "copy.db"))
        assert copy.execute("SELECT count(*) FROM facts").fetchall() == [(ROWS,)]
        copy.close()
        assert steps == [4_096 * connection.pragma("page_size")]  # one step of many pages, as progress counts it
        assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600

    def test_a_snapshot_of_anything_but_a_database_is_refused(self, tmp_path):
        """When it is taken, not when it is copied."""
        (tmp_path / "a.db").write_bytes(b"garbage" * 500)

        with pytest.raises(StorageError):
            Snapshot(tmp_path / "a.db")

    def test_a_place_that_refuses_is_named(self, path, tmp_path):
        """The error says which file could not be written."""
        with pytest.raises(StorageError, match=r"cannot write .*none/copy\.db"):
            copy_file(str(path), str(tmp_path / "none" / "copy.db"))


def test_a_table_with_a_damaged_declaration_is_not_lost_by_freeing_pages(path):
    """SQLite reads a declaration whose second letter has one flipped bit, and leaves the table out of a VACUUM."""
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE facts", b"CrEATE TABLE facts"))
    damaged = apsw.Connection(str(path))
    assert damaged.execute("SELECT count(*) FROM facts").get == ROWS

    with pytest.raises(Unreadable, match="declaration of facts"):
        vacuum(damaged, path)

    assert damaged.execute("SELECT count(*) FROM facts").get == ROWS
    damaged.close()

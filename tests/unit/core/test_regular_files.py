"""Reading a database file as a file keeps SQLite's locks on it, under every name that it has."""

import gc
import os
import threading
from pathlib import Path

import pytest
from tests import open_audit

from wellkept.agent.file_search import find_lines
from wellkept.core import regular_files
from wellkept.core.regular_files import FileBytes, load_bytes, load_text, open_for_update, open_regular
from wellkept.storage.maintenance import copy_file, is_database
from wellkept.storage.sqlite import open_state


def locks(path):
    """Return the lock that SQLite holds on a file in this process."""
    inode = path.stat().st_ino
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return [row[3:] for row in rows if row[4] == str(os.getpid()) and row[5].endswith(f":{inode}")]


@pytest.fixture
def database(tmp_path):
    opened = open_state(tmp_path / "state.db")
    with opened.writing() as unit:
        unit.execute("CREATE TABLE lines (text)")
        unit.execute("INSERT INTO lines VALUES ('a line')")
    yield opened
    opened.close()


def names(path):
    """Return every way to name a file: its own, a symbolic link, a hard link, a link to a folder, a relative path."""
    folder = path.parent
    (folder / "soft").symlink_to(path)
    (folder / "hard").hardlink_to(path)
    (folder / "folder").symlink_to(folder)
    return [path, folder / "soft", folder / "hard", folder / "folder" / path.name, Path(os.path.relpath(path))]


READS = {
    "bytes": load_bytes,
    "text": lambda path: load_text(path, errors="replace"),
    "a part": lambda path: FileBytes(path)[:16],
    "closed by the collector": lambda path: open_regular(path) and gc.collect(),
    "is it a database": is_database,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("suffix", ["", "-shm"])
def test_reading_keeps_the_locks(database, read, suffix):
    """Of the database, and of the file through which its processes share memory."""
    path = Path(f"{database.path}{suffix}")
    before = locks(path)
    for name in names(path):
        read(name)

    assert before
    assert locks(path) == before


def test_every_reader_has_a_position_of_its_own(database):
    """Although they share one descriptor; `seek` and `tell` work as for any file."""
    with open_regular(database.path) as first, open_regular(database.path) as second:
        assert first.read(6) == b"SQLite"
        assert second.read(15) == b"SQLite format 3"
        assert first.seek(-10, os.SEEK_END) == database.path.stat().st_size - 10
        assert len(first.read()) == 10
        assert second.tell() == 15


def test_a_copy_keeps_the_locks(database, tmp_path):
    """A profile is copied while its database is open."""
    before = locks(database.path)

    copy_file(str(database.path), str(tmp_path / "copy.db"))

    assert locks(database.path) == before
    assert is_database(tmp_path / "copy.db")


def test_a_file_opened_before_the_database_does_not_release_its_locks(tmp_path):
    """One thread reads the header while another opens the database."""
    open_state(tmp_path / "state.db").close()
    file = open_regular(tmp_path / "state.db")
    with_locks = open_state(tmp_path / "state.db")
    with with_locks.reading() as unit:
        unit.execute("SELECT 1 FROM sqlite_schema").fetchall()
    before = locks(with_locks.path)

    file.close()

    assert before
    assert locks(with_locks.path) == before
    with_locks.close()


def test_an_open_database_is_not_written_as_a_file(database):
    """Whoever wants to change bytes of it is refused."""
    with pytest.raises(OSError, match="open as a database"):
        open_for_update(database.path)


def test_descriptors_are_closed_after_the_last_connection(tmp_path, monkeypatch):
    """A server that reads the databases of many users does not run out of descriptors."""
    monkeypatch.setattr(regular_files, "_RELEASE_SECONDS", 0.0)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for number in range(20):
        opened = open_state(tmp_path / f"{number}.db")
        for _ in range(5):
            load_bytes(opened.path)
        opened.close()
        del opened
    gc.collect()
    for _ in range(3):
        load_bytes(tmp_path / "0.db")

    assert len(os.listdir("/proc/self/fd")) <= before + 2  # noqa: PTH208


def test_many_threads_read_and_open(tmp_path):
    """Whatever the order of opening, reading and closing, the locks of open databases stay."""
    path = tmp_path / "state.db"
    held = open_state(path)
    with held.reading() as unit:
        unit.execute("SELECT 1 FROM sqlite_schema").fetchall()
    before = locks(path)

    def work():
        for _ in range(30):
            load_bytes(path)
            other = open_state(path)
            with other.reading() as unit:
                unit.execute("SELECT 1 FROM sqlite_schema").fetchall()
            load_bytes(path)
            other.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert locks(path) == before
    held.close()


def test_the_audit_of_all_tests_sees_an_ordinary_open(database):
    """Code that opens the file by itself fails every test that runs it."""
    with pytest.raises(open_audit.LocksLost):
        list(find_lines("a", str(database.path), "*", 1))

    assert "find_lines" in open_audit.violations.pop()


def test_a_file_may_be_updated_when_its_last_connection_was_closed(tmp_path):
    """A repair locks and replaces a file that the same process has just checked; a dropped connection may still close."""
    path = tmp_path / "state.db"
    one, other = open_state(path), open_state(path)
    load_bytes(path)
    one.close()
    with pytest.raises(OSError, match="has it open as a database"):
        open_for_update(path)
    other.close()

    descriptor = open_for_update(path)

    assert regular_files.identify(path) not in regular_files._held
    os.close(descriptor)


def test_the_number_of_removed_shared_memory_may_belong_to_another_file(database, tmp_path):
    """SQLite removes that file with its last connection; what gets its number then is an ordinary file."""
    other = open_state(tmp_path / "other.db")
    with other.writing() as unit:
        unit.execute("CREATE TABLE lines (text)")
    memory = tmp_path / "other.db-shm"
    assert regular_files._find(regular_files.identify(memory)) is not None
    memory.rename(tmp_path / "ordinary")  # as if the number had been given again
    with pytest.raises(OSError, match="has it open as a database"):
        open_for_update(tmp_path / "other.db")

    os.close(open_for_update(tmp_path / "ordinary"))
    other.close()

"""The write-ahead log stays short, whoever reads and writes."""

import apsw
import pytest

from wellkept.storage.connections import CHECKPOINT_PAGES, RESTART_PAGES, Checkpointer, Migration
from wellkept.storage.sqlite import PAGE_BYTES, Database

MARK = 0x6B657074


@pytest.fixture
def database(tmp_path):
    made = (Migration(1, "CREATE TABLE facts (text BLOB)"),)
    database = Database(tmp_path / "state.db", application_id=MARK, migrations=made)
    yield database
    database.close()


def write(database, pages):
    with database.writing() as connection:
        connection.execute("DELETE FROM facts")
        connection.execute("INSERT INTO facts VALUES (zeroblob(?))", (pages * PAGE_BYTES,))


def log_bytes(database):
    return database.path.with_name("state.db-wal").stat().st_size


def test_the_log_is_folded_back_and_used_again(database):
    """However much is written, the log does not grow beyond a few megabytes."""
    for _ in range(40):
        write(database, 500)

    assert log_bytes(database) < 3 * CHECKPOINT_PAGES * PAGE_BYTES


def test_a_reader_that_stays_does_not_stop_the_writer(database):
    """While somebody holds an old state open, writing continues; once it is let go, the log is restarted."""
    write(database, 10)
    other = apsw.Connection(str(database.path))
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM facts").fetchall()

    for _ in range(RESTART_PAGES // 2_000 + 2):
        write(database, 2_000)
    grown = log_bytes(database)
    other.execute("COMMIT")
    other.close()
    for _ in range(3):
        write(database, 600)

    assert grown > RESTART_PAGES * PAGE_BYTES
    assert log_bytes(database) < 3 * CHECKPOINT_PAGES * PAGE_BYTES


class FullDisk:
    """A connection whose write-ahead log cannot be copied into the database."""

    def wal_checkpoint(self, _name: str, _mode: int) -> None:
        raise apsw.FullError("database or disk is full")


def test_a_full_disk_during_a_checkpoint_does_not_fail_the_commit() -> None:
    """SQLite reports an error of the hook as that of the statement, although its transaction is committed."""
    answer = Checkpointer()(FullDisk(), "main", CHECKPOINT_PAGES)

    assert answer == apsw.SQLITE_OK

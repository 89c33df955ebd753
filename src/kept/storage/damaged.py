"""A damaged database, opened alone: nobody may write to a file that is about to be put aside."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from kept.core.errors import Busy
from kept.storage.sqlite import Connection, explained_sql

WAIT_MILLISECONDS = 2_000


@contextmanager
def opened_alone(path: Path) -> Iterator[Connection]:
    """Give the only connection to `path`, or raise Busy while another process has it open."""
    with explained_sql(path):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(WAIT_MILLISECONDS)
        _take(connection, path)
        yield connection
    finally:
        connection.close()


def _take(connection: Connection, path: Path) -> None:
    try:
        connection.pragma("locking_mode", "exclusive")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("ROLLBACK")  # in this mode the locks stay until the connection is closed
    except (apsw.BusyError, apsw.LockedError) as error:
        raise Busy(f"another process has {str(path)!r} open", "close every other kept, then repair again") from error
    except (apsw.CorruptError, apsw.NotADBError):
        return  # the damage is why we are here; single rows may still be read


def forget_tables(connection: Connection, where: str) -> None:
    """Take tables out of the schema without touching their pages, which may be damaged; a vacuum frees those."""
    connection.execute("PRAGMA writable_schema = ON")
    try:
        connection.execute(f"DELETE FROM sqlite_schema WHERE {where}")  # noqa: S608 - a constant of the caller's
    finally:
        connection.execute("PRAGMA writable_schema = RESET")

"""A damaged database, opened alone: nobody may write to a file that is about to be put aside."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from kept.core.errors import Busy, Unreadable
from kept.storage.sqlite import Connection, explained_sql

WAIT_MILLISECONDS = 2_000
_SPARE = "kept_spare_index"


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


def build_indexes_anew(connection: Connection, table: str) -> None:
    """Build the indexes of a table anew without reading their pages, which a vacuum frees; a transaction is open."""
    found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?", (table,))
    for name, sql in found.fetchall():
        if sql is not None:
            forget_tables(connection, f"type = 'index' AND name = '{name}'")
            connection.execute(str(sql))
        else:
            _replace_automatic_index(connection, table, str(name))


def _replace_automatic_index(connection: Connection, table: str, name: str) -> None:
    """Give the index of a key, which no statement makes or drops, the pages of one that was just built."""
    columns = ", ".join(str(row[2]) for row in connection.execute(f"PRAGMA index_info({name})").fetchall())
    connection.execute(f"CREATE UNIQUE INDEX {_SPARE} ON {table} ({columns})")
    connection.execute("PRAGMA writable_schema = ON")
    try:
        connection.execute(
            "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = ?) WHERE name = ?",
            (_SPARE, name),
        )
        connection.execute("DELETE FROM sqlite_schema WHERE name = ?", (_SPARE,))
    finally:
        connection.execute("PRAGMA writable_schema = RESET")


def give_back(connection: Connection, path: Path) -> None:
    """Give the pages that belong to nothing back; raise Busy while something else is done with the file."""
    with explained_sql(path):
        try:
            connection.execute("VACUUM")
        except apsw.SQLError as error:
            raise Busy(f"{str(path)!r} cannot be made smaller now: {error}", "try again in a moment") from error


def complaints(connection: Connection, path: Path, check: str = "integrity_check(20)") -> list[str]:
    """Return what SQLite's own check says is wrong, as far as it got; empty when all is well."""
    lines: list[str] = []
    try:
        with explained_sql(path):
            for (text,) in connection.execute(f"PRAGMA {check}"):
                lines += str(text).splitlines()
    except Unreadable as error:  # some damage ends the check itself, after it was told
        lines.append(error.message)
    return [line for line in lines if line and line != "ok" and not line.startswith("***")]

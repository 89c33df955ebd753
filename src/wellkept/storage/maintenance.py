"""Maintenance of database files: integrity checks, index rebuilds and consistent copies."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw

from wellkept.core.errors import Busy, DamagedLog, Unreadable
from wellkept.core.regular_files import explain_errors, open_regular
from wellkept.salvage.write_ahead import check_log, companion_log
from wellkept.storage.connections import connect_read_only, explain_sql_errors, has_log, open_connection
from wellkept.storage.files import copy_bytes, create_empty
from wellkept.storage.log_recovery import is_lone_log
from wellkept.storage.sqlite import Connection

_LOST_BY_VACUUM = """
SELECT name FROM sqlite_schema
WHERE type NOT IN ('table', 'index', 'trigger', 'view') OR sql NOT GLOB 'CRE*' OR (type = 'table' AND tbl_name <> name)
"""
_SPARE = "kept_spare_index"
_PAGES_PER_STEP = 4_096
_BUSY_MILLISECONDS = 10_000


def drop_from_schema(connection: Connection, where: str) -> None:
    """Delete rows of the schema without reading the pages of the tables, which may be damaged; VACUUM frees those."""
    connection.execute("PRAGMA writable_schema = ON")
    try:
        connection.execute(f"DELETE FROM sqlite_schema WHERE {where}")  # noqa: S608 - callers pass constants
    finally:
        connection.execute("PRAGMA writable_schema = RESET")


def rebuild_indexes(connection: Connection, table: str) -> None:
    """Rebuild the indexes of a table in the open transaction, without reading old pages; VACUUM frees those."""
    found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?", (table,))
    for name, sql in found.fetchall():
        if sql is not None:
            drop_from_schema(connection, f"type = 'index' AND name = '{name}'")
            connection.execute(str(sql))
        else:
            _replace_automatic_index(connection, table, str(name))


def _replace_automatic_index(connection: Connection, table: str, name: str) -> None:
    """Rebuild the index behind a key, which SQL cannot create or drop: point it at the pages of a new index."""
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


def vacuum(connection: Connection, path: Path) -> None:
    """Free unused pages; raise Busy while the file is in use, and Unreadable if that would lose a table."""
    with explain_sql_errors(path):
        # SQLite reads `CrEATE TABLE`, and its VACUUM leaves out what does not begin with `CRE`
        lost = [str(name) for (name,) in connection.execute(_LOST_BY_VACUUM)]
        if lost:
            what = f"the declaration of {', '.join(lost)} in {str(path)!r} is damaged, so its rows must be copied"
            raise Unreadable(what, "run `kept sessions repair`")
        try:
            connection.execute("VACUUM")
        except apsw.SQLError as error:
            raise Busy(f"{str(path)!r} cannot be made smaller now: {error}", "try again in a moment") from error


def check_integrity(connection: Connection, path: Path, check: str = "integrity_check(20)") -> list[str]:
    """Return the problems that SQLite's check reports; empty if there are none."""
    lines: list[str] = []
    try:
        with explain_sql_errors(path):
            for (text,) in connection.execute(f"PRAGMA {check}"):
                lines += str(text).splitlines()
    except Unreadable as error:  # some damage aborts the check after part of its report
        lines.append(error.message)
    return [line for line in lines if line and line != "ok" and not line.startswith("***")]


def check_pages(path: Path) -> list[str]:
    """Return the damage that SQLite sees in the pages of a file that nobody writes; indexes are not compared."""
    with explain_sql_errors(path), closing(connect_read_only(path)) as connection:
        return check_integrity(connection, path, "quick_check(20)")


def _connect_whole(path: Path) -> Connection:
    """Open a file for reading; raise DamagedLog if SQLite reads less of its log than was committed to it."""
    connection = connect_read_only(path)
    try:
        with explain_errors("read", path):
            if has_log(path):
                check_log(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


class Snapshot:
    """A database as it is at one moment: it can be copied later, and others can write meanwhile.

    Raise DamagedLog if the copy would lack what was committed to the log.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with explain_sql_errors(path):
            self._connection = _connect_whole(path)
            self._connection.set_busy_timeout(_BUSY_MILLISECONDS)
            try:
                # a read transaction sees the state of its first read until it ends
                self._connection.execute("BEGIN")
                self._connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
            except BaseException:
                self._connection.close()
                raise

    @property
    def version(self) -> int:
        """Return the version of the schema."""
        return int(str(self._connection.pragma("user_version")))

    def copy_to(self, target: Path) -> Iterator[int]:
        """Copy the database through SQLite's backup API; yield the bytes of each step."""
        create_empty(target)
        page_bytes = int(str(self._connection.pragma("page_size")))
        with explain_sql_errors(target):
            copy = open_connection(target, apsw.SQLITE_OPEN_READWRITE)
            try:
                with copy.backup("main", self._connection, "main") as backup:
                    while not backup.done:
                        backup.step(_PAGES_PER_STEP)
                        yield _PAGES_PER_STEP * page_bytes
            finally:
                copy.close()

    def close(self) -> None:
        """End the read transaction."""
        self._connection.close()


def copy_file(source: str, target: str) -> None:
    """Copy a file; a database is copied consistently, including its write-ahead log, while others may write to it."""
    if is_database(Path(source)) and not is_lone_log(Path(source)):
        _copy_database(Path(source), Path(target))
    else:
        copy_bytes(Path(source), Path(target))


def is_database(path: Path) -> bool:
    """Whether a file begins as an SQLite database does."""
    with explain_errors("read", path), open_regular(path) as file:
        return file.read(16) == b"SQLite format 3\0"


def _copy_database(source: Path, target: Path) -> None:
    with explain_sql_errors(source):
        try:
            origin = _connect_whole(source)
        except DamagedLog:  # the first use of the copy recovers it, as that of the original would
            for file, copy in ((source, target), (companion_log(source), companion_log(target))):
                copy_bytes(file, copy)
            return
        create_empty(target)
        copied = open_connection(target, apsw.SQLITE_OPEN_READWRITE)
        try:
            with copied.backup("main", origin, "main") as backup:
                backup.step()
        finally:
            copied.close()
            origin.close()

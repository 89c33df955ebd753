"""SQLite files of other programs: copied with their write-ahead log, and the copy is read, damaged or not."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from wellkept.core.errors import Unreadable
from wellkept.core.regular_files import open_regular
from wellkept.storage.connections import explain_sql_errors, open_connection
from wellkept.storage.files import copy_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from wellkept.salvage.rows import Row, Salvage, Shape

_ATTEMPTS = 5
_HARMLESS = ("ok", "NULL value in ", "CHECK constraint failed", "non-unique ")
"""Beginnings of findings that are about values; every row can be read all the same."""
_WAL_HEADER_BYTES = 32


class ForeignTables:
    """The tables of a copy."""

    def __init__(self, path: Path, connection: apsw.Connection, *, damage: str = "") -> None:
        self._path = path
        self._connection = connection
        self.damage = damage
        """What is wrong with the file, for people; empty if nothing is."""

    def columns(self, table: str) -> set[str]:
        """Return the names of a table's columns; none if there is no such table."""
        with explain_sql_errors(self._path):
            return {
                str(name) for (name,) in self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
            }

    def rows(self, sql: str, bindings: Mapping[str, object] | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query."""
        with explain_sql_errors(self._path):
            yield from self._connection.execute(sql, bindings or {})


@contextmanager
def open_copy(path: Path, *, rescue: Collection[str] = ()) -> Iterator[ForeignTables]:
    """Copy a database with its log and yield the tables of the copy; the original is only read.

    The tables in `rescue` are checked first. If one is damaged, its rows are read page by page into a new file, which
    is given instead, with what is wrong in `damage`.
    """
    with tempfile.TemporaryDirectory(prefix="kept-copy-") as folder:
        copy = Path(folder) / "copy.db"
        _copy(path, copy)
        damage = _find_damage(copy, rescue)
        if damage:
            copy, damage = _rescue(path, copy, rescue)
        with explain_sql_errors(path):
            connection = open_connection(copy, apsw.SQLITE_OPEN_READWRITE)
            try:
                yield ForeignTables(path, connection, damage=damage)
            finally:
                connection.close()


def _find_damage(copy: Path, tables: Collection[str]) -> str:
    """Return the first finding that keeps rows of these tables from being read."""
    if not tables:
        return ""
    try:
        connection = open_connection(copy, apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as error:
        return str(error)
    try:
        known = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        for table in (name for name in tables if name in known):
            for (finding,) in connection.execute(f"PRAGMA quick_check({table})"):
                if not str(finding).startswith(_HARMLESS):
                    return str(finding)
    except (apsw.Error, UnicodeDecodeError) as error:
        return str(error)
    finally:
        connection.close()
    return ""


def _rescue(path: Path, copy: Path, tables: Collection[str]) -> tuple[Path, str]:
    """Write the rows of the damaged copy that can be read to a new file; return it and what is wrong."""
    from wellkept.salvage.pages import PageFile
    from wellkept.salvage.rows import Salvage, describe_shapes

    salvage = Salvage(PageFile(copy))
    rescued = copy.with_name("rescued.db")
    connection = open_connection(rescued, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        with connection:
            for row in salvage.declarations:
                _declare(connection, row, tables)
            shapes = [shape for shape in describe_shapes(connection) if not shape.is_index]
            salvage.use(shapes)
            counts = [_fill(connection, salvage, shape) for shape in shapes if shape.name in tables]
    finally:
        connection.close()
    if not counts:
        raise Unreadable(
            f"{str(path)!r} is not a database, or is too damaged to find its tables", "restore it from a backup"
        )
    read, lost = (sum(column) for column in zip(*counts, strict=True))
    return rescued, f"the database is damaged: {read:,} rows could be read, at least {lost:,} could not"


def _declare(connection: apsw.Connection, row: Row, tables: Collection[str]) -> None:
    name, sql = row.values.get("name"), row.values.get("sql")
    if row.values.get("type") == "table" and name in tables and isinstance(sql, str):
        try:
            connection.execute(sql)
        except apsw.Error:
            return  # a damaged declaration, or one of two copies


def _fill(connection: apsw.Connection, salvage: Salvage, shape: Shape) -> tuple[int, int]:
    """Insert the whole rows of a table; return how many there are, and how many were damaged."""
    numbered = shape.has_numbers and shape.alias is None
    names = ", ".join(f'"{name}"' for name in (*(("rowid",) if numbered else ()), *shape.columns))
    places = ", ".join("?" * (len(shape.columns) + numbered))
    # copies of a row that SQLite left behind come after the row itself, so the first one counts
    sql = f'INSERT OR IGNORE INTO "{shape.name}" ({names}) VALUES ({places})'  # noqa: S608
    read = lost = 0
    for row in salvage.rows(shape.name):
        if row.damage:  # also one that does not fit the table
            lost += 1
            continue
        values = [row.values.get(column) for column in shape.columns]
        connection.execute(sql, (row.number, *values) if numbered else values)
        read += connection.changes()
    return read, lost


def _copy(path: Path, copy: Path) -> None:
    """Copy file and log; again if a checkpoint moved pages between them meanwhile."""
    log, log_copy = Path(f"{path}-wal"), Path(f"{copy}-wal")
    for _ in range(_ATTEMPTS):
        try:
            before = _stamp(path, log)
            copy_bytes(path, copy)
            if log.exists():
                copy_bytes(log, log_copy)
            else:
                log_copy.unlink(missing_ok=True)
            if _stamp(path, log) == before:
                return
        except OSError as error:
            raise Unreadable(f"cannot copy {str(path)!r}: {error.strerror}", "check the permissions") from error
    raise Unreadable(f"{str(path)!r} changes too fast to be copied", "try again when the program is idle")


def _stamp(path: Path, log: Path) -> tuple[int, int, bytes]:
    """Return what changes when pages move from the log to the file; appending to the log is harmless."""
    found = path.stat()
    try:
        with open_regular(log) as file:
            header = file.read(_WAL_HEADER_BYTES)
    except OSError:
        header = b""
    return found.st_mtime_ns, found.st_size, header

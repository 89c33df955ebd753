"""SQLite files of other programs: copied with their write-ahead log, and the copy is read."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from kept.core.errors import Unreadable
from kept.storage.connections import explain_sql_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ATTEMPTS = 5
_WAL_HEADER_BYTES = 32


class ForeignTables:
    """The tables of a copy."""

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        self._path = path
        self._connection = connection

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
def open_copy(path: Path) -> Iterator[ForeignTables]:
    """Copy a database with its log and yield the tables of the copy; the original is only read."""
    with tempfile.TemporaryDirectory(prefix="kept-copy-") as folder:
        copy = Path(folder) / "copy.db"
        _copy(path, copy)
        with explain_sql_errors(path):
            connection = apsw.Connection(str(copy))
            try:
                yield ForeignTables(path, connection)
            finally:
                connection.close()


def _copy(path: Path, copy: Path) -> None:
    """Copy file and log; again if a checkpoint moved pages between them meanwhile."""
    log, log_copy = Path(f"{path}-wal"), Path(f"{copy}-wal")
    for _ in range(_ATTEMPTS):
        before = _stamp(path, log)
        try:
            shutil.copyfile(path, copy)
            if log.exists():
                shutil.copyfile(log, log_copy)
            else:
                log_copy.unlink(missing_ok=True)
        except OSError as error:
            raise Unreadable(f"cannot copy {str(path)!r}: {error.strerror}", "check the permissions") from error
        if _stamp(path, log) == before:
            return
    raise Unreadable(f"{str(path)!r} changes too fast to be copied", "try again when the program is idle")


def _stamp(path: Path, log: Path) -> tuple[int, int, bytes]:
    """Return what changes when pages move from the log to the file; appending to the log is harmless."""
    found = path.stat()
    try:
        with log.open("rb") as file:
            header = file.read(_WAL_HEADER_BYTES)
    except OSError:
        header = b""
    return found.st_mtime_ns, found.st_size, header

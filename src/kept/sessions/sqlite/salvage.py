"""A damaged file saved row by row: what can be read goes to a new file, what cannot is counted."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from kept.core.errors import StorageError
from kept.core.events import Progressed
from kept.core.ports import EventSink
from kept.sessions.health import Salvaged
from kept.sessions.records import Row
from kept.storage.connections import explain_sql_errors
from kept.storage.sql import statements
from kept.storage.sqlite import Connection, Database

SQL = statements("kept.sessions.sqlite", "salvage.sql")
TASK = "salvaging rows"
_BY_NUMBER = frozenset({"sessions", "messages", "blobs", "nodes"})
_MADE_ANEW = ("sqlite_", "message_", "next_", "index_queue", "leases")
_STRIDE = 256
_MOST_GUESSED = 20_000
"""Rows looked for one by one where even their number cannot be read; messages always have theirs."""


class Salvage:
    """One rescue from a damaged file into a new database."""

    def __init__(self, damaged: Connection, path: Path, *, sink: EventSink) -> None:
        self._damaged = damaged
        self._path = path
        self._sink = sink
        self.result = Salvaged()

    def into(self, target: Database) -> Salvaged:
        """Copy every row that can be read into `target`, which is new and empty, in one transaction."""
        with target.writing() as connection:
            connection.execute("PRAGMA defer_foreign_keys = ON")
            names = [str(row[0]) for row in connection.execute(SQL.tables)]
            for table in names:
                if not table.startswith(_MADE_ANEW):
                    self._copy(connection, table)
            connection.execute(SQL.made_anew)
            connection.execute(SQL.unqueue)
            connection.execute(SQL.adopt)
            self.result.unnamed_sessions = connection.changes()
            connection.execute(SQL.recount)
            connection.execute(SQL.drop_lost_carried)
        return self.result

    def _copy(self, target: Connection, table: str) -> None:
        columns = self._shared_columns(target, table)
        listed, marks = ", ".join(columns), ", ".join("?" * len(columns))
        insert = f"INSERT OR IGNORE INTO {table} ({listed}) VALUES ({marks})"  # noqa: S608 - names from our own schema
        rows = (
            by_number(self._damaged, table, listed, self._lose)
            if table in _BY_NUMBER
            else self._from_both_ends(table, columns)
        )
        count = 0
        for row in rows:
            target.execute(insert, row)
            count += target.changes()
            if count % 10_000 == 1:
                self._sink(Progressed(f"{TASK} of {table}", count, None))
        self.result.rows[table] = count

    def _shared_columns(self, target: Connection, table: str) -> list[str]:
        """Return the columns of the new table that the damaged file has too; an older file has fewer."""
        columns = [str(row[1]) for row in target.execute(f"PRAGMA table_info({table})")]
        try:
            with explain_sql_errors(self._path):
                known = {str(row[1]) for row in self._damaged.execute(f"PRAGMA table_info({table})")}
        except StorageError:
            return columns
        return [name for name in columns if name in known] or columns

    def _lose(self, table: str) -> None:
        self.result.lost[table] = self.result.lost.get(table, 0) + 1

    def _from_both_ends(self, table: str, columns: list[str]) -> Iterator[Row]:
        """Yield the rows before the first one that cannot be read, then those after the last."""
        select = f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608 - names from our own schema
        if (yield from self._until_damage(select)):
            return
        self._lose(table)
        yield from self._until_damage(f"{select} ORDER BY {columns[0]} DESC")

    def _until_damage(self, select: str) -> Generator[Row, None, bool]:
        try:
            with explain_sql_errors(self._path):
                yield from self._damaged.execute(select)
        except StorageError:
            return False
        return True


def by_number(damaged: Connection, table: str, listed: str, lose: Callable[[str], None]) -> Iterator[Row]:
    """Yield the rows of a table stride by stride; a stride that cannot be read is halved until single rows fail."""
    select = f"SELECT {listed} FROM {table} WHERE rowid BETWEEN ? AND ?"  # noqa: S608 - names from our own schema
    path, last = Path(damaged.filename), _last_number(damaged, table)
    pending = [(first, min(first + _STRIDE - 1, last)) for first in range(1, last + 1, _STRIDE)][::-1]
    while pending:
        first, end = pending.pop()
        try:
            with explain_sql_errors(path):
                found = damaged.execute(select, (first, end)).fetchall()
        except StorageError:
            if first == end:
                lose(table)
            else:
                middle = (first + end) // 2
                pending += [(middle + 1, end), (first, middle)]
            continue
        yield from found


def _last_number(damaged: Connection, table: str) -> int:
    for sql in (
        f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'",  # noqa: S608 - names from our own schema
        f"SELECT max(rowid) FROM {table}",  # noqa: S608 - names from our own schema
    ):
        try:
            with explain_sql_errors(Path(damaged.filename)):
                found = damaged.execute(sql).fetchone()
        except StorageError:
            continue
        if found is not None:
            return int(found[0] or 0)
    return _MOST_GUESSED

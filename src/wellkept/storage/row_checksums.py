"""Checksums of rows: computed before a transaction is committed, compared with the rows by the check.

A table with a column `checksum` is covered. SQLite reports every changed row to our connections, so that no statement
has to know of checksums. Where another program changes a row, a trigger of the file removes its checksum. Messages are
different: their checksum is computed with the row, because it is part of every append.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from weakref import WeakKeyDictionary

import apsw
from msgspec import Struct

from wellkept.core.ids import checksum
from wellkept.storage.connections import DamagedText, Value, Values

_COLUMN = "checksum"
_BY_ITSELF = frozenset({"messages"})
_watching: "WeakKeyDictionary[apsw.Connection, Callable[[apsw.PreUpdate], None]]" = WeakKeyDictionary()
"""The connections whose changes are followed now."""
_VOLATILE: Mapping[str, frozenset[str]] = {"sessions": frozenset({"last_active", "message_count"})}
"""Columns that change with every append; an index repeats `last_active`, and the messages give `message_count`."""


class CoveredTable(Struct, frozen=True):
    """A table whose rows have checksums."""

    name: str
    columns: tuple[str, ...]
    """All of them, in their order."""
    key: tuple[str, ...]
    """What identifies a row; `rowid` where it has a number."""

    @property
    def where(self) -> str:
        """The condition for one row."""
        return " AND ".join(f"{name} = ?" for name in self.key)

    @property
    def select(self) -> str:
        """The query for rows: the key, then all columns."""
        return f"SELECT {', '.join((*self.key, *self.columns))} FROM {self.name}"  # noqa: S608 - names of our schema

    def name_values(self, values: Values) -> dict[str, Value]:
        """Return the values of a row by the names of their columns."""
        return dict(zip(self.columns, values, strict=False))  # a newer version may have added columns


def find_covered(connection: apsw.Connection) -> dict[str, CoveredTable]:
    """Return the tables whose rows have checksums."""
    rows = connection.execute(
        "SELECT t.name, t.wr, c.name, c.pk FROM pragma_table_list AS t JOIN pragma_table_info(t.name) AS c "
        "WHERE t.schema = 'main' AND t.type = 'table' ORDER BY t.name, c.cid"
    ).fetchall()
    columns: dict[str, list[str]] = {}
    keys: dict[str, list[str]] = {}
    for table, has_no_numbers, column, place in rows:
        columns.setdefault(str(table), []).append(str(column))
        if has_no_numbers and place:
            keys.setdefault(str(table), []).append(str(column))
    return {
        name: CoveredTable(name, tuple(names), tuple(keys.get(name, ["rowid"])))
        for name, names in columns.items()
        if _COLUMN in names and name not in _BY_ITSELF
    }


def compute(table: str, values: Mapping[str, Value]) -> int:
    """Return the checksum of a row: the names and values of its columns, in the order of the names.

    A column without a value is left out, so that rows keep their checksum when a migration adds a column.
    """
    without = _VOLATILE.get(table, frozenset()) | {_COLUMN}
    names = sorted(name for name, value in values.items() if value is not None and name not in without)
    return checksum(tuple(part for name in names for part in (name, values[name])))


def contradicts(table: str, values: Mapping[str, Value]) -> bool:
    """Whether the values of a row differ from its checksum; a row without one contradicts nothing."""
    stored = values.get(_COLUMN)
    return stored is not None and table not in _BY_ITSELF and compute(table, values) != stored


@contextmanager
def follow_changes(connection: apsw.Connection, tables: dict[str, CoveredTable]) -> Iterator[None]:
    """Compute the checksums of the rows that are changed in this block, at its end.

    `tables` is filled with the covered tables when it is empty, so that they are found once.
    """
    if not tables:
        tables.update(find_covered(connection))
    changed: dict[str, dict[Values, Value]] = {}
    notice = _watching[connection] = partial(_notice, tables, changed)
    connection.preupdate_hook(notice)
    try:
        yield
    finally:
        connection.preupdate_hook(None)
        del _watching[connection]
    for name, rows in changed.items():
        _set(connection, tables[name], rows)


@contextmanager
def pause(connection: apsw.Connection) -> Iterator[None]:
    """Suspend the hook in a block that changes no table with checksums: each call of it costs 1 µs."""
    notice = _watching.pop(connection, None)
    if notice is None:
        yield
        return
    connection.preupdate_hook(None)
    try:
        yield
    finally:
        connection.preupdate_hook(notice)
        _watching[connection] = notice


def _notice(
    tables: Mapping[str, CoveredTable], changed: dict[str, dict[Values, Value]], update: "apsw.PreUpdate"
) -> None:
    """Remember the key of a changed row; for one that was damaged before, its old checksum."""
    table = tables.get(update.table_name)
    if table is None or update.database_name != "main":
        return
    rows = changed.setdefault(table.name, {})
    try:
        old, new = update.old, update.new
    except UnicodeDecodeError:
        return  # the row is damaged: its checksum is gone, and the check recognises it by its text
    if new is None:
        assert old is not None
        rows.pop(_key_of(table, old, update.rowid), None)
        return
    key = _key_of(table, new, update.rowid_new)
    if old is None:
        rows[key] = None
    elif key not in rows:
        before, after = table.name_values(old), table.name_values(new)
        # a damaged row stays damaged when a part of it is changed: its checksum must not become right
        is_damaged = contradicts(table.name, before) and not _is_rewritten(table, before, after)
        rows[key] = before[_COLUMN] if is_damaged else None


def _is_rewritten(table: CoveredTable, before: Mapping[str, Value], after: Mapping[str, Value]) -> bool:
    """Whether every column except the key has changed."""
    return all(before[name] != after[name] for name in before if name not in {*table.key, _COLUMN})


def _set(connection: apsw.Connection, table: CoveredTable, rows: Mapping[Values, Value]) -> None:
    """Store the checksums of rows, given by their keys; of a row that was damaged before, the old one."""
    select = f"{table.select} WHERE {table.where}"
    new: list[Values] = []
    for key, damaged in rows.items():
        row = connection.execute(select, key).fetchone()
        if row is not None and not _has_damaged_text(row):
            right = compute(table.name, table.name_values(row[len(key) :])) if damaged is None else damaged
            new.append((right, *key))
    if new:
        connection.executemany(f"UPDATE {table.name} SET {_COLUMN} = ? WHERE {table.where}", new)  # noqa: S608 - names of our schema


def _key_of(table: CoveredTable, values: Values, number: int) -> Values:
    if table.key == ("rowid",):
        return (number,)
    named = table.name_values(values)
    return tuple(named[name] for name in table.key)


def _has_damaged_text(row: Values) -> bool:
    return any(isinstance(value, DamagedText) for value in row)


def check_rows(connection: apsw.Connection) -> Iterator[str]:
    """Yield the name of every damaged row, as `TABLE KEY`; a row without a checksum is checked by its text only."""
    for table in find_covered(connection).values():
        size = len(table.key)
        for row in connection.execute(table.select):
            if _has_damaged_text(row) or contradicts(table.name, table.name_values(row[size:])):
                # a session is known by its id, which is not the number of its row
                name = row[size : size + 1] if table.key == ("rowid",) else row[:size]
                yield f"{table.name} {describe_key(name)}"


def describe_key(key: Values) -> str:
    """Return the key of a row as text; bytes as hexadecimal digits."""
    return ", ".join(part.hex() if isinstance(part, bytes) else str(part) for part in key)


def count_missing(connection: apsw.Connection) -> int:
    """Return how many rows have no checksum: an older version wrote them, or another program changed them."""
    counts = (
        connection.execute(f"SELECT count(*) FROM {name} WHERE {_COLUMN} IS NULL").fetchall()  # noqa: S608 - our names
        for name in find_covered(connection)
    )
    return sum(int(str(number)) for ((number,),) in counts)


def fill_missing(connection: apsw.Connection, *, most: int) -> int:
    """Compute the checksums of some rows that have none, in the open transaction; return how many were looked at."""
    done = 0
    for table in find_covered(connection).values():
        sql = f"{table.select} WHERE {_COLUMN} IS NULL LIMIT ?"
        rows = connection.execute(sql, (most - done,)).fetchall()
        _set(connection, table, {row[: len(table.key)]: None for row in rows})
        done += len(rows)
    return done

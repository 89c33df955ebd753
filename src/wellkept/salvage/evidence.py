"""Evidence from the indexes of a damaged file: which rows a table had, and some of their columns."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import apsw
from msgspec import Struct, field

from wellkept.salvage.pages import Value
from wellkept.salvage.rows import Row, Salvage
from wellkept.salvage.shapes import Shape

Key: TypeAlias = Value | tuple[Value, ...]
"""The number of a row, or the columns of its key."""


class Evidence(Struct):
    """The rows of a table as its indexes list them."""

    columns: dict[Key, dict[str, Value]] = field(default_factory=dict)
    """The known columns of each row."""
    expected: set[Key] = field(default_factory=set)
    """The rows that certainly existed: two indexes list them, or there is only one index."""
    complete: set[str] = field(default_factory=set)
    """The indexes that could be read to the end."""
    is_certain: bool = False
    """Whether an index is complete, so that a row that no index lists did not exist."""

    def is_stale(self, row: Row, key: Key) -> bool:
        """Whether a row is a leftover copy: no page points to it, and no index lists it."""
        return not row.is_reached and self.is_certain and key not in self.columns


def gather_evidence(salvage: Salvage, table: str, companions: Sequence[str] = ()) -> Evidence:
    """Read the indexes of a table; each of its rows has one of the same number in one of the `companions`."""
    found = Evidence()
    votes: Counter[Key] = Counter()
    lists = 0
    indexes = [shape for shape in salvage.shapes.values() if shape.is_index and shape.table == table]
    others = [salvage.shapes[name] for name in companions if name in salvage.shapes]
    for shape in (*indexes, *others):
        is_complete = salvage.extents[shape.name].is_complete
        found.complete |= {shape.name} if is_complete else set()
        lists += is_complete and shape.is_index and not shape.is_partial
        for key, values in _entries(salvage, shape):
            known = found.columns.setdefault(key, {})
            if shape.is_index:
                known |= {name: value for name, value in values.items() if name not in shape.key}
            votes[key] += not shape.is_partial
    lists += bool(others) and all(shape.name in found.complete for shape in others)
    found.is_certain = lists > 0
    found.expected = {key for key, count in votes.items() if count >= min(2, max(1, lists))}
    return found


def _entries(salvage: Salvage, shape: Shape) -> Iterator[tuple[Key, Mapping[str, Value]]]:
    for row in salvage.rows(shape.name):
        if row.is_reached and not row.damage:
            yield (key_of(shape, row) if shape.is_index else row.number), row.values


def key_of(shape: Shape, row: Row) -> Key:
    """Return the key of a row, which may be given as an entry of an index; None if the key is lost."""
    if shape.key == ("rowid",):
        return row.values.get("rowid") if shape.is_index else row.number
    found = tuple(row.values.get(name) for name in shape.key)
    return None if None in found else found


_FILLERS: Mapping[str, Value] = {"TEXT": "", "INTEGER": 0, "REAL": 0.0, "BLOB": b""}


def insert_row(connection: apsw.Connection, shape: Shape, values: Mapping[str, Value]) -> bool:
    """Insert a row; columns that a constraint refuses get their default value.

    Return whether it could be inserted.
    """
    affinities = dict(zip(shape.columns, shape.affinities, strict=True))
    filled = {name: _of_type(value, affinities.get(name, "")) for name, value in values.items()}
    for name, affinity, is_required in zip(shape.columns, shape.affinities, shape.required, strict=True):
        if is_required and filled.get(name) is None:
            filled[name] = _FILLERS.get(affinity, "")
    optional = [name for name in values if name in shape.columns and name not in shape.key]
    tries = [filled, *({key: value for key, value in filled.items() if key != one} for one in optional)]
    return any(_insert(connection, shape.table, one) for one in tries)


def _of_type(value: Value, affinity: str) -> Value:
    """Convert a value whose type was damaged to the type of its column."""
    if affinity == "TEXT" and value is not None and not isinstance(value, str):
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if affinity in {"INTEGER", "REAL"} and isinstance(value, str | bytes):
        return None
    return value


def _insert(connection: apsw.Connection, table: str, values: Mapping[str, Value]) -> bool:
    marks = ", ".join("?" * len(values))
    sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"  # noqa: S608 - names of our schema
    try:
        connection.execute(sql, tuple(values.values()))
    except (apsw.ConstraintError, apsw.MismatchError):
        return False
    return True

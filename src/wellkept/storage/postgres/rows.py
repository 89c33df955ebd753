"""Rows of whole tables: copied between a file and a server in both directions, compared, and cleared of texts.

Either side gives and takes the rows of one user. The columns are those that both databases have under one name; the
tenant and the user of a row on a server come from its transaction.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from wellkept.core.errors import StorageError
from wellkept.core.ports import UnitOfWork
from wellkept.storage.columns import OF_HOME, NamesIds, Part, TextColumn, new_values
from wellkept.storage.postgres.database import SCHEMA, UserDatabase
from wellkept.storage.postgres.schema import list_user_tables
from wellkept.storage.texts import Texts

Row: TypeAlias = tuple[Any, ...]
BATCH = 2_000
"""Rows of one transaction: a copy that is killed loses no more than this much work."""
_OWN = frozenset({"tenant", "checksum", "seq"})
"""Columns that each side fills in itself; only the checksums of messages and edits are copied with the row."""
_WITH_CHECKSUM = frozenset({"messages", "edits"})


_FILE_ORDER = {"sessions": "rowid"}
_SERVER_ORDER = {"sessions": "number"}
"""Tables whose rows are listed in the order in which they were stored, by a column that the other database lacks."""
_ID_RANGE = 1_048_576
"""How many message ids a user is given at once, as in `migrations/0011_message_numbers.sql`."""


class Side(Protocol):
    """The tables of one database, for the rows of one user."""

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table, none if there is no such table."""

    def read(self, table: str, columns: Sequence[str]) -> Iterable[Row]:
        """Yield the rows of the user."""

    def write(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows; one whose key exists stays as it is."""

    def clear(self, table: str) -> None:
        """Delete the rows of the user."""


def _order_by(columns: Mapping[str, str], table: str) -> str:
    return f" ORDER BY {columns[table]}" if table in columns else ""


class FileTables:
    """Tables of a file, in one open transaction."""

    def __init__(self, unit: UnitOfWork, user: str, conditions: Mapping[str, str]) -> None:
        self._unit = unit
        self._user = user
        self._conditions = conditions
        """Which rows of a table are the user's, as SQL with `:user`."""

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table, without the user's column if rows are selected by it."""
        found = [str(name) for (name,) in self._unit.execute("SELECT name FROM pragma_table_info(?)", (table,))]
        return [name for name in found if name != "user_id" or not self._is_by_user(table)]

    def read(self, table: str, columns: Sequence[str]) -> Iterable[Row]:
        condition = self._conditions[table]
        bindings = {"user": self._user} if ":user" in condition else {}
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE {condition}"  # noqa: S608 - names come from the schema
        return self._unit.execute(f"{sql}{_order_by(_FILE_ORDER, table)}", bindings)

    def write(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        names, added = list(columns), tuple[str, ...]()
        if self._is_by_user(table) and "user_id" in self._all_columns(table):
            names, added = [*names, "user_id"], (self._user,)
        marks = ", ".join("?" * len(names))
        sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608 - as above
        for row in rows:
            self._unit.execute(sql, (*row, *added))

    def clear(self, table: str) -> None:
        condition = self._conditions[table]
        bindings = {"user": self._user} if ":user" in condition else {}
        self._unit.execute(f"DELETE FROM {table} WHERE {condition}", bindings)  # noqa: S608 - as above

    def _all_columns(self, table: str) -> list[str]:
        return [str(name) for (name,) in self._unit.execute("SELECT name FROM pragma_table_info(?)", (table,))]

    def _is_by_user(self, table: str) -> bool:
        return self._conditions[table] != "1"


_READ_TYPES = "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = ? AND table_name = ?"


class ServerTables:
    """Tables of a server, each batch in a transaction of its own."""

    def __init__(self, database: UserDatabase) -> None:
        self._database = database
        self._named = database.user is None
        self._owner = "tenant = :tenant" if self._named else "tenant = :tenant AND user_id = :user"
        self._types: dict[str, dict[str, str]] = {}

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table; the user's column only if the transaction does not set it."""
        return [name for name in self._read_types(table) if name != "user_id" or self._named]

    def _read_types(self, table: str) -> dict[str, str]:
        """Return the type of each column of a table."""
        if table not in self._types:
            with self._database.reading() as unit:
                self._types[table] = {str(name): str(kind) for name, kind in unit.execute(_READ_TYPES, (SCHEMA, table))}
        return self._types[table]

    def read(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        """Yield the rows of the user, a batch at a time."""
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE {self._owner}{_order_by(_SERVER_ORDER, table)}"  # noqa: S608 - as above
        with self._database.reading() as unit, unit.connection.cursor("rows") as cursor:
            cursor.itersize = BATCH
            yield from cursor.execute(*unit.bind(sql))

    def write(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        # one statement with an array for each column: the driver and the server take longer to read a statement of many
        # values than to store them; COPY is not possible where row-level security is in force
        types = self._read_types(table)
        arrays = ", ".join(f"?::{types[name]}[]" for name in columns)
        owner, values = ("tenant", ":tenant") if self._named else ("tenant, user_id", ":tenant, :user")
        sql = (
            f"INSERT INTO {table} ({owner}, {', '.join(columns)})"  # noqa: S608 - as above
            f" SELECT {values}, {', '.join(f'new.{name}' for name in columns)}"
            f" FROM unnest({arrays}) AS new ({', '.join(columns)}) ON CONFLICT DO NOTHING"
        )
        with self._database.writing() as unit:
            unit.execute(sql, [list(column) for column in zip(*rows, strict=True)])

    def clear(self, table: str) -> None:
        with self._database.writing() as unit:
            unit.execute(f"DELETE FROM {table} WHERE {self._owner}")  # noqa: S608 - as above


class Copied(Struct, frozen=True):
    """One table of one user after its copy."""

    table: str
    rows: int
    checksum: str
    """Of all rows, in any order."""
    was_there: bool = False
    """Whether an earlier run had copied all of it."""


def copy_table(source: Side, target: Side, table: str, *, exact: bool, report: Callable[[int], None]) -> Copied:
    """Copy the rows of a table and verify them; raise StorageError if the target does not hold them afterwards.

    With `exact` the target must hold nothing else. What an interrupted copy has left is completed, or written again if
    it differs.
    """
    theirs = target.columns(table)
    own = _OWN - {"checksum"} if table in _WITH_CHECKSUM else _OWN
    columns = [name for name in source.columns(table) if name in theirs and name not in own]
    wanted = _hash_rows(source.read(table, columns))
    found = _hash_rows(target.read(table, columns))
    if found == wanted or (not exact and not wanted - found):
        return Copied(table, wanted.total(), _sum(wanted), was_there=True)
    if exact and found - wanted:
        target.clear(table)
        found = Counter()
    done = 0
    rows = source.read(table, columns)
    missing = (row for row in rows if _hash(row) not in found) if found else iter(rows)
    while batch := list(islice(missing, BATCH)):
        target.write(table, columns, batch)
        done += len(batch)
        report(done)
    found = _hash_rows(target.read(table, columns))
    if wanted - found or (exact and found != wanted):
        lost = (wanted - found).total()
        raise StorageError(
            f"{table}: {lost or (found - wanted).total()} rows differ after the copy",
            "stop every other process of this home, then run it again",
        )
    return Copied(table, wanted.total(), _sum(wanted))


def _hash_rows(rows: Iterable[Row]) -> Counter[int]:
    return Counter(map(_hash, rows))


def _hash(row: Row) -> int:
    # SQLite gives a whole number from a column of any type as an integer
    values = [int(value) if type(value) is float and value.is_integer() else value for value in row]
    return int.from_bytes(hashlib.blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _sum(hashes: Counter[int]) -> str:
    return f"{sum(number * count for number, count in hashes.items()) % (1 << 64):016x}"


def advance_sequences(database: UserDatabase, tables: Mapping[str, tuple[str, str]]) -> None:
    """Advance sequences past the highest numbers of copied rows; `tables` gives each table's column and sequence."""
    with database.writing() as unit:
        for table, (column, sequence) in tables.items():
            unit.execute(
                f"SELECT setval(?, greatest((SELECT max({column}) FROM {table} WHERE tenant = :tenant AND user_id = :user),"  # noqa: S608, E501 - as above
                " (SELECT coalesce(last_value, 0) FROM pg_sequences WHERE schemaname = ? AND sequencename = ?), 1))",
                (f"{SCHEMA}.{sequence}", SCHEMA, sequence),
            )


def advance_message_ids(database: UserDatabase, highest: int, *, goes_on: bool) -> None:
    """Reserve ids beyond `highest` for the user: the next ones if the user `goes_on` there, else a new range.

    Nobody else may write to this tenant meanwhile.
    """
    end = (highest // _ID_RANGE + 1) * _ID_RANGE
    with database.writing() as unit:
        unit.execute(
            "SELECT setval(?, greatest(?, (SELECT last_value FROM pg_sequences"
            " WHERE schemaname = ? AND sequencename = 'message_ranges')))",
            (f"{SCHEMA}.message_ranges", end, SCHEMA),
        )
        unit.execute("DELETE FROM message_numbers WHERE tenant = :tenant AND user_id = :user")
        if goes_on:
            unit.execute(
                "INSERT INTO message_numbers (tenant, user_id, next_id, range_end) VALUES (:tenant, :user, ?, ?)",
                (highest + 1, end),
            )


def scrub(database: UserDatabase, columns: Sequence[TextColumn], texts: Texts, neutral_id: NamesIds) -> int:
    """Remove the texts from the user's rows; return how many rows were removed or changed."""
    count = 0
    for column in columns:
        if column.part is Part.BY_STORE:
            continue
        holder, owner = _find_holder(database, column)
        with holder.writing() as unit:
            for value, place in _rows_holding(unit, column, texts, owner, database.user):
                where = f"WHERE {owner} AND ctid = :place::tid"
                named = {"person": database.user, "place": place}
                if column.part is Part.ROW:
                    unit.execute(f"DELETE FROM {column.table} {where}", named)  # noqa: S608 - as above
                else:
                    (new,) = new_values(column, value.encode(), texts, neutral_id)
                    sql = f"UPDATE {column.table} SET {column.column} = :new {where}"  # noqa: S608 - as above
                    unit.execute(sql, {**named, "new": new})
                count += 1
    return count


def count_holding(database: UserDatabase, columns: Sequence[TextColumn], texts: Texts) -> int:
    """Return how many of the user's rows hold one of the texts."""
    holders = {_find_holder(database, column) for column in columns}
    count = 0
    for holder, owner in holders:
        with holder.reading() as unit:
            own = [column for column in columns if _find_holder(database, column) == (holder, owner)]
            count += sum(len(_rows_holding(unit, column, texts, owner, database.user)) for column in own)
    return count


def _find_holder(database: UserDatabase, column: TextColumn) -> tuple[UserDatabase, str]:
    """Return whose transaction sees the user's rows of a table, and the condition for them.

    A table of the whole tenant names a user by the id itself, which may be another text than the key, or no user.
    """
    if column.table in list_user_tables():
        return database, "tenant = :tenant AND user_id = :user"
    owner = ":person::text = 'owner'" if column.of_user == OF_HOME else "user_id = :person"
    return database.server.for_tenant(), f"tenant = :tenant AND {owner}"


def _rows_holding(
    unit: UnitOfWork, column: TextColumn, texts: Texts, owner: str, person: str | None
) -> list[tuple[str, str]]:
    sql = f"SELECT {column.column}, ctid::text FROM {column.table} WHERE {owner}"  # noqa: S608 - as above
    rows: Iterable[Row] = unit.execute(sql, {"person": person})
    return [(_text(value), str(place)) for value, place in rows if value and texts.are_in_bytes(_bytes(value))]


def _bytes(value: object) -> bytes:
    return bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode("utf-8", "replace")


def _text(value: object) -> str:
    return _bytes(value).decode("utf-8", "replace")

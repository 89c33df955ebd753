"""Columns of our databases that hold text: remove a text from them, and count the rows that still hold it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import apsw
from msgspec import Struct

from wellkept.storage.connections import connect_read_only, explain_sql_errors, open_connection
from wellkept.storage.maintenance import vacuum
from wellkept.storage.sqlite import Connection, Database
from wellkept.storage.texts import Texts


class Part(StrEnum):
    """What is removed where a column holds the text."""

    ROW = "row"
    NULL = "null"
    BLANK = "blank"
    ID = "id"
    """A neutral id takes the place of one that a client chose, the same in every column."""
    WORDS = "words"
    """Only the words are replaced, because a program parses the rest."""
    BY_STORE = "by its store"
    """The store of the table removes it, with everything that depends on it; here it is only counted."""


class TextColumn(Struct, frozen=True):
    """A column that may hold text of a person."""

    table: str
    column: str
    part: Part
    of_user: str = "1"
    """The SQL condition for the rows of `:user`."""


OF_HOME = ":user = 'owner'"
"""The condition for a table that names no user: what it holds is the owner's to forget."""
NamesIds: TypeAlias = Callable[[str], str]
"""Returns the neutral id for one that holds a text."""


def scrub(database: Database, columns: Sequence[TextColumn], texts: Texts, *, user: str, neutral_id: NamesIds) -> int:
    """Remove the texts from the user's rows; return how many rows were removed or changed."""
    count = 0
    for column in columns:
        if column.part is Part.BY_STORE:
            continue
        with database.writing() as connection:
            keys, found = _rows_holding(connection, column, texts, user)
            where = " AND ".join(f"{key} IS ?" for key in keys)
            for value, key in found:
                values = new_values(column, value, texts, neutral_id)
                connection.execute(f"{_verb(column)} WHERE {where}", (*values, *key))
        count += len(found)
    return count


def _verb(column: TextColumn) -> str:
    if column.part is Part.ROW:
        return f"DELETE FROM {column.table}"  # noqa: S608 - names come from the table of places
    return f"UPDATE {column.table} SET {column.column} = ?"  # noqa: S608 - as above


def new_values(column: TextColumn, value: bytes, texts: Texts, neutral_id: NamesIds) -> tuple[str | None, ...]:
    """Return what `_verb` binds: nothing for a row that is deleted."""
    match column.part:
        case Part.ROW:
            return ()
        case Part.WORDS:
            return (texts.without_words(value.decode("utf-8", "replace")),)
        case Part.ID:
            return (neutral_id(value.decode("utf-8", "replace")),)
        case part:
            return (None if part is Part.NULL else "",)


def count_holding(path: Path, columns: Sequence[TextColumn], texts: Texts, *, user: str) -> int:
    """Return how many of the user's rows in a database file hold one of the texts; 0 if there is no file."""
    if not path.exists():
        return 0
    with explain_sql_errors(path):
        connection = connect_read_only(path)
        try:
            return sum(len(_rows_holding(connection, column, texts, user)[1]) for column in columns)
        finally:
            connection.close()


def _rows_holding(
    connection: Connection, column: TextColumn, texts: Texts, user: str
) -> tuple[list[str], list[tuple[bytes, tuple[Any, ...]]]]:
    """Return the names of the key columns, and value and key of the rows that hold one of the texts."""
    described = connection.execute(f"PRAGMA table_info({column.table})").fetchall()
    if column.column not in {str(row[1]) for row in described}:
        return [], []  # an older or newer file without this column
    keys = [str(row[1]) for row in described if row[5]] or ["rowid"]
    # as bytes: damaged text cannot be decoded
    sql = f"SELECT CAST({column.column} AS BLOB), {', '.join(keys)} FROM {column.table} WHERE {column.of_user}"  # noqa: S608 - as above
    bindings = {"user": user} if ":user" in column.of_user else {}
    rows: Iterator[tuple[Any, ...]] = connection.execute(sql, bindings)
    return keys, [(value, tuple(key)) for value, *key in rows if value and texts.are_in_bytes(value)]


def keep_rows(path: Path, rows: Mapping[str, str], *, user: str) -> None:
    """Delete other users' rows from a database file, and all search indexes, and free their pages.

    `rows` gives the condition per table, in an order in which rows can be deleted; tables without one are emptied.
    """
    with explain_sql_errors(path):
        connection = open_connection(path, apsw.SQLITE_OPEN_READWRITE)
        try:
            for (name,) in connection.execute(_VIRTUAL).fetchall():
                connection.execute(f"DROP TABLE IF EXISTS {name}")
            present = [str(name) for (name,) in connection.execute(_TABLES).fetchall()]
            for table in [*rows, *(name for name in present if name not in rows)]:
                if table in present:
                    condition = rows.get(table, "0")
                    bindings = {"user": user} if ":user" in condition else {}
                    connection.execute(f"DELETE FROM {table} WHERE ({condition}) IS NOT 1", bindings)  # noqa: S608 - names come from the table of places
            vacuum(connection, path)
        finally:
            connection.close()


def count_rows(path: Path, table: str) -> int:
    """Return the number of rows of a table in a database file; 0 if there is no file or no such table."""
    if not path.exists():
        return 0
    with explain_sql_errors(path):
        connection = connect_read_only(path)
        try:
            if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchone() is None:
                return 0
            return int(str(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]))  # noqa: S608 - callers pass constants
        finally:
            connection.close()


def text_columns(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield every column that can hold text or bytes, except those of search indexes."""
    tables = [str(name) for (name,) in connection.execute(_TABLES).fetchall()]
    for table in tables:
        for row in connection.execute(f"PRAGMA table_info({table})").fetchall():
            if str(row[2]).upper() in {"TEXT", "BLOB", ""}:
                yield table, str(row[1])


# the tables behind a virtual one (FTS5) are marked "shadow"
_TABLES = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'"
_VIRTUAL = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'virtual'"

"""The rewrite of all tables on a server, which removes the bytes of deleted rows from its files.

PostgreSQL keeps deleted rows in its files until a vacuum, their bytes until a table is written anew, and every change
in its write-ahead log until the server reuses that file.
"""

from collections.abc import Iterator

import psycopg
from msgspec import field

from wellkept.core.errors import UsageError
from wellkept.core.values import JsonStruct
from wellkept.storage.connections import statements
from wellkept.storage.postgres.database import SCHEMA, parse_url
from wellkept.storage.postgres.errors import Place, translate
from wellkept.storage.postgres.unit import Driver
from wellkept.storage.texts import Texts

SQL = statements("wellkept.storage.postgres", "rewrite.sql")
_SEGMENT_BYTES = 1 << 30
"""The server stores a table in files of this size."""
_STEP_BYTES = 8 << 20
_OVERLAP_BYTES = 4_096


class Rewritten(JsonStruct, frozen=True):
    """What was rewritten, and where words that were given are still found."""

    tables: int
    bytes_before: int
    bytes_after: int
    statistics: bool
    """Whether the samples of columns that the planner keeps were rewritten too: only for the owner of the database."""
    checkpoint: bool
    """Whether the server closed the current file of its log."""
    files: int | None = field(name="files_searched")
    """How many tables and indexes were searched; None if none were: no words, or the role may not read the files."""
    files_left: tuple[str, ...] = ()
    """Tables and indexes whose files still contain the words: an old transaction may still need the rows."""
    log_files_left: int = 0
    """Files of the log that still contain the words."""


def rewrite(url: str, texts: Texts) -> Rewritten:
    """Write every table anew as their owner, then look for the texts in the files of the server.

    Each table is locked while it is written; waiting for that lock ends with an error after half a minute.
    """
    address, place = parse_url(url)
    try:
        with psycopg.connect(address, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
            connection.execute("SET lock_timeout = '30s'")
            connection.execute("SET statement_timeout = 0")
            before = _measure(connection)
            tables = [str(name) for name, is_owned in _run(connection, SQL.tables) if _require_owner(is_owned, place)]
            for table in tables:
                connection.execute(f"VACUUM (FULL, ANALYZE) {table}".encode())  # a name that the server has quoted
            ((owns_database, may_read),) = _run(connection, SQL.rights)
            if owns_database:
                connection.execute("VACUUM (FULL) pg_catalog.pg_statistic")
            is_flushed = _checkpoint(connection)
            files, left, log_left = _search(connection, texts) if may_read and texts else (None, (), 0)
            after = _measure(connection)
    except psycopg.Error as error:
        raise translate(error, place) from error
    return Rewritten(
        len(tables),
        before,
        after,
        bool(owns_database),
        is_flushed,
        files=files,
        files_left=left,
        log_files_left=log_left,
    )


def _require_owner(is_owned: object, place: Place) -> bool:
    """Refuse a role that does not own a table: the server would skip it with a warning only."""
    if not is_owned:
        what = f"{place.role!r} does not own the tables of kept, so it cannot rewrite them"
        raise UsageError(what, "name the owner's URL with --owner-url-env; nothing was changed")
    return True


def _run(connection: Driver, statement: str) -> list[tuple[object, ...]]:
    return connection.execute(statement.encode(), {"schema": SCHEMA}).fetchall()


def _measure(connection: Driver) -> int:
    ((size,),) = _run(connection, SQL.size)
    return int(str(size))


def _checkpoint(connection: Driver) -> bool:
    try:
        connection.execute("SELECT pg_switch_wal()")
        connection.execute("CHECKPOINT")
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


def _search(connection: Driver, texts: Texts) -> tuple[int, tuple[str, ...], int]:
    """Return how many files of relations were searched, the relations that hold a text, and the log's files that do."""
    relations = [(str(name), str(path), int(str(size))) for name, path, size in _run(connection, SQL.relations)]
    held = [name for name, path, size in relations if _holds(connection, path, size, texts)]
    log = [(f"pg_wal/{name}", int(str(size))) for name, size in _run(connection, SQL.log)]
    return len(relations), tuple(held), sum(_holds(connection, path, size, texts) for path, size in log)


def _holds(connection: Driver, path: str, size: int, texts: Texts) -> bool:
    return any(texts.are_in_bytes(part) for part in _read(connection, path, size))


def _read(connection: Driver, path: str, size: int) -> Iterator[bytes]:
    """Yield the bytes of a relation or a file of the log in parts that overlap."""
    for start in range(0, size, _STEP_BYTES):
        number, offset = divmod(start, _SEGMENT_BYTES)
        name = f"{path}.{number}" if number else path
        bindings = (name, offset, _STEP_BYTES + _OVERLAP_BYTES)
        row = connection.execute(SQL.read.encode(), bindings).fetchone()
        if row is not None and row[0] is not None:
            yield bytes(memoryview(row[0]))  # type: ignore[arg-type]  # the driver gives bytes for bytea

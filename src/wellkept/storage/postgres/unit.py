"""One open transaction on PostgreSQL: statements in the notation of SQLite, with their bindings, for one user."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from typing import NamedTuple, TypeAlias

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.types.string import StrDumper

from wellkept.storage.connections import Statement

Bindings: TypeAlias = Sequence[object] | Mapping[str, object]
Driver: TypeAlias = psycopg.Connection[tuple[object, ...]]
Begin: TypeAlias = "Callable[[Callable[[Driver], str] | None], tuple[Driver, psycopg.Cursor[tuple[object, ...]]]]"
"""Begins a transaction, in one round trip with the statement that the argument returns, if there is one."""
_ROWS_AT_ONCE = 500
_NOTATION = re.compile(r"'[^']*'|--[^\n]*|::|\?(?P<number>\d*)|:(?P<name>[a-z_]\w*)|%", re.IGNORECASE)
_IN_ARRAY = re.compile(r'["\\]')
ESCAPE = "\ufdd0"
"""A noncharacter, which texts hardly ever contain; where one does, it is escaped as well."""


@cache
def to_driver(statement: str) -> bytes:
    """Return a statement with the placeholders of the driver: `?`, `?1` and `:name` become `%(p1)s` and `%(name)s`.

    What is a comment for SQLite (`/*! ... */`) becomes a part of it; strings, comments and casts stay as they are.
    """
    asked = count(1)

    def replace(match: re.Match[str]) -> str:
        if match["number"] is not None:
            return f"%(p{match['number'] or next(asked)})s"
        return match[0].replace("%", "%%") if match["name"] is None else f"%({match['name']})s"

    return _NOTATION.sub(replace, statement.replace("/*! ", "").replace(" */", "")).encode()


def escape(text: str) -> str:
    """Return `text` without NUL, which PostgreSQL stores in no text."""
    if "\0" not in text and ESCAPE not in text:
        return text
    return text.replace(ESCAPE, f"{ESCAPE}1").replace("\0", f"{ESCAPE}0")


def unescape(text: str) -> str:
    """Return what `escape` was given."""
    return text.replace(f"{ESCAPE}0", "\0").replace(f"{ESCAPE}1", ESCAPE)


def as_array(value: object) -> object:
    """Return a list of numbers or texts as a literal, which the driver writes in a tenth of the time; others as is."""
    if not isinstance(value, (list, tuple)):
        return value
    if all(type(item) is int for item in value):
        return "{" + ",".join(map(str, value)) + "}"
    if all(type(item) is str for item in value):
        return "{" + ",".join([_IN_ARRAY.sub(r"\\\g<0>", item).join('""') for item in value]) + "}"
    return value


class _Text(Loader):
    def load(self, data: Buffer) -> str:
        text = str(data, "utf-8")
        return unescape(text) if ESCAPE in text else text


class _Escape(StrDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escape(obj))


class ClientCursor(psycopg.ClientCursor[tuple[object, ...]]):
    """A cursor of the driver that gives no rows after a statement without any, where the driver raises."""

    def __iter__(self) -> Iterator[tuple[object, ...]]:  # type: ignore[override]  # callers only iterate
        return iter(()) if self.description is None else super().__iter__()


def prepare(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Let a connection store texts with NUL, and prepare nothing."""
    connection.adapters.register_dumper(str, _Escape)
    for kind in ("text", "varchar", "name"):
        connection.adapters.register_loader(kind, _Text)
    connection.prepare_threshold = None  # PgBouncer in transaction mode gives each transaction another connection


class Owner(NamedTuple):
    """Whose rows a transaction reads and changes."""

    tenant: str
    key: str
    """The user in every `user_id`; empty for tables that belong to no user."""


class Unit:
    """One transaction: a `core.ports.UnitOfWork`. It begins with its first statement."""

    def __init__(self, connection: "Driver | Begin", *, is_writing: bool, owner: "Owner | None" = None) -> None:
        self._begin = connection if callable(connection) else None
        self._connection = None if callable(connection) else connection
        self.is_writing = is_writing
        self.text_index: object | None = None
        """What `sessions/postgres` has to do before the commit."""
        self.on_commit: list[Callable[[], None]] = []
        """What is done once this transaction is committed and its locks are free."""
        self._owner = owner
        self._changes = 0
        self._waiting: list[tuple[str, Bindings]] = []

    @property
    def connection(self) -> Driver:
        """The connection in this transaction."""
        if self._connection is None:
            assert self._begin is not None
            self._connection, _ = self._begin(None)
        return self._connection

    @property
    def has_begun(self) -> bool:
        """Whether anything was sent to the server."""
        return self._connection is not None

    def bind(self, sql: str, bindings: Bindings = ()) -> tuple[bytes, dict[str, object]]:
        """Return a statement and its bindings as the driver takes them, with `:tenant` and `:user` of this unit."""
        if not isinstance(bindings, Mapping):
            bindings = {f"p{place}": value for place, value in enumerate(bindings, start=1)}
        named = {name: as_array(value) for name, value in bindings.items()}
        if self._owner is not None:
            named.update(tenant=self._owner.tenant, user=self._owner.key)
        return to_driver(sql.for_server if isinstance(sql, Statement) else sql), named

    def execute(self, sql: str, bindings: Bindings = ()) -> psycopg.Cursor[tuple[object, ...]]:
        """Run one statement and return its cursor, which has all rows."""
        self.flush()
        is_short = isinstance(sql, Statement) and sql.for_server.is_short
        if self._connection is None and self._begin is not None and is_short:
            self._connection, cursor = self._begin(lambda driver: _write(driver, [self.bind(sql, bindings)]))
        else:
            cursor = self.connection.execute(*self.bind(sql, bindings))
        self._changes = cursor.rowcount
        return cursor

    def executemany(self, sql: str, rows: Sequence[Bindings]) -> None:
        """Queue one statement per row; they run before the next statement, or in one round trip with the commit."""
        self._waiting += [(sql, row) for row in rows]

    def flush(self) -> None:
        """Run the queued statements, hundreds of them in one round trip."""
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), _ROWS_AT_ONCE):
            self._send(waiting[start : start + _ROWS_AT_ONCE])

    def commit(self) -> None:
        """Commit, in one round trip with the queued statements."""
        last = self._waiting[-_ROWS_AT_ONCE:]
        del self._waiting[-_ROWS_AT_ONCE:]
        self.flush()
        if last:
            self._send(last, "COMMIT")
        else:  # even without a statement: a commit shows whether the server can be reached
            self.connection.commit()

    def _send(self, statements: Sequence[tuple[str, Bindings]], *more: str) -> None:
        text = _write(self.connection, [self.bind(*one) for one in statements], *more)
        with psycopg.ClientCursor(self.connection) as cursor:
            cursor.execute(text.encode())

    def read_bytes(self, sql: str, bindings: Sequence[object]) -> list[tuple[object, ...]]:
        """Return rows as the server stores them, without the text form that doubles the size of bytes.

        Placeholders are `%s` and need types (`%s::text[]`), because the server binds them.
        """
        self.flush()
        with psycopg.Cursor(self.connection) as cursor:
            return cursor.execute(sql.encode(), bindings, binary=True).fetchall()

    def changes(self) -> int:
        return max(self._changes, 0)

    @property
    def filename(self) -> str:
        """Return what errors name in place of a file."""
        return self.connection.info.dbname


def _write(driver: Driver, statements: Sequence[tuple[bytes, Mapping[str, object]]], *more: str) -> str:
    """Return statements with their bindings as one text."""
    with psycopg.ClientCursor(driver) as cursor:
        return ";\n".join([*(cursor.mogrify(sql, values) for sql, values in statements), *more])

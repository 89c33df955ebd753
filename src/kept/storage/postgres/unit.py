"""One open transaction on PostgreSQL: statements with their bindings, limited to the rows of one user."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.types.string import StrDumper

from kept.storage.postgres.statements import adapt, by_name, escape, unescape

Bindings: TypeAlias = Sequence[object] | Mapping[str, object]
_ROWS_AT_ONCE = 500


class _Text(Loader):
    def load(self, data: Buffer) -> str:
        return unescape(bytes(data).decode())


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
    identity: str
    """The user's id."""


class Unit:
    """One open transaction: a `core.ports.UnitOfWork`."""

    def __init__(
        self, connection: psycopg.Connection[tuple[object, ...]], *, is_writing: bool, owner: "Owner | None" = None
    ) -> None:
        self.connection = connection
        self.is_writing = is_writing
        self.ran: set[str] = set()
        """The statements that were run in this transaction."""
        self.text_index: object | None = None
        """What `sessions/postgres` has to do before the commit."""
        self.on_commit: list[Callable[[], None]] = []
        """What is done once this transaction is committed and its locks are free."""
        self._owner = owner
        self._changes = 0
        self._waiting: list[tuple[str, Bindings]] = []

    def bind(self, sql: str, bindings: Bindings = ()) -> tuple[bytes, Mapping[str, object]]:
        """Return a statement and its bindings as the driver takes them, limited to the rows of this user."""
        named, owner = by_name(bindings), self._owner
        adapted = adapt(sql, filtered=owner is not None)
        if owner is None:
            return adapted.sql, named
        own: dict[str, object] = {"kept_tenant": owner.tenant, "kept_user": owner.key}
        for name in adapted.users if owner.identity != owner.key else ():
            if named.get(name) == owner.identity:  # statements of both databases bind the id
                own[name] = owner.key
        return adapted.sql, {**named, **own}

    def execute(self, sql: str, bindings: Bindings = ()) -> psycopg.Cursor[tuple[object, ...]]:
        """Run one statement and return its cursor, which has all rows."""
        self.flush()
        self.ran.add(sql)
        cursor = self.connection.execute(*self.bind(sql, bindings))
        self._changes = cursor.rowcount
        return cursor

    def executemany(self, sql: str, rows: Sequence[Bindings]) -> None:
        """Run one statement for each of the rows before the next statement: what follows may share its exchange."""
        self.ran.update([sql] if rows else ())
        self._waiting += [(sql, row) for row in rows]

    def flush(self) -> None:
        """Run what waits for the next statement; call it before the commit."""
        if self._waiting:
            self.execute_all(())

    def execute_all(self, statements: Sequence[tuple[str, Bindings]]) -> None:
        """Run statements that give no rows, each with its bindings, hundreds in one exchange with the server."""
        self.ran.update(sql for sql, _ in statements)
        statements, self._waiting = [*self._waiting, *statements], []
        with psycopg.ClientCursor(self.connection) as cursor:
            for start in range(0, len(statements), _ROWS_AT_ONCE):
                part = statements[start : start + _ROWS_AT_ONCE]
                cursor.execute(";\n".join(cursor.mogrify(*self.bind(sql, row)) for sql, row in part).encode())

    def execute_together(self, statements: Sequence[str], bindings: Bindings) -> list[list[tuple[object, ...]]]:
        """Run several statements with the same bindings in one exchange with the server; return the rows of each."""
        self.flush()
        found = []
        with psycopg.ClientCursor(self.connection) as cursor:
            whole = ";\n".join(cursor.mogrify(*self.bind(sql, bindings)) for sql in statements)
            cursor.execute(whole.encode())
            while True:
                found.append(cursor.fetchall())
                if not cursor.nextset():
                    return found

    def read_bytes(self, sql: str, bindings: Sequence[object]) -> list[tuple[object, ...]]:
        """Return rows as the server stores them, without the text form that doubles the size of bytes.

        Placeholders are `%s` and need types (`%s::text[]`), because the server binds them.
        """
        self.flush()
        with psycopg.Cursor(self.connection) as cursor:
            return cursor.execute(sql.encode(), bindings, binary=True).fetchall()

    def changes(self) -> int:
        """Return how many rows the last statement changed."""
        return max(self._changes, 0)

    @property
    def filename(self) -> str:
        """Return what errors name in place of a file."""
        return self.connection.info.dbname

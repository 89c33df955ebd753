"""What the rules need of a database; SQLite and PostgreSQL provide it, each in its own way."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from wellkept.core.ports import Clock, EventSink, UnitOfWork
    from wellkept.sessions.records import MessageRow
    from wellkept.sessions.redaction import Redaction
    from wellkept.sessions.settings import SessionSettings


class Cursor(Protocol):
    """The rows of one statement."""

    def __iter__(self) -> Iterator[Any]: ...

    def fetchone(self) -> Any | None:
        """Return the next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the rows that were not read yet."""
        ...


class Connection(Protocol):
    """A connection to SQLite, or one transaction on PostgreSQL. Values have the types of the driver."""

    @property
    def filename(self) -> str:
        """What errors name: the file, or the database of a server."""
        ...

    def execute(self, sql: str, bindings: Any = (), /) -> Cursor:
        """Run one statement and return its rows."""
        ...

    def executemany(self, sql: str, rows: Sequence[Any], /) -> object:
        """Run one statement for each of the rows."""
        ...

    def changes(self) -> int:
        """Return how many rows the last statement changed."""
        ...


class Database(Protocol):
    """Transactions on the tables of sessions."""

    @property
    def path(self) -> object:
        """What statistics name: the path of the file, or the server and its database."""
        ...

    @property
    def is_read_only(self) -> bool:
        """Whether this thread can only read."""
        ...

    def reading(self) -> AbstractContextManager[Connection]:
        """Yield a connection for reads."""
        ...

    def writing(self, *, with_checksums: bool = True) -> AbstractContextManager[Connection]:
        """Yield a connection in one write transaction; joins one that is already open on this thread."""
        ...

    def limit_wait(self, seconds: float) -> AbstractContextManager[object]:
        """Inside the block, wait no longer than `seconds` for other writers on this thread, then raise Busy."""
        ...


class OpenStore(Protocol):
    """An open store, which all its parts and users share."""

    settings: "SessionSettings"
    clock: "Clock"
    sink: "EventSink"

    @property
    def database(self) -> Database:
        """Its transactions."""
        ...

    @property
    def redaction(self) -> "Redaction":
        """Removes credentials from everything that is stored."""
        ...

    def now(self) -> float:
        """Return the current time in epoch seconds."""
        ...

    def writing(
        self, unit: "UnitOfWork | None" = None, *, with_checksums: bool = True
    ) -> AbstractContextManager[Connection]:
        """Give the connection inside a transaction: the caller's unit, or a new one."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...

    def catch_up(self) -> None:
        """Index the queued messages."""
        ...

    def erase(self) -> None:
        """Remove every byte of what was deleted, as far as the database can."""
        ...

    def rebuild_damaged(self) -> bool:
        """Rebuild damaged derived tables; False if there is nothing to rebuild here."""
        ...


class TextIndex(Protocol):
    """The text index as the open transaction changes it."""

    most_queued: int
    """Up to this many rows inserted in one call are queued by a trigger of the table."""

    def add(self, rows: Sequence[tuple[int, "MessageRow"]]) -> None:
        """Index inserted rows, each given with its id, unless they are queued."""
        ...

    def remove(self, message_ids: Sequence[int]) -> None:
        """Remove these messages from search results."""
        ...

    def queue(self, message_ids: Sequence[int]) -> None:
        """Index messages again, in their new state."""
        ...

    def note_changes(self) -> None:
        """Index the messages whose texts this transaction has changed: a trigger has queued them."""
        ...

    def note_session(self, *, is_removed: bool = False) -> None:
        """Bring the list of users up to date: a session was added or removed."""
        ...


@singledispatch
def find_index(connection: object) -> TextIndex:
    """Return the index of the database that a connection belongs to; each database registers its own."""
    raise TypeError(f"no text index is registered for {type(connection).__name__}")

"""The session store on PostgreSQL, bound to one user.

Conversations are kept by the same rules on both databases (`sessions/rows`), here on the statements of their
`.postgres.sql` files. This package has what differs: the index, the search, and the upkeep that a server does
itself.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, cast

from wellkept.core.clock import SystemClock
from wellkept.core.errors import StorageError
from wellkept.core.ids import OWNER, SessionId, UserId
from wellkept.core.messages import Lineage, Link
from wellkept.core.ports import Clock, EventSink, UnitOfWork, ignore
from wellkept.core.search import Found, SearchRequest
from wellkept.sessions.postgres import index
from wellkept.sessions.postgres.index import UnitIndex
from wellkept.sessions.postgres.postings import CACHE, PostgresCatalog, PostgresPostings
from wellkept.sessions.redaction import Redaction
from wellkept.sessions.rows import message_rows
from wellkept.sessions.rows.store import RowStore
from wellkept.sessions.search.engine import search
from wellkept.sessions.settings import SessionSettings
from wellkept.storage.postgres.database import PostgresServer, UserDatabase
from wellkept.storage.postgres.unit import Unit

if TYPE_CHECKING:
    from wellkept.sessions.postgres.semantic import ServerVectors
    from wellkept.sessions.postgres.upkeep import PostgresTransfer, PostgresUpkeep


class SessionDatabase:
    """The database of one user, whose write transactions index what they store."""

    is_empty = False

    def __init__(self, rows: UserDatabase) -> None:
        self.rows = rows
        self.path = f"{rows.server.place}, database {rows.server.place.database!r}"

    @property
    def is_read_only(self) -> bool:
        """Whether the server accepts no writes now."""
        return self.rows.is_read_only

    @property
    def has_written(self) -> bool:
        """Whether a transaction was committed through this server."""
        return self.rows.server.has_written

    def reading(self) -> AbstractContextManager[Unit]:
        """Yield a transaction for reads."""
        return self.rows.reading()

    @contextmanager
    def writing(self, *, with_checksums: bool = True) -> Iterator[Unit]:  # noqa: ARG002 - the server checks its pages
        """Yield a write transaction that indexes before it ends."""
        with self.rows.writing() as unit, self.keep_index(unit):
            yield unit

    @contextmanager
    def keep_index(self, unit: Unit) -> Iterator[None]:
        """Give a transaction its index, and update the index at the end of the block."""
        outer = unit.text_index
        if outer is not None:
            yield
            return
        unit.text_index = own = UnitIndex(unit)
        try:
            yield
            own.finish()
            for statement in own.user_statements:
                unit.executemany(statement, [{"identity": self.rows.user}])
            if own.is_merge_due:
                unit.on_commit.append(self._merge)
        finally:
            unit.text_index = None

    def _merge(self) -> None:
        """Merge segments in a separate transaction: it may take seconds, and the user's other writers must not wait."""
        with suppress(StorageError), self.rows.writing() as unit:  # the messages are stored, and the next writer merges
            index.merge(unit)

    def limit_wait(self, seconds: float) -> AbstractContextManager[None]:
        """Inside the block, transactions of this thread wait no longer than `seconds` for locks, then raise Busy."""
        return self.rows.limit_wait(seconds)


class PostgresFile:
    """The open store: what all its parts and users share."""

    def __init__(
        self, rows: UserDatabase, settings: SessionSettings | None, *, clock: Clock | None, sink: EventSink
    ) -> None:
        self.settings = settings or SessionSettings()
        self.clock = clock or SystemClock()
        self.sink = sink
        self.database = SessionDatabase(rows)

    @cached_property
    def redaction(self) -> Redaction:
        return Redaction(is_on=self.settings.redact)

    def now(self) -> float:
        return self.clock.now().timestamp()

    @contextmanager
    def writing(self, unit: UnitOfWork | None = None, *, with_checksums: bool = True) -> Iterator[Unit]:
        """Give the transaction: the caller's unit, or a new one."""
        if unit is None:
            with self.database.writing(with_checksums=with_checksums) as own:
                yield own
            return
        given = cast(Unit, unit)
        with self.database.keep_index(given):
            yield given

    def close(self) -> None:
        """Close the connections."""
        self.database.rows.server.close()

    def catch_up(self) -> None:
        """Do nothing: messages are indexed in the transaction that writes them."""

    def rebuild_damaged(self) -> bool:
        """Return False: damage on a server is repaired there."""
        return False

    def erase(self) -> None:
        """Rewrite the segments without what was removed; the server reuses the space of the old rows."""
        with self.database.writing() as unit:
            index.merge(unit, everything=True)
        CACHE.clear()


class PostgresSessionStore(RowStore):
    """Stores and finds the conversations of one user; implements `sessions.ports.Sessions`."""

    def __init__(
        self,
        server: PostgresServer,
        settings: SessionSettings | None = None,
        *,
        user: UserId = OWNER,
        clock: Clock | None = None,
        sink: EventSink = ignore,
        meaning: "ServerVectors | None" = None,
    ) -> None:
        self.server = server
        self.sink = sink
        self.rows = server.for_user(user)
        self.file: PostgresFile = PostgresFile(self.rows, settings, clock=clock, sink=sink)
        self.database: SessionDatabase = self.file.database
        self.user = UserId(self.rows.key)
        self._vectors = meaning
        self.meaning = None if meaning is None else meaning.of(self.rows)

    def for_user(self, user: UserId, *, sink: EventSink | None = None) -> "PostgresSessionStore":
        """Return the sessions of a user in the same database; closing one closes all."""
        if user in {self.user, self.rows.user} and sink is None:
            return self
        file = self.file
        return PostgresSessionStore(
            self.server, file.settings, user=user, clock=file.clock, sink=sink or ignore, meaning=self._vectors
        )

    def lineage(self) -> Lineage:
        """Return the links between sessions; each step is a transaction of its own."""

        def parent_of(session_id: SessionId) -> tuple[SessionId, Link | None] | None:
            with self.rows.reading() as unit:
                return message_rows.lineage(unit, user=self.user).parent_of(session_id)

        def children_of(session_id: SessionId) -> list[tuple[SessionId, Link | None]]:
            with self.rows.reading() as unit:
                return list(message_rows.lineage(unit, user=self.user).children_of(session_id))

        return Lineage(parent_of, children_of)

    def search(self, request: SearchRequest) -> Found:
        with self.rows.reading() as unit:
            return search(*self.open_index(unit), request, now=self.file.now(), embed=self._embed(unit))

    def open_index(self, unit: Unit) -> tuple[PostgresPostings, PostgresCatalog]:
        """Return the search port in one transaction."""
        postings = PostgresPostings(unit, place=(self.server.address, self.server.tenant, self.rows.key))
        return postings, PostgresCatalog(unit, texts=postings.known_texts)

    @cached_property
    def upkeep(self) -> "PostgresUpkeep":
        from wellkept.sessions.postgres.upkeep import PostgresUpkeep

        return PostgresUpkeep(self)

    @cached_property
    def transfer(self) -> "PostgresTransfer":
        from wellkept.sessions.postgres.upkeep import PostgresTransfer

        return PostgresTransfer(self)

"""The session store in SQLite, bound to one user."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kept.core.ids import OWNER, UserId
from kept.core.messages import Lineage
from kept.core.ports import Clock, EventSink, ignore
from kept.core.search import Found, SearchRequest
from kept.sessions.rows import message_rows
from kept.sessions.rows.store import RowStore, retry_after_rebuild
from kept.sessions.settings import SessionSettings
from kept.sessions.sqlite.file import SessionFile
from kept.storage.sqlite import Database

if TYPE_CHECKING:
    from kept.sessions.rows.semantic import SemanticSearch
    from kept.sessions.rows.transfer import RowTransfer
    from kept.sessions.sqlite.upkeep import SqliteUpkeep


class SqliteSessionStore(RowStore):
    """Stores and finds the conversations of one user; implements `sessions.ports.Sessions`.

    Takes a shared database, or a path: a file, or a folder in which `state.db` exists or is created.
    """

    def __init__(
        self,
        database: SessionFile | Database | Path | str,
        settings: SessionSettings | None = None,
        *,
        user: UserId = OWNER,
        clock: Clock | None = None,
        sink: EventSink = ignore,
        meaning: "SemanticSearch | None" = None,
    ) -> None:
        if not isinstance(database, SessionFile):
            database = SessionFile(database, settings, clock=clock, sink=sink)
        self.file: SessionFile = database
        self.database: Database = self.file.database
        self.sink = sink
        self.user = user
        self.meaning = meaning

    def for_user(self, user: UserId, *, sink: EventSink | None = None) -> "SqliteSessionStore":
        """Return the sessions of a user in the same open file; closing one closes all."""
        if user == self.user and sink is None:
            return self
        return SqliteSessionStore(self.file, user=user, sink=sink or ignore, meaning=self.meaning)

    def lineage(self) -> Lineage:
        """Return the links between sessions."""
        return message_rows.lineage(self.database.connection, user=self.user)

    @retry_after_rebuild
    def search(self, request: SearchRequest) -> Found:
        """Return ranked sessions and messages; no query raises."""
        self.file.catch_up()
        with self.database.reading() as connection:
            from kept.sessions.sqlite import postings

            return postings.find(
                connection, request, user=self.user, now=self.file.now(), embed=self._embed(connection)
            )

    @cached_property
    def upkeep(self) -> "SqliteUpkeep":
        """Archive, trash, prune, statistics, check."""
        from kept.sessions.sqlite.upkeep import SqliteUpkeep

        return SqliteUpkeep(self)

    @cached_property
    def transfer(self) -> "RowTransfer":
        """Export and import."""
        from kept.sessions.rows.transfer import RowTransfer

        return RowTransfer(self.file, user=self.user, sink=self.sink)

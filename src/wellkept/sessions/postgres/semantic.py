"""Semantic search on PostgreSQL: the vectors of each user, compared in this process.

A user's vectors are small (5,000 messages: about 5 MB), so they are read once, quantised and kept in memory; each
question reads the vectors that were added since. No extension of the server is needed.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

from msgspec.structs import replace

from wellkept.core.ports import Embeds, EventSink
from wellkept.sessions.embedding.backfill import Backfill, SharedModel
from wellkept.sessions.postgres.store import PostgresSessionStore, SessionDatabase
from wellkept.sessions.rows.database import Connection
from wellkept.sessions.rows.semantic import QuestionVector, SemanticSearch
from wellkept.sessions.settings import EmbeddingSettings
from wellkept.storage.postgres.database import PostgresServer, UserDatabase

_MOST_USERS = 64
"""Users whose vectors stay in memory, those that searched last: with 5,000 messages each about 100 MB."""


class UserVectors(SemanticSearch):
    """The vectors of one user.

    Inherits because the tables and every rule are the same; the model, its cooldown and the thread in the background
    belong to all users together.
    """

    def __init__(self, shared: "ServerVectors", rows: UserDatabase) -> None:
        settings = replace(shared.model.settings, background=False)
        super().__init__(
            SessionDatabase(rows), settings, model=lambda: shared.model.of_messages, sink=shared.model.sink
        )
        self.model = shared.model
        self._shared = shared
        self._rows = rows

    def embed_question(self, connection: Connection, text: str) -> QuestionVector | None:
        """Return the vector of a question, and keep this user's vectors in memory longer than those of others."""
        self._shared.keep(self._rows.key, self)
        return super().embed_question(connection, text)

    def drop_cache(self) -> None:
        """Forget what was read; the next question reads it again."""
        self._caches.clear()

    def wake(self) -> None:
        """Tell the background thread that this user has new messages."""
        self._shared.wake(self._rows)


class ServerVectors:
    """The vectors of all users of a tenant, and the model that computes them."""

    def __init__(
        self,
        server: PostgresServer,
        settings: EmbeddingSettings,
        *,
        model: Callable[[], Embeds],
        question: Callable[[], Embeds] | None = None,
        sink: EventSink,
    ) -> None:
        self.model = SharedModel(settings, model=model, question=question, sink=sink)
        self._server = server
        self._users: OrderedDict[str, UserVectors] = OrderedDict()
        self._waiting: dict[str, UserDatabase] = {}
        self._guard = threading.Lock()
        self._backfill = Backfill(self._step) if settings.background else None

    def of(self, rows: UserDatabase) -> UserVectors:
        """Return the vectors of one user."""
        with self._guard:
            return self._users.get(rows.key) or UserVectors(self, rows)

    def keep(self, key: str, vectors: UserVectors) -> None:
        """Keep the vectors of a user who searches in memory, and drop those of the user who searched longest ago."""
        with self._guard:
            self._users[key] = vectors
            self._users.move_to_end(key)
            while len(self._users) > _MOST_USERS:
                self._users.popitem(last=False)[1].drop_cache()

    def wake(self, rows: UserDatabase) -> None:
        """Request the vectors of a user's new messages soon."""
        if self._backfill is not None:
            with self._guard:
                self._waiting[rows.key] = rows
            self._backfill.wake()

    def _step(self) -> bool:
        """Compute some vectors of one waiting user; return whether there may be more."""
        with self._guard:
            key = next(iter(self._waiting), None)
            rows = None if key is None else self._waiting.pop(key)
        if key is None or rows is None:
            return False
        is_done = False
        try:
            is_done = not self.of(rows).make_some()
        finally:
            with self._guard:
                if not is_done:  # behind the others
                    self._waiting.setdefault(key, rows)
                left = bool(self._waiting)
        return left

    def embed_all(self, *, anew: bool = False) -> int:
        """Compute the missing vectors of every user; return for how many messages."""
        users = PostgresSessionStore(self._server).users()
        return sum(self.of(self._server.for_user(user)).embed_all(anew=anew) for user in users)

    def close(self) -> None:
        """Stop the background thread; the next process computes the missing vectors."""
        if self._backfill is not None:
            self._backfill.close()

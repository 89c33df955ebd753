"""Semantic search: compares the vector of a question with those of messages, and computes missing vectors."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wellkept.core.errors import Unreadable
from wellkept.core.events import Progressed, Warned
from wellkept.core.ports import Embeds, EventSink
from wellkept.sessions.embedding.backfill import Backfill, passages
from wellkept.sessions.embedding.cooldown import SharedModel, embed_in_batches
from wellkept.sessions.rows import session_rows, vectors
from wellkept.sessions.rows.database import Connection, Database
from wellkept.sessions.rows.vector_cache import NEAREST, KeepsVectors, VectorCache, compare
from wellkept.sessions.search.analysis import clean, split_speaker
from wellkept.sessions.settings import EmbeddingSettings
from wellkept.storage.connections import explain_sql_errors
from wellkept.storage.leases import new_holder

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)
LEASE = "vectors"
LEASE_SECONDS = 180.0
_QUESTION_CHARACTERS = 2_000


class QuestionVector:
    """The vector of one question. Where the vectors of messages cannot be read, nothing is similar."""

    def __init__(
        self,
        connection: Connection,
        cache: VectorCache,
        vector: "NDArray[Any]",
        *,
        damaged: Callable[[Unreadable], None],
    ) -> None:
        self._connection = connection
        self._matrix = cache
        self.vector = vector
        self._damaged = damaged

    def nearest(self, allowed: Collection[int] | None) -> dict[int, float]:
        """Return the messages most similar to the question, among `allowed` where that is given."""
        near = self.of(self._matrix.nearest_candidates(self.vector, allowed))
        best = sorted(near.items(), key=lambda item: -item[1])[:NEAREST]
        return dict(best)

    def of(self, ids: Iterable[int]) -> dict[int, float]:
        """Return the similarity of each of these messages that has a vector."""
        try:
            with explain_sql_errors(Path(self._connection.filename)):
                return compare(self._connection, self.vector, ids)
        except Unreadable as error:
            self._damaged(error)
            return {}


class SemanticSearch:
    """The vectors of one database and the model that computes them. All their failures are handled here."""

    def __init__(
        self,
        database: Database,
        settings: EmbeddingSettings,
        *,
        model: Callable[[], Embeds],
        question: Callable[[], Embeds] | None = None,
        sink: EventSink,
    ) -> None:
        self._database = database
        self._settings = settings
        self._sink = sink
        self.model = SharedModel(settings, model=model, question=question, sink=sink)
        self._caches: dict[int, VectorCache] = {}
        self._backfill = Backfill(self.make_some) if settings.background and not database.is_read_only else None
        self._has_begun = False
        self._has_said = False

    def embed_question(self, connection: Connection, text: str) -> QuestionVector | None:
        """Return the vector of a question; None without vectors, with another model's, or after a timeout."""
        if not text.strip():
            return None
        try:
            with explain_sql_errors(Path(connection.filename)):
                return self._embed_question(connection, text)
        except Unreadable as error:
            self._warn_damaged(error)
            return None

    def _embed_question(self, connection: Connection, text: str) -> QuestionVector | None:
        owner = vectors.stored_model(connection)
        if owner is None:
            self._warn_once("no message has vectors yet")
            return None
        vector = self.model.of_questions.vector(clean(text)[:_QUESTION_CHARACTERS])
        if vector is None:
            return None
        if owner != vectors.mark(self.model.of_messages.name):
            self._warn_once("the vectors of the messages are another model's")
            return None
        import numpy as np

        question = np.asarray(vector, np.float32)
        cache = self._caches.get(len(question))
        if cache is None:
            cache = self._caches.setdefault(len(question), VectorCache(len(question), self._open_file(owner)))
        cache.follow(connection)
        unit = question / max(float(np.linalg.norm(question)), 1e-9)
        return QuestionVector(connection, cache, unit, damaged=self._warn_damaged)

    def _open_file(self, owner: str) -> KeepsVectors | None:  # noqa: ARG002 - a file has one model
        """Return the file that keeps a model's quantised vectors for later processes; None if there is none."""
        return None

    def _warn_damaged(self, error: Unreadable) -> None:
        log.warning("the vectors cannot be read: %s", error)
        self._warn_once("the vectors of the messages are damaged", "run: kept sessions repair")

    def _warn_once(self, why: str, remedy: str = "run: kept sessions embed") -> None:
        if not self._has_said:
            self._has_said = True
            self._sink(Warned(f"search uses words only: {why}", remedy))

    def wake(self) -> None:
        """Tell the background thread that there are new messages."""
        if self._backfill is not None:
            self._backfill.wake()

    def close(self) -> None:
        """Stop the background thread; the next process computes the missing vectors."""
        if self._backfill is not None:
            self._backfill.close()

    def embed_all(self, *, anew: bool = False) -> int:
        """Compute the missing vectors, storing each batch as soon as it is ready; return for how many messages."""
        owner = self._begin()
        with self._database.writing() as connection:
            if anew:
                vectors.drop(connection)
            total = vectors.coverage(connection).waiting
        done, below = 0, None
        while rows := self._read_waiting(self._settings.batch, below):
            self._store_vectors(owner, rows)
            done, below = done + len(rows), rows[-1][0]
            self._sink(Progressed("vectors", done, max(total, done)))
            self._lease()
        self._release()
        return done

    def _begin(self) -> str:
        owner = vectors.mark(self.model.of_messages.name)
        with self._database.writing() as connection:
            if vectors.begin(connection, owner):
                log.info("vectors of another model were deleted")
        self._has_begun = True
        return owner

    def make_some(self) -> bool:
        """Compute one batch in the background; return whether there may be more."""
        if not self._lease():
            return False
        # only a process that has just read the settings may delete the vectors of another model
        owner = vectors.mark(self.model.of_messages.name) if self._has_begun else self._begin()
        rows = self._read_waiting(min(16, self._settings.batch))
        if not rows:
            self._release()
            return False
        return self._store_vectors(owner, rows)

    def _read_waiting(self, limit: int, below: int | None = None) -> list[tuple[int, str]]:
        with self._database.reading() as connection:
            return vectors.waiting(connection, limit=limit, below=below)

    @cached_property
    def _holder(self) -> str:
        return new_holder()

    def _lease(self) -> bool:
        with self._database.writing() as connection:
            return session_rows.take_lease(
                connection, LEASE, holder=self._holder, now=time.time(), seconds=LEASE_SECONDS
            )

    def _release(self) -> None:
        with self._database.writing() as connection:
            session_rows.release_lease(connection, LEASE, holder=self._holder)

    def _store_vectors(self, owner: str, rows: Sequence[tuple[int, str]]) -> bool:
        cut = [passages(_without_speaker(text)) for _, text in rows]
        flat = [passage for parts in cut for passage in parts]
        found = iter(embed_in_batches(self.model.of_messages, flat, size=self._settings.batch))
        made = [
            (number, text, vectors.pack([one for _ in parts if (one := next(found))]))
            for (number, text), parts in zip(rows, cut, strict=True)
        ]
        with self._database.writing() as connection:
            return vectors.put(connection, owner, made)


def _without_speaker(text: str) -> str:
    """Return the text without the name in front; the word index stores the speaker."""
    return split_speaker(clean(text))[1]

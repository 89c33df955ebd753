"""Search by meaning: the question's vector beside those of the messages, and the making of what is missing."""

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kept.core.errors import Unreadable
from kept.core.events import Progressed, Warned
from kept.core.ports import Embeds, EventSink
from kept.sessions.embedding.backfill import Backfill, passages
from kept.sessions.embedding.cooldown import CooldownModel, embed_in_batches
from kept.sessions.search.analysis import clean, speaker
from kept.sessions.settings import EmbeddingSettings
from kept.sessions.sqlite import session_rows, vectors
from kept.sessions.sqlite.vector_cache import NEAREST, Matrix, Shelf, compared
from kept.storage.connections import explain_sql_errors
from kept.storage.sqlite import Connection, Database

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)
LEASE = "vectors"
LEASE_SECONDS = 180.0
_QUESTION_CHARACTERS = 2_000


class QuestionVector:
    """One question's vector, held against the messages; where their vectors cannot be read, it knows of none."""

    def __init__(
        self, connection: Connection, matrix: Matrix, vector: "NDArray[Any]", *, damaged: Callable[[Unreadable], None]
    ) -> None:
        self._connection = connection
        self._matrix = matrix
        self.vector = vector
        self._damaged = damaged

    def nearest(self, allowed: Collection[int] | None) -> dict[int, float]:
        """Return the messages most like the question, among `allowed` where that is given."""
        near = self.of(self._matrix.promising(self.vector, allowed))
        best = sorted(near.items(), key=lambda item: -item[1])[:NEAREST]
        return dict(best)

    def of(self, ids: Iterable[int]) -> dict[int, float]:
        """Return how much each of these messages is like the question; those without vectors are left out."""
        try:
            with explain_sql_errors(Path(self._connection.filename)):
                return compared(self._connection, self.vector, ids)
        except Unreadable as error:
            self._damaged(error)
            return {}


class SemanticSearch:
    """The vectors of one database and the model that makes them; everything about them that can fail fails here.

    `model` builds what embeds messages, `question` what embeds questions (the same model, in more of a hurry).
    """

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
        self._make = model
        self._sink = sink
        self._question = question
        self._matrices: dict[int, Matrix] = {}
        self._backfill = Backfill(self._step) if settings.background and not database.is_read_only else None
        self._has_begun = False
        self._has_said = False

    @cached_property
    def model(self) -> Embeds:
        """The model; raises UsageError or ModelError where there is none."""
        return self._make()

    @cached_property
    def _cooldown(self) -> CooldownModel:
        wait = self._settings.query_timeout if self._settings.provider == "openai" else None
        return CooldownModel(self._question or (lambda: self.model), timeout_seconds=wait, sink=self._sink)

    def embed_question(self, connection: Connection, text: str) -> QuestionVector | None:
        """Return the question ready to be compared, or None: no vectors, another model's, or no answer in time."""
        if not text.strip():
            return None
        try:
            with explain_sql_errors(self._database.path):
                return self._embed_question(connection, text)
        except Unreadable as error:
            self._say_damaged(error)
            return None

    def _embed_question(self, connection: Connection, text: str) -> QuestionVector | None:
        owner = vectors.made_by(connection)
        if owner is None:
            self._say_once("no message has vectors yet")
            return None
        vector = self._cooldown.vector(clean(text)[:_QUESTION_CHARACTERS])
        if vector is None:
            return None
        if owner != vectors.mark(self.model.name):
            self._say_once("the vectors of the messages are another model's")
            return None
        import numpy as np

        asked = np.asarray(vector, np.float32)
        matrix = self._matrices.get(len(asked))
        if matrix is None:
            shelf = Shelf(self._database.path, owner, may_write=not self._database.is_read_only)
            matrix = self._matrices.setdefault(len(asked), Matrix(len(asked), shelf))
        matrix.follow(connection)
        unit = asked / max(float(np.linalg.norm(asked)), 1e-9)
        return QuestionVector(connection, matrix, unit, damaged=self._say_damaged)

    def _say_damaged(self, error: Unreadable) -> None:
        log.warning("the vectors cannot be read: %s", error)
        self._say_once("the vectors of the messages are damaged", "run: kept sessions repair")

    def _say_once(self, why: str, remedy: str = "run: kept sessions embed") -> None:
        if not self._has_said:
            self._has_said = True
            self._sink(Warned(f"search goes by the words alone: {why}", remedy))

    def wake(self) -> None:
        """Say that there are new messages; their vectors are made later, in a thread of their own."""
        if self._backfill is not None:
            self._backfill.wake()

    def close(self) -> None:
        """End the background work; what is not done is done the next time."""
        if self._backfill is not None:
            self._backfill.close()

    def embed_all(self, *, anew: bool = False) -> int:
        """Make the vectors that are missing, each batch kept as soon as it is there; return how many messages."""
        owner = self._begin()
        with self._database.writing() as connection:
            if anew:
                vectors.drop(connection)
            total = vectors.coverage(connection).waiting
        done, below = 0, None
        while rows := vectors.waiting(self._database.connection, limit=self._settings.batch, below=below):
            self._keep(owner, rows)
            done, below = done + len(rows), rows[-1][0]
            self._sink(Progressed("vectors", done, max(total, done)))
            self._lease()
        self._release()
        return done

    def _begin(self) -> str:
        owner = vectors.mark(self.model.name)
        with self._database.writing() as connection:
            if vectors.begin(connection, owner):
                log.info("vectors of another model were thrown away")
        self._has_begun = True
        return owner

    def _step(self) -> bool:
        """Make one batch in the background; return whether there may be more."""
        if not self._lease():
            return False
        # only a process that just read the settings may throw another model's vectors away
        owner = vectors.mark(self.model.name) if self._has_begun else self._begin()
        rows = vectors.waiting(self._database.connection, limit=min(16, self._settings.batch))
        if not rows:
            self._release()
            return False
        return self._keep(owner, rows)

    def _lease(self) -> bool:
        with self._database.writing() as connection:
            return session_rows.take_lease(
                connection, LEASE, holder=str(os.getpid()), now=time.time(), seconds=LEASE_SECONDS
            )

    def _release(self) -> None:
        with self._database.writing() as connection:
            session_rows.release_lease(connection, LEASE, holder=str(os.getpid()))

    def _keep(self, owner: str, rows: Sequence[tuple[int, str]]) -> bool:
        cut = [passages(_said(text)) for _, text in rows]
        flat = [passage for parts in cut for passage in parts]
        found = iter(embed_in_batches(self.model, flat, size=self._settings.batch))
        made = [
            (number, text, vectors.packed([one for _ in parts if (one := next(found))]))
            for (number, text), parts in zip(rows, cut, strict=True)
        ]
        with self._database.writing() as connection:
            return vectors.put(connection, owner, made)


def _said(text: str) -> str:
    """Return what is said, without the name before it: who speaks is told by the words' index."""
    return speaker(clean(text))[1]

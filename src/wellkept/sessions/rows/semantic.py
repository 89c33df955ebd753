"""Semantic search: compares the vector of a question with those of messages, and computes missing vectors."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from wellkept.core.errors import Unreadable
from wellkept.core.events import Progressed, Warned
from wellkept.core.ports import Embeds, EventSink
from wellkept.sessions.embedding.backfill import Backfill, SharedModel, embed_in_batches, passages
from wellkept.sessions.rows import session_rows, vectors
from wellkept.sessions.rows.database import Connection, Database
from wellkept.sessions.search.analysis import clean, split_speaker
from wellkept.sessions.settings import EmbeddingSettings
from wellkept.storage.connections import explain_sql_errors
from wellkept.storage.leases import new_holder

if TYPE_CHECKING:
    from numpy.typing import NDArray


class QuantisedVectors(Struct, frozen=True):
    """Quantised vectors of the table up to one row."""

    basis: "NDArray[Any]"
    scale: float
    newest: int
    owners: "NDArray[Any]"
    rows: "NDArray[Any]"


class KeepsVectors(Protocol):
    """Keeps quantised vectors for later processes; not with a server, where each host would have to clear its own."""

    def load(self, connection: Connection, width: int) -> QuantisedVectors | None:
        """Return the stored vectors, or None where there are none that match the table."""
        ...

    def is_worth_writing(self, count: int, known: int) -> bool:
        """Whether `count` vectors, of which `known` are stored, are worth writing."""
        ...

    def save(self, connection: Connection, forms: QuantisedVectors) -> bool:
        """Store the vectors; False where that fails, which only costs time at the next start."""
        ...


SHORT = 64
"""Dimensions of a quantised vector, 8 bits each; its best 400 contain 98 % of the exact best 50."""
COMPARED = 400
NEAREST = 120
_SAMPLE = 4_000
_FEW = 2_048
"""Vectors up to which all dimensions are kept."""
_PAGE = 4_000
_BLOCK = 2_048
"""Rows compared at once: as floats they must fit the processor's cache."""
_STEPS = 120.0
_LENGTH_LEEWAY = 0.1


class VectorCache:
    """Quantised vectors of all messages. Reads new rows at each question; the exact comparison drops deleted ones."""

    def __init__(self, width: int, file: KeepsVectors | None = None) -> None:
        self._width = width
        self._file = file
        self._base: QuantisedVectors | None = None
        """The vectors in the file; those added since are in arrays of their own."""
        self._newest = 0
        self._count = 0
        self._learnt_at: int | None = None
        """The newest row when the basis was chosen from too few vectors; None once it was chosen from enough."""
        self._owners: NDArray[Any] | None = None
        self._rows: NDArray[Any] | None = None
        self._basis: NDArray[Any] | None = None
        self._scale = 1.0
        self._guard = Lock()

    def follow(self, connection: Connection) -> None:
        """Read the vectors that were added since the last call; one thread at a time."""
        with self._guard:
            self._follow(connection)

    def _follow(self, connection: Connection) -> None:
        ((newest,),) = connection.execute(vectors.SQL.newest).fetchall()
        assert isinstance(newest, int)
        if self._newest == 0 and self._file is not None:
            self._use(self._file.load(connection, self._width))
        if newest == self._newest:
            return
        if self._learnt_at is not None and newest > 4 * self._learnt_at:
            # the basis was chosen from too few vectors: start again
            self._newest = self._count = 0
            self._owners = self._rows = self._basis = self._learnt_at = None
        for owners, rows in self._pages(connection, self._newest):
            if self._basis is None:
                self._choose_basis(rows)
            self._add(owners, self._quantise(rows))
        if self._learnt_at == 0:
            self._learnt_at = self._newest
        self._save(connection)

    def _use(self, forms: QuantisedVectors | None) -> None:
        if forms is not None:
            self._base, self._basis = forms, forms.basis
            self._scale, self._newest = forms.scale, forms.newest

    def _save(self, connection: Connection) -> None:
        """Write the vectors to the file once enough are new, and map them from there."""
        known = 0 if self._base is None else len(self._base.owners)
        if (
            self._file is None
            or self._learnt_at is not None
            or not self._file.is_worth_writing(known + self._count, known)
        ):
            return
        import numpy as np

        assert self._basis is not None
        parts = self._parts()
        owners = np.concatenate([owners for owners, _ in parts])
        rows = np.concatenate([rows for _, rows in parts])
        if self._file.save(connection, QuantisedVectors(self._basis, self._scale, self._newest, owners, rows)):
            saved = self._file.load(connection, self._width)
            if saved is not None and saved.newest == self._newest:
                self._use(saved)
                self._count, self._owners, self._rows = 0, None, None

    def _parts(self) -> "list[tuple[NDArray[Any], NDArray[Any]]]":
        """Return message ids and vectors: those in the file, then those added since."""
        parts = [] if self._base is None else [(self._base.owners, self._base.rows)]
        if self._owners is not None and self._rows is not None:
            parts.append((self._owners[: self._count], self._rows[: self._count]))
        return parts

    def _pages(self, connection: Connection, after: int) -> "Iterator[tuple[NDArray[Any], NDArray[Any]]]":
        import numpy as np

        size = self._width + 4
        while page := vectors.page(connection, after, _PAGE):
            after = page[-1][0]
            fit = [(number, data) for _, number, data in page if data and len(data) % size == 0]
            if fit:
                counts = [len(data) // size for _, data in fit]
                owners = np.repeat(np.array([number for number, _ in fit], np.int64), counts)
                yield owners, vectors.unpack(b"".join(data for _, data in fit), self._width)
            self._newest = after

    def _choose_basis(self, rows: "NDArray[Any]") -> None:
        """Choose the principal directions of these vectors."""
        import numpy as np

        sample = rows[:: max(1, len(rows) // _SAMPLE)]
        if len(rows) <= _FEW or self._width <= SHORT:
            self._basis = np.eye(self._width, dtype=np.float32)
        else:
            _, directions = np.linalg.eigh(sample.T @ sample)
            self._basis = np.ascontiguousarray(directions[:, -SHORT:], np.float32)
        self._scale = _STEPS / max(float(np.abs(sample @ self._basis).max()), 1e-6)
        self._learnt_at = 0 if len(rows) < _SAMPLE else None

    def _quantise(self, rows: "NDArray[Any]") -> "NDArray[Any]":
        import numpy as np

        short = np.rint(rows @ self._basis * self._scale)
        whole: NDArray[Any] = np.clip(short, -127, 127).astype(np.int8)
        return whole

    def _add(self, owners: "NDArray[Any]", rows: "NDArray[Any]") -> None:
        import numpy as np

        end = self._count + len(rows)
        if self._owners is None or self._rows is None or end > len(self._owners):
            size = max(1_024, end + end // 4)
            grown, wider = np.zeros(size, np.int64), np.zeros((size, rows.shape[1]), np.int8)
            if self._owners is not None and self._rows is not None:
                grown[: self._count], wider[: self._count] = self._owners[: self._count], self._rows[: self._count]
            self._owners, self._rows = grown, wider
        self._owners[self._count : end] = owners
        self._rows[self._count : end] = rows
        self._count = end

    def nearest_candidates(self, question: "NDArray[Any]", allowed: Collection[int] | None) -> list[int]:
        """Return the messages most similar by quantised vectors, among `allowed` where that is given."""
        import numpy as np

        with self._guard:
            if self._basis is None:
                return []
            parts, short = self._parts(), self._basis.T @ question
        found: list[tuple[NDArray[Any], NDArray[Any]]] = []
        within = None if allowed is None else np.fromiter(allowed, np.int64, len(allowed))
        for owners, rows in parts:
            chosen = slice(None) if within is None else np.isin(owners, within)
            if len(owners[chosen]):
                found.append(_best(owners[chosen], _likeness(rows[chosen], short)))
        if not found:
            return []
        owners, likeness = (np.concatenate(column) for column in zip(*found, strict=True))
        best: list[int] = np.unique(_best(owners, likeness)[0]).tolist()
        return best


def _likeness(rows: "NDArray[Any]", short: "NDArray[Any]") -> "NDArray[Any]":
    import numpy as np

    likeness = np.empty(len(rows), np.float32)
    wide = np.empty((_BLOCK, rows.shape[1]), np.float32)
    for start in range(0, len(rows), _BLOCK):
        part = rows[start : start + _BLOCK]
        np.copyto(wide[: len(part)], part)
        np.dot(wide[: len(part)], short, out=likeness[start : start + _BLOCK])
    return likeness


def _best(owners: "NDArray[Any]", likeness: "NDArray[Any]") -> "tuple[NDArray[Any], NDArray[Any]]":
    """Return the messages of the most similar rows, with their similarity."""
    import numpy as np

    count = min(COMPARED, len(likeness))
    best = np.argpartition(likeness, len(likeness) - count)[len(likeness) - count :]
    return owners[best], likeness[best]


def compare(connection: Connection, question: "NDArray[Any]", ids: Iterable[int]) -> dict[int, float]:
    """Return the exact cosine similarity of each message's most similar passage."""
    import numpy as np

    size = len(question) + 4
    # in a fixed order: the last bits of a product depend on the place of its row
    stored = sorted(vectors.of_messages(connection, ids))
    fit = [(number, data) for number, data in stored if data and len(data) % size == 0]
    if not fit:
        return {}
    rows = vectors.unpack(b"".join(data for _, data in fit), len(question))
    # corrupted bytes can give vectors of any length
    likeness = np.where(np.abs(np.linalg.norm(rows, axis=1) - 1.0) < _LENGTH_LEEWAY, rows @ question, 0.0)
    starts = np.cumsum([0, *(len(data) // size for _, data in fit[:-1])])
    best = np.maximum.reduceat(likeness, starts)
    return dict(zip((number for number, _ in fit), best.tolist(), strict=True))


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

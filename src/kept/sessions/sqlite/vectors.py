"""Vectors of messages: optional, derived, kept beside the rows, and fused with what the words say."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kept.core.ports import Embeds
from kept.core.search import Found, SearchRequest
from kept.sessions.sqlite.search import find
from kept.storage.sqlite import Connection
from kept.storage.statements import statements

if TYPE_CHECKING:
    from numpy.typing import NDArray

SQL = statements("kept.sessions.sqlite", "vectors.sql")
NEAREST = 200
MOST = 200_000
"""Newest messages whose vectors are compared; 200,000 of 384 numbers take 300 MB."""
TEXT_CHARACTERS = 2_000
BEFORE_CHARACTERS = 400


class Vectors:
    """The vectors that one model makes; the newest are held in memory once a search needs them."""

    def __init__(self, model: Embeds) -> None:
        self._model = model
        self._shape: tuple[object, ...] | None = None
        self._ids: NDArray[Any] | None = None
        self._matrix: NDArray[Any] | None = None

    def create(self, connection: Connection) -> None:
        """Make the table where it is missing; its rows go with their messages."""
        connection.execute(SQL.create)

    def waiting(self, connection: Connection) -> int:
        """Return how many messages have no vector of this model yet."""
        row = connection.execute(SQL.waiting_count, (self._model.name,)).fetchone()
        return row[0] if row and isinstance(row[0], int) else 0

    def backfill(self, connection: Connection, *, limit: int = 64) -> int:
        """Embed up to `limit` messages that have no vector yet, the newest first; return how many."""
        import numpy as np

        rows = connection.execute(SQL.waiting, {"model": self._model.name, "limit": limit}).fetchall()
        if not rows:
            return 0
        vectors = self._model.embed([_passage(str(text), str(before or "")) for _, text, before in rows])
        connection.executemany(
            SQL.put,
            [
                (number, self._model.name, np.asarray(vector, np.float16).tobytes())
                for (number, _, _), vector in zip(rows, vectors, strict=True)
            ],
        )
        return len(rows)

    def rebuild(self, connection: Connection, progress: Callable[[int], None] | None = None) -> int:
        """Throw every vector away and make them anew; return how many."""
        connection.execute(SQL.drop)
        done = 0
        while count := self.backfill(connection):
            done += count
            if progress is not None:
                progress(done)
        return done

    def find(self, connection: Connection, request: SearchRequest, *, now: float) -> Found:
        """Return what answers `request` by its words and by its meaning together."""
        likeness = self.nearest(connection, request.query) if request.query.strip() else {}
        return find(connection, request, now=now, likeness=likeness)

    def nearest(self, connection: Connection, query: str) -> dict[int, float]:
        """Return the messages most like `query`, each with its likeness."""
        import numpy as np

        self._load(connection)
        if self._matrix is None or self._ids is None or not len(self._ids):
            return {}
        (vector,) = self._model.embed([query[:TEXT_CHARACTERS]])
        asked = np.asarray(vector, np.float32)
        likeness = self._matrix @ (asked / (np.linalg.norm(asked) or 1.0))
        count = min(NEAREST, len(likeness))
        best = np.argpartition(-likeness, count - 1)[:count]
        return {int(self._ids[place]): float(likeness[place]) for place in best}

    def _load(self, connection: Connection) -> None:
        """Read the newest vectors again when their number or the newest of them changed."""
        import numpy as np

        shape = connection.execute(SQL.shape, (self._model.name,)).fetchone()
        if shape == self._shape:
            return
        rows = connection.execute(SQL.newest, (self._model.name, MOST)).fetchall()
        self._shape = shape
        self._ids = np.array([number for number, _ in rows], np.int64)
        if rows:
            matrix = np.stack([np.frombuffer(blob, np.float16) for _, blob in rows if isinstance(blob, bytes)])
            scale = np.linalg.norm(matrix.astype(np.float32), axis=1, keepdims=True)
            self._matrix = matrix.astype(np.float32) / np.maximum(scale, 1e-9)
        else:
            self._matrix = None


def _passage(text: str, before: str) -> str:
    """Return what is embedded for a message: an answer means little without what it answers."""
    lead = f"{before[-BEFORE_CHARACTERS:]}\n" if before else ""
    return lead + text[:TEXT_CHARACTERS]

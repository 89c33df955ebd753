"""Vectors of messages in the database: optional, derived, made anew whenever the model changes."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kept.sessions.embedding.models import unit
from kept.sessions.reports import Coverage
from kept.storage.sql import statements
from kept.storage.sqlite import Connection

if TYPE_CHECKING:
    from numpy.typing import NDArray

SQL = statements("kept.sessions.sqlite", "vectors.sql")
RECIPE = "passages-1"
"""Names how messages are cut; another recipe makes other vectors, so that the old ones are thrown away."""
_STEPS = 127.0
_NEWEST = 2**62


def exist(connection: Connection) -> bool:
    """Whether the tables were ever made."""
    return connection.execute(SQL.exists).fetchone() is not None


def made_by(connection: Connection) -> str | None:
    """Return whose vectors the tables hold, None where there are no tables."""
    row = connection.execute(SQL.state).fetchone() if exist(connection) else None
    return None if row is None else str(row[0])


def mark(model_name: str) -> str:
    """Return the name under which a model's vectors are kept."""
    return f"{model_name} {RECIPE}"


def begin(connection: Connection, owner: str) -> bool:
    """Make the tables ready for the vectors of `owner`; return whether another model's were thrown away."""
    for sql in (SQL.create_vectors, SQL.create_state, SQL.create_trigger):
        connection.execute(sql)
    if made_by(connection) == owner:
        return False
    connection.execute(SQL.drop)
    thrown = connection.changes() > 0
    connection.execute(SQL.set_state, (owner,))
    return thrown


def drop(connection: Connection) -> None:
    """Throw every vector away."""
    connection.execute(SQL.drop)


def coverage(connection: Connection) -> Coverage:
    """Return how far the vectors go."""
    if not exist(connection):
        return Coverage(None, 0, _number(connection, SQL.count_all))
    waiting = _number(connection, SQL.count_waiting)
    model = made_by(connection)
    shown = None if model is None else model.removesuffix(f" {RECIPE}")
    return Coverage(shown, _number(connection, SQL.count), waiting)


def _number(connection: Connection, sql: str) -> int:
    ((number,),) = connection.execute(sql).fetchall()
    assert isinstance(number, int)
    return number


def waiting(connection: Connection, *, limit: int, below: int | None = None) -> list[tuple[int, str]]:
    """Return messages without vectors, the newest first."""
    bindings = {"below": _NEWEST if below is None else below, "limit": limit}
    return [(number, text) for number, text in connection.execute(SQL.waiting, bindings)]


def put(connection: Connection, owner: str, made: Sequence[tuple[int, str, bytes]]) -> bool:
    """Store vectors, each with its message and the text it was made of; False when the tables are another model's.

    A message that was removed or changed meanwhile gets none.
    """
    if made_by(connection) != owner:
        return False
    connection.executemany(
        SQL.put, [{"number": number, "content": text, "vectors": packed} for number, text, packed in made]
    )
    return True


def page(connection: Connection, after: int, limit: int) -> list[tuple[int, int, bytes]]:
    """Return (place, message, vectors) of those that were stored after a place, in the order of storing."""
    return [(seq, number, data) for seq, number, data in connection.execute(SQL.page, (after, limit))]


def of_messages(connection: Connection, ids: Iterable[int]) -> list[tuple[int, bytes]]:
    """Return the vectors of these messages, as far as they have any."""
    rows = connection.execute(SQL.of_messages, (json.dumps(list(ids)),))
    return [(number, data) for number, data in rows]


def packed(vectors: "Iterable[Sequence[float]]") -> bytes:
    """Return vectors as bytes: each at length one, in 8 bits a number, after the size of its step."""
    import numpy as np

    rows = unit(np.asarray(list(vectors), np.float32))
    if not rows.size:
        return b""
    steps = np.maximum(np.abs(rows).max(1, keepdims=True), 1e-9).astype("<f4") / np.float32(_STEPS)
    whole = np.rint(rows / steps).astype(np.int8)
    joined: bytes = np.concatenate([steps.view(np.int8), whole], axis=1).tobytes()
    return joined


def unpacked(data: bytes, width: int) -> "NDArray[Any]":
    """Return the vectors in bytes that `packed` made, one per row."""
    import numpy as np

    rows = np.frombuffer(data, np.int8).reshape(-1, width + 4)
    steps = np.ascontiguousarray(rows[:, :4]).view("<f4")
    numbers: NDArray[Any] = rows[:, 4:].astype(np.float32) * steps
    return numbers

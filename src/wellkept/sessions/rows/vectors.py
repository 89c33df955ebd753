"""The table of message vectors: optional, derived, recomputed when the model changes."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wellkept.sessions.embedding.local import unit
from wellkept.sessions.reports import Coverage
from wellkept.sessions.rows.database import Connection
from wellkept.storage.connections import statements

if TYPE_CHECKING:
    from numpy.typing import NDArray

SQL = statements("wellkept.sessions.rows", "vectors.sql")
RECIPE = "passages-1"
"""Version of how messages are cut into passages; vectors of another version are deleted."""
_STEPS = 127.0
_NEWEST = 2**62


def exist(connection: Connection) -> bool:
    """Whether the tables exist."""
    return connection.execute(SQL.exists).fetchone() is not None


def stored_model(connection: Connection) -> str | None:
    """Return the model of the stored vectors, None where there are no tables."""
    row = connection.execute(SQL.state).fetchone() if exist(connection) else None
    return None if row is None else str(row[0])


def mark(model_name: str) -> str:
    """Return the name under which the vectors of a model are stored."""
    return f"{model_name} {RECIPE}"


def begin(connection: Connection, owner: str) -> bool:
    """Prepare the tables for the vectors of `owner`; return whether those of another model were deleted."""
    for sql in (SQL.create_vectors, SQL.create_state, SQL.create_trigger):
        connection.execute(sql)
    if stored_model(connection) == owner:
        return False
    connection.execute(SQL.drop)
    thrown = connection.changes() > 0
    connection.execute(SQL.set_state, (owner,))
    return thrown


def drop(connection: Connection) -> None:
    """Delete every vector."""
    connection.execute(SQL.drop)


def coverage(connection: Connection) -> Coverage:
    """Return how many messages have vectors."""
    if not exist(connection):
        return Coverage(None, 0, _number(connection, SQL.count_all))
    waiting = _number(connection, SQL.count_waiting)
    model = stored_model(connection)
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
    if connection.execute(SQL.claim).fetchone() != (owner,):
        return False
    connection.executemany(
        SQL.put, [{"number": number, "content": text, "vectors": pack} for number, text, pack in made]
    )
    return True


def page(connection: Connection, after: int, limit: int) -> list[tuple[int, int, bytes]]:
    """Return (row, message, vectors) of the rows after one, in the order they were stored."""
    return [(seq, number, data) for seq, number, data in connection.execute(SQL.page, (after, limit))]


def of_messages(connection: Connection, ids: Iterable[int]) -> list[tuple[int, bytes]]:
    """Return the vectors of those messages that have any."""
    rows = connection.execute(SQL.of_messages, (json.dumps(list(ids)),))
    return [(number, data) for number, data in rows]


def pack(vectors: "Iterable[Sequence[float]]") -> bytes:
    """Return unit vectors as bytes: the step as a float, then 8 bits per dimension."""
    import numpy as np

    rows = unit(np.asarray(list(vectors), np.float32))
    if not rows.size:
        return b""
    steps = np.maximum(np.abs(rows).max(1, keepdims=True), 1e-9).astype("<f4") / np.float32(_STEPS)
    whole = np.rint(rows / steps).astype(np.int8)
    joined: bytes = np.concatenate([steps.view(np.int8), whole], axis=1).tobytes()
    return joined


def unpack(data: bytes, width: int) -> "NDArray[Any]":
    """Return the vectors that `pack` stored, one per row."""
    import numpy as np

    rows = np.frombuffer(data, np.int8).reshape(-1, width + 4)
    steps = np.ascontiguousarray(rows[:, :4]).view("<f4")
    numbers: NDArray[Any] = rows[:, 4:].astype(np.float32) * steps
    return numbers

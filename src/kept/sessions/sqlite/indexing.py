"""The seam between rows and index: what is written is indexed with it, what others wrote is caught up."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.core.search import Found, SearchRequest
from kept.sessions.records import MessageRow, Row
from kept.sessions.sqlite import index
from kept.sessions.text import IndexedText, indexed_text
from kept.storage.sqlite import Connection, Database
from kept.storage.statements import statements

if TYPE_CHECKING:
    from kept.sessions.sqlite.alikeness import Asks

SQL = statements("kept.sessions.sqlite", "queue.sql")
BATCH = 500


def add(connection: Connection, rows: Sequence[tuple[int, MessageRow]]) -> None:
    """Index inserted rows, each given with its id."""
    read = ((number, row.role, row.content, row.origin, row.tool_name, row.tool_calls) for number, row in rows)
    index.add(connection, _texts(read))


def remove(connection: Connection, message_ids: Sequence[int]) -> None:
    """Take messages out of the index and out of the queue."""
    index.remove(connection, message_ids)
    connection.executemany(SQL.done, [(number,) for number in message_ids])


def queue(connection: Connection, message_ids: Sequence[int]) -> None:
    """Have messages indexed again, as their state now asks, before the next search."""
    connection.executemany(SQL.again, [(number,) for number in message_ids])


def drain(database: Database, *, seconds: float = 3.0) -> int:
    """Index the rows that other programs wrote, for at most that long; return how many."""
    with database.reading() as connection:
        if not _is_waiting(connection):
            return 0
    deadline = time.monotonic() + seconds
    done = 0
    while time.monotonic() < deadline:
        with database.writing() as connection:
            count = _drain_batch(connection)
        done += count
        if count < BATCH:
            break
    return done


def _is_waiting(connection: Connection) -> bool:
    return connection.execute(SQL.is_waiting).fetchone() is not None


def _drain_batch(connection: Connection) -> int:
    waiting = list(connection.execute(SQL.waiting, (BATCH,)))
    there = [row for row in waiting if row[1] is not None]
    index.remove(connection, [row[0] for row in waiting if row[1] is None])
    index.add(connection, _texts(row[:1] + row[2:] for row in there))
    connection.executemany(SQL.done, [(row[0],) for row in waiting])
    connection.executemany(SQL.recount, [(session_id,) for session_id in {row[1] for row in there}])
    return len(waiting)


def _texts(rows: Iterable[Row]) -> list[IndexedText]:
    return [
        indexed_text(number, role, content=content or "", origin=origin, tool_name=tool_name, tool_calls=tool_calls)
        for number, role, content, origin, tool_name, tool_calls in rows
    ]


def find(connection: Connection, request: SearchRequest, *, now: float, asks: "Asks | None" = None) -> Found:
    """Run the ranked search on one state of the file."""
    from kept.sessions.sqlite import search

    with _one_state(connection):
        if request.user_id is not None and _is_only_user(connection, request.user_id):
            # a filter that everything passes would only make the search read more
            request = replace(request, user_id=None)
        return search.find(connection, request, now=now, asks=asks)


def _is_only_user(connection: Connection, user_id: str) -> bool:
    return connection.execute(SQL.other_user, (user_id, user_id)).fetchone() is None


@contextmanager
def _one_state(connection: Connection) -> Iterator[None]:
    """Let every read inside see the same rows: what one statement allows, another's write must not change."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")  # nothing was written; after a damaged page a commit would fail


def texts_after(connection: Connection, message_id: int, *, limit: int) -> list[IndexedText]:
    """Return what is to be indexed of the rows after an id, in order."""
    return _texts(connection.execute(SQL.texts_after, (message_id, limit)))

"""The seam between rows and index: what is written is indexed with it, what others wrote is caught up."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.core.messages import SUMMARY_MARKER, Origin
from kept.core.search import Found, SearchRequest
from kept.sessions.records import Row
from kept.sessions.sqlite import index
from kept.sessions.text import IndexedText
from kept.storage.sqlite import Connection, Database
from kept.storage.statements import statements

if TYPE_CHECKING:
    from kept.sessions.sqlite.alikeness import Asks

SQL = statements("kept.sessions.sqlite", "queue.sql")
BATCH = 500
RECALLS = frozenset({"session_search", "context_grep", "context_expand", "context_describe"})
"""Tools whose answers repeat other messages: found again, the echoes would stand before the originals."""
_ROLE, _CONTENT, _ORIGIN, _TOOL_NAME, _TOOL_CALLS = 1, 2, 5, 6, 7


def indexed_text(
    message_id: int, role: str, *, content: str, origin: str | None, tool_name: str | None, tool_calls: str | None
) -> IndexedText:
    """Return what of a row is to be found: talk at full weight, tools below it, echoes of other messages not."""
    if origin == Origin.SYNTHETIC and content.startswith(SUMMARY_MARKER):
        return IndexedText(message_id, "", "")
    if role == "tool" and tool_name in RECALLS:
        return IndexedText(message_id, "", tool_name)
    if role == "tool":
        return IndexedText(message_id, "", f"{tool_name or ''} {content}")
    return IndexedText(message_id, content, _called(tool_calls) if tool_calls else "")


def _called(tool_calls: str) -> str:
    try:
        calls = json.loads(tool_calls)
        return " ".join(f"{call['name']} {call['arguments']}" for call in calls)
    except (ValueError, KeyError, TypeError):
        return tool_calls  # another program's own form: its words are still worth finding


def add(connection: Connection, rows: Sequence[tuple[int, Row]]) -> None:
    """Index inserted rows, each given with its id and the values of `records.message_row`."""
    index.add(
        connection,
        [
            indexed_text(
                number,
                row[_ROLE],
                content=row[_CONTENT],
                origin=row[_ORIGIN],
                tool_name=row[_TOOL_NAME],
                tool_calls=row[_TOOL_CALLS],
            )
            for number, row in rows
        ],
    )


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

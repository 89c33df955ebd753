"""The word index and the substring index of messages, both derived from the rows.

Single rows wait in a queue, like those of other programs, until the next search or the end of the process: indexed
together they take a fifth of the time. A rebuild makes new indexes beside the old ones, in small steps, and swaps them
in at the end.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

from kept.core.errors import Busy, Unreadable
from kept.core.ports import Clock, EventSink
from kept.sessions.records import MessageRow, Row
from kept.sessions.search.analysis import IndexedText, indexed_text, prepare
from kept.sessions.sqlite import checksums, session_rows
from kept.storage.connections import statements
from kept.storage.leases import new_holder
from kept.storage.sqlite import Connection, Database

VERSION = 3
"""Increase it when the prepared text or the tables change; an older index is rebuilt."""

SQL = statements("kept.sessions.sqlite", "index.sql")
TABLES = ("words", "substrings")
TASK = "indexing messages"
LEASE = "reindex"
_LEASE_SECONDS = 120.0
FEW = 50
"""Rows of one call up to which they wait in the queue; more are an import, which is indexed as it is stored."""
MOST_WAITING_CHARS = 100_000
"""Text that a process stores before an append indexes what waits: a tenth of a second, once in some 500 messages.

Indexed twenty at a time, rows took two and a half times as long, and one append in sixteen was slow.
"""
ROW_CHARS = 100
"""What a row counts apart from its text, so that short messages are not too many either."""
_QUEUE_BATCH = 64
"""Rows that one transaction indexes: some milliseconds, during which nobody else can write."""
_QUEUE_CHARS = 1_000_000
"""Text of one batch, apart from its first message: about a second, during which nobody else can write."""
_REBUILD_BATCH = 2_000
_stored_chars: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
"""What each connection has stored since it last indexed the queue."""
_FOREIGN = (
    "rows of another table are in the place of the queue of messages to index",
    "run `kept sessions repair`; it puts them back",
)
"""A row of the queue is nothing but a number, so rows of a page that changed places with its own seem to be queued."""


def create(connection: Connection) -> None:
    """Create both indexes and the view of their words, where they do not exist."""
    connection.execute(SQL.create_words)
    connection.execute(SQL.create_substrings)
    connection.execute(SQL.create_vocabulary)


def drop(connection: Connection) -> None:
    """Drop both indexes, whatever state they are in."""
    for sql in (SQL.drop_vocabulary, SQL.drop_words, SQL.drop_substrings):
        connection.execute(sql)


class OtherIndex(Protocol):
    """The index of a database other than SQLite, which comes with its transaction as `text_index`."""

    def add(self, rows: Sequence[tuple[int, MessageRow]]) -> None:
        """Index inserted rows, each given with its id."""
        ...

    def remove(self, message_ids: Sequence[int]) -> None:
        """Let no search find these messages any more."""
        ...

    def queue(self, message_ids: Sequence[int]) -> None:
        """Index messages again, in their new state."""
        ...


def _find_other(connection: Connection) -> OtherIndex | None:
    found: OtherIndex | None = getattr(connection, "text_index", None)
    return found


def add(connection: Connection, rows: Sequence[tuple[int, MessageRow]]) -> None:
    """Index inserted rows, each given with its id, unless they are few: those were queued by the trigger of the table.

    The caller's transaction is open.
    """
    if (other := _find_other(connection)) is not None:
        other.add(rows)
        return
    if len(rows) <= FEW:
        chars = _stored_chars.get(connection, 0) + sum([ROW_CHARS + len(row.content) for _, row in rows])
        if chars >= MOST_WAITING_CHARS:
            chars = 0
            # twice as much: other processes store as well, and what they left must not pile up
            _drain_batch(connection, 2 * MOST_WAITING_CHARS // ROW_CHARS, chars=2 * MOST_WAITING_CHARS)
        _stored_chars[connection] = chars
        return
    read = ((number, row.role, row.content, row.origin, row.tool_name, row.tool_calls) for number, row in rows)
    add_texts(connection, texts(read))


def add_texts(connection: Connection, texts: Iterable[IndexedText]) -> None:
    """Index texts, or index them again."""
    ready = [prepare(text) for text in texts]
    connection.executemany(SQL.add_words, [(row.message_id, row.words, row.marks) for row in ready])
    connection.executemany(SQL.add_substrings, [(row.message_id, row.substrings) for row in ready])


def remove(connection: Connection, message_ids: Sequence[int]) -> None:
    """Remove messages from both indexes and from the queue; `merge` removes their bytes."""
    if (other := _find_other(connection)) is not None:
        other.remove(message_ids)
        return
    if connection.execute(SQL.is_foreign).fetchone() is not None:
        raise Unreadable(*_FOREIGN)
    _unindex(connection, message_ids)
    connection.executemany(SQL.done, [(number,) for number in message_ids])


def _unindex(connection: Connection, message_ids: Iterable[int]) -> None:
    ids = [(number,) for number in message_ids]
    connection.executemany(SQL.remove_words, ids)
    connection.executemany(SQL.remove_substrings, ids)


def queue(connection: Connection, message_ids: Sequence[int]) -> None:
    """Queue messages to be indexed again, in their new state, before the next search."""
    if (other := _find_other(connection)) is not None:
        other.queue(message_ids)
        return
    connection.executemany(SQL.again, [(number,) for number in message_ids])


def drain(database: Database, *, seconds: float = 3.0) -> int:
    """Index the queued rows for at most the given time; return how many."""
    with database.reading() as connection:
        if connection.execute(SQL.is_waiting).fetchone() is None:
            return 0
    deadline = time.monotonic() + seconds
    done = 0
    while time.monotonic() < deadline:
        with database.writing() as connection:
            count = _drain_batch(connection, _QUEUE_BATCH)
        done += count
        if count == 0:
            break
    return done


def _read_batch(connection: Connection, most: int, chars: int) -> list[Row]:
    """Return the next queued rows, fewer than `most` if their texts have more than `chars` characters."""
    batch: list[Row] = []
    for row in connection.execute(SQL.waiting, (most,)):
        chars -= len(str(row[3] or ""))
        if batch and chars < 0:
            break
        batch.append(row)
    return batch


def _drain_batch(connection: Connection, most: int, *, chars: int = _QUEUE_CHARS) -> int:
    if connection.execute(SQL.is_foreign).fetchone() is not None:
        raise Unreadable(*_FOREIGN)
    waiting = _read_batch(connection, most, chars)
    there = [row for row in waiting if row[1] is not None]
    _unindex(connection, [row[0] for row in waiting if row[1] is None])
    add_texts(connection, texts((row[0], *row[2:-1]) for row in there))
    connection.executemany(SQL.done, [(row[0],) for row in waiting])
    foreign = [row for row in there if row[-1]]
    checksums.update(connection, [row[0] for row in foreign])
    recount(connection, {row[1] for row in foreign})
    if len(there) < len(waiting):  # another program removed rows, and nothing says of which sessions
        connection.execute(SQL.recount_all)
    return len(waiting)


def recount(connection: Connection, session_ids: Iterable[str]) -> None:
    """Set the message count and the last activity of sessions from their rows."""
    connection.executemany(SQL.recount, [(session_id,) for session_id in session_ids])


def texts(rows: Iterable[Row]) -> list[IndexedText]:
    """Return what is indexed of rows with id, role, content, origin and tool columns."""
    return [
        indexed_text(number, role, content=content or "", origin=origin, tool_name=tool_name, tool_calls=tool_calls)
        for number, role, content, origin, tool_name, tool_calls in rows
    ]


def merge(connection: Connection, pages: int) -> bool:
    """Do one step of merging and return whether it changed anything; a negative number starts a full merge."""
    before = connection.total_changes()
    connection.execute(SQL.merge_words, (pages,))
    connection.execute(SQL.merge_substrings, (pages,))
    # a merge that finds nothing to do still counts as one change per table
    return connection.total_changes() - before > len(TABLES)


def is_current(connection: Connection) -> bool:
    """Whether this version made the indexes."""
    return _version(connection) == str(VERSION)


def make_ready(database: Database, *, sink: EventSink, clock: Clock) -> None:
    """Create the indexes where they are missing; rebuild them when another version made them."""
    found = _version(database.connection)
    if found == str(VERSION):
        return
    if found is None:
        with database.writing() as connection:
            if _version(connection) is None and connection.execute(SQL.any_message).fetchone() is None:
                create(connection)
                _set_version(connection)
                return
    try:
        rebuild(database, sink=sink, clock=clock)
    except Busy:
        return  # another process is rebuilding; until it has finished, searches use the old index


def rebuild(database: Database, *, sink: EventSink, clock: Clock) -> int:
    """Index every message again and return how many; others read, write and search the old index meanwhile."""
    holder = new_holder()
    try:
        total = _begin_rebuild(database, holder, clock)
        return _fill(database, holder, clock=clock, sink=sink, total=total)
    finally:
        with database.writing() as connection:
            session_rows.release_lease(connection, LEASE, holder=holder)


def _begin_rebuild(database: Database, holder: str, clock: Clock) -> int:
    with database.writing() as connection:
        _hold_lease(connection, holder, clock)
        connection.execute(SQL.drop_next_words)
        connection.execute(SQL.drop_next_substrings)
        # the same declarations under other names, so that both indexes have one definition
        connection.execute(SQL.create_words.replace("message_words", "next_words"))
        connection.execute(SQL.create_substrings.replace("message_substrings", "next_substrings"))
        ((count,),) = connection.execute(SQL.count_messages).fetchall()
        return int(str(count))


def _fill(database: Database, holder: str, *, clock: Clock, sink: EventSink, total: int) -> int:
    from kept.core.events import Progressed

    done = last = 0
    while True:
        with database.writing() as connection:
            _hold_lease(connection, holder, clock)
            last, count = _fill_batch(connection, last)
            done += count
            if count < _REBUILD_BATCH:
                _swap(connection)
        sink(Progressed(TASK, min(done, total), total))
        if count < _REBUILD_BATCH:
            return done


def _hold_lease(connection: Connection, holder: str, clock: Clock) -> None:
    if not session_rows.take_lease(
        connection, LEASE, holder=holder, now=clock.now().timestamp(), seconds=_LEASE_SECONDS
    ):
        raise Busy("another process is rebuilding the index", "wait until it has ended")


def _fill_batch(connection: Connection, last: int) -> tuple[int, int]:
    batch = [prepare(text) for text in texts(connection.execute(SQL.texts_after, (last, _REBUILD_BATCH)))]
    connection.executemany(SQL.add_next_words, [(row.message_id, row.words, row.marks) for row in batch])
    connection.executemany(SQL.add_next_substrings, [(row.message_id, row.substrings) for row in batch])
    return (batch[-1].message_id if batch else last), len(batch)


def _swap(connection: Connection) -> None:
    connection.execute(SQL.drop_gone_words)
    connection.execute(SQL.drop_gone_substrings)
    drop(connection)
    connection.execute(SQL.rename_words)
    connection.execute(SQL.rename_substrings)
    create(connection)
    connection.execute(SQL.recount_all)
    _set_version(connection)


def _version(connection: Connection) -> str | None:
    row = connection.execute(SQL.version).fetchone()
    return None if row is None else str(row[0])


def _set_version(connection: Connection) -> None:
    connection.execute(SQL.set_version, (str(VERSION),))

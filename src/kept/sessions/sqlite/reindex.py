"""Both indexes built anew beside the old ones, in small steps, and swapped in at the end."""

import os

from kept.core.errors import Busy
from kept.core.events import Progressed
from kept.core.ids import random_hex
from kept.core.ports import Clock, EventSink
from kept.sessions.sqlite import index, indexing, notes
from kept.sessions.text import prepared
from kept.storage.sqlite import Connection, Database
from kept.storage.statements import statements

SQL = statements("kept.sessions.sqlite", "reindex.sql")
TASK = "indexing messages"
LEASE = "reindex"
_LEASE_SECONDS = 120.0
_STEP = 2_000


def make_ready(database: Database, *, sink: EventSink, clock: Clock) -> None:
    """Make the indexes where they are missing; rebuild them when another version made them."""
    found = _version(database.connection)
    if found == str(index.VERSION):
        return
    if found is None:
        with database.writing() as connection:
            if _version(connection) is None and not _has_messages(connection):
                index.create(connection)
                _set_version(connection)
                return
    try:
        rebuild(database, sink=sink, clock=clock)
    except Busy:
        return  # another process is at it; until then the old index answers


def rebuild(database: Database, *, sink: EventSink, clock: Clock) -> int:
    """Index every message anew; others read and write meanwhile, and find through the old index until the end."""
    holder = f"{os.getpid()}-{random_hex(4)}"
    try:
        total = _begin(database, holder, clock)
        return _build(database, holder, clock=clock, sink=sink, total=total)
    finally:
        with database.writing() as connection:
            notes.release(connection, LEASE, holder=holder)


def _begin(database: Database, holder: str, clock: Clock) -> int:
    with database.writing() as connection:
        _hold(connection, holder, clock)
        connection.execute(SQL.drop_next_words)
        connection.execute(SQL.drop_next_substrings)
        # the same declarations under other names, so that both indexes have one definition
        connection.execute(index.SQL.create_words.replace("message_words", "next_words"))
        connection.execute(index.SQL.create_substrings.replace("message_substrings", "next_substrings"))
        return _count(connection)


def _build(database: Database, holder: str, *, clock: Clock, sink: EventSink, total: int) -> int:
    done = last = 0
    while True:
        with database.writing() as connection:
            _hold(connection, holder, clock)
            last, count = _step(connection, last)
            done += count
            if count < _STEP:
                _swap(connection)
        sink(Progressed(TASK, min(done, total), total))
        if count < _STEP:
            return done


def _hold(connection: Connection, holder: str, clock: Clock) -> None:
    if not notes.lease(connection, LEASE, holder=holder, now=clock.now().timestamp(), seconds=_LEASE_SECONDS):
        raise Busy("another process is rebuilding the index", "wait until it has ended")


def _step(connection: Connection, last: int) -> tuple[int, int]:
    batch = [prepared(text) for text in indexing.texts_after(connection, last, limit=_STEP)]
    connection.executemany(SQL.add_next_words, [(row.message_id, row.words, row.marks) for row in batch])
    connection.executemany(SQL.add_next_substrings, [(row.message_id, row.substrings) for row in batch])
    return (batch[-1].message_id if batch else last), len(batch)


def _swap(connection: Connection) -> None:
    connection.execute(SQL.drop_gone_words)
    connection.execute(SQL.drop_gone_substrings)
    index.drop(connection)
    connection.execute(SQL.rename_words)
    connection.execute(SQL.rename_substrings)
    index.create(connection)
    _set_version(connection)


def _version(connection: Connection) -> str | None:
    row = connection.execute(SQL.version).fetchone()
    return None if row is None else str(row[0])


def _set_version(connection: Connection) -> None:
    connection.execute(SQL.set_version, (str(index.VERSION),))


def _has_messages(connection: Connection) -> bool:
    return connection.execute(SQL.any_message).fetchone() is not None


def _count(connection: Connection) -> int:
    ((count,),) = connection.execute(SQL.count_messages).fetchall()
    return int(str(count))

"""Damage mended while the store is open: what is derived is made anew from the rows, which are whole."""

import logging
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from kept.core.errors import Busy, Unreadable
from kept.core.events import Warned
from kept.core.ports import Clock, EventSink
from kept.sessions.sqlite import index, vectors
from kept.sessions.sqlite.salvage import by_number
from kept.storage.connections import connect_read_only
from kept.storage.maintenance import check_integrity, drop_from_schema, rebuild_indexes, vacuum
from kept.storage.sql import statements
from kept.storage.sqlite import Connection, Database

SQL = statements("kept.sessions.sqlite", "healing.sql")
log = logging.getLogger(__name__)

INDEX_TABLES = (
    "name GLOB 'message_words*' OR name GLOB 'message_substrings*' OR name = 'message_vocabulary' "
    "OR name GLOB 'next_words*' OR name GLOB 'next_substrings*'"
)
VECTOR_TABLES = "tbl_name = 'message_vectors' OR name = 'vectors_of_old_text'"
INDEX_DONE = "the search index was damaged; it was built anew from the stored messages"
VECTORS_DONE = "the vectors were damaged; those that could be read were kept, `kept sessions embed` makes the others"
ROWS_INDEX_DONE = "the index of the rows was damaged; it was built anew"
PAGES_DONE = "pages that belonged to nothing were given back"
QUEUE_DONE = "the queue of messages to index was damaged; it was made anew"
_VECTORS = frozenset({"message_vectors", "vector_state"})


def heal(database: Database, *, sink: EventSink, clock: Clock) -> list[str]:
    """Make anew what is derived and damaged, and return what that was, in words.

    Nothing is returned when the damage lies elsewhere, or when it cannot be mended now.
    """
    if database.connection.in_transaction or not _rows_are_whole(database):
        return []
    try:
        done = _mended(database, sink=sink, clock=clock)
    except (Busy, Unreadable) as error:
        log.warning("the damage is not mended in place: %s", error)
        return []
    for what in done:
        log.warning(what)
        sink(Warned(what, ""))
    return done


def _rows_are_whole(database: Database) -> bool:
    try:
        with database.reading() as connection:
            connection.execute(SQL.read_messages).fetchall()
            connection.execute(SQL.read_sessions).fetchall()
    except Unreadable:
        return False
    return True


def _mended(database: Database, *, sink: EventSink, clock: Clock) -> list[str]:
    tables, indexed = _damaged(database, SQL.derived), _damaged(database, SQL.indexed)
    done = _replaced(database, tables, indexed) if tables or indexed else []
    if _index_faults(database):  # asked last: with a queue, what waited in it is lost
        index.rebuild(database, sink=sink, clock=clock)
        done.append(INDEX_DONE)
    if not done and check_integrity(database.connection, database.path):
        vacuum(database.connection, database.path)  # what an earlier mending had to leave
        done.append(PAGES_DONE)
    return done


def _damaged(database: Database, sql: str) -> list[str]:
    with database.reading() as connection:
        names = [str(row[0]) for row in connection.execute(sql)]
        return [name for name in names if check_integrity(connection, database.path, f"integrity_check({name})")]


def _index_faults(database: Database) -> list[str]:
    try:
        with database.reading() as connection:
            return index.check(connection)
    except Unreadable as error:
        return [error.message]


def _replaced(database: Database, tables: Sequence[str], indexed: Sequence[str]) -> list[str]:
    """Leave the damaged pages behind, which cannot even be dropped, and have a vacuum give them back."""
    done = [ROWS_INDEX_DONE] if indexed else []
    with database.writing() as connection:
        if any(name.startswith(("message_words", "message_substrings")) for name in tables):
            drop_from_schema(connection, INDEX_TABLES)
            index.create(connection)
        if _VECTORS.intersection(tables):
            _save_vectors(connection, database.path, has_owner="vector_state" not in tables)
            done.append(VECTORS_DONE)
        for name in ("index_queue", "leases"):
            if name in tables:
                ((sql,),) = connection.execute(SQL.definition, (name,)).fetchall()
                drop_from_schema(connection, f"tbl_name = '{name}' AND type IN ('table', 'index')")
                connection.execute(str(sql))
                done.append(QUEUE_DONE)
        for name in indexed:
            rebuild_indexes(connection, name)
    try:
        vacuum(database.connection, database.path)
    except Busy as error:
        log.warning("the damaged pages are not given back yet: %s", error)
    return done


def _save_vectors(connection: Connection, path: Path, *, has_owner: bool) -> None:
    """Keep the vectors that can be read; without the name of their model none can be used."""
    if not has_owner:
        drop_from_schema(connection, f"{VECTOR_TABLES} OR tbl_name = 'vector_state'")
        return
    connection.execute(vectors.SQL.create_vectors.replace("message_vectors", "next_vectors"))
    # a transaction that meets damage can write no more, so another connection reads
    with closing(connect_read_only(path)) as damaged:
        for row in by_number(damaged, "message_vectors", "seq, message_id, vectors", lambda _: None):
            connection.execute(SQL.keep_vectors, row)
    drop_from_schema(connection, VECTOR_TABLES)
    connection.execute(SQL.keep_sequence)
    connection.execute(SQL.rename_vectors)
    connection.execute(vectors.SQL.create_trigger)

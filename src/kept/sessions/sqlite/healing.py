"""A damaged index mended while the store is open: it is derived, so it is built anew from the rows."""

import logging

from kept.core.errors import Busy, StorageError, Unreadable
from kept.core.events import Warned
from kept.core.ports import Clock, EventSink
from kept.sessions.sqlite import index, reindex
from kept.storage.damaged import forget_tables
from kept.storage.sqlite import Database
from kept.storage.statements import statements

SQL = statements("kept.sessions.sqlite", "checkup.sql")
log = logging.getLogger(__name__)

INDEX_TABLES = (
    "name GLOB 'message_words*' OR name GLOB 'message_substrings*' OR name = 'message_vocabulary' "
    "OR name GLOB 'next_words*' OR name GLOB 'next_substrings*'"
)


def heal(database: Database, *, sink: EventSink, clock: Clock) -> bool:
    """Rebuild the index if it is what is damaged; False when it is whole, so that the damage lies elsewhere."""
    wrong = _wrong(database)
    if not wrong or not _rows_are_whole(database):
        return False
    log.warning("the search index is damaged and is built anew: %s", "; ".join(wrong))
    try:
        reindex.rebuild(database, sink=sink, clock=clock)
    except Unreadable:
        _replace(database, sink=sink, clock=clock)
    sink(Warned("the search index was damaged; it was built anew from the stored messages", ""))
    return True


def _wrong(database: Database) -> list[str]:
    try:
        with database.reading() as connection:
            return index.check(connection)
    except Unreadable as error:
        return [error.message]


def _rows_are_whole(database: Database) -> bool:
    try:
        with database.reading() as connection:
            connection.execute(SQL.read_all).fetchall()
    except Unreadable:
        return False
    return True


def _replace(database: Database, *, sink: EventSink, clock: Clock) -> None:
    """Leave the damaged pages behind where they cannot even be dropped, and give them back by a vacuum."""
    with database.writing() as connection:
        forget_tables(connection, INDEX_TABLES)
        index.create(connection)
    reindex.rebuild(database, sink=sink, clock=clock)
    try:
        with database.reading() as connection:
            connection.execute("VACUUM")
    except (Busy, StorageError) as error:
        log.warning("the pages of the old index are not given back yet: %s", error)

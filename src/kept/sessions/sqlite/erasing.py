"""The end of deleted bytes: index segments merged in small steps, then the write-ahead log emptied."""

from kept.core.errors import Busy
from kept.sessions.sqlite import index
from kept.storage.sql import statements
from kept.storage.sqlite import Connection, Database

SQL = statements("kept.sessions.sqlite", "erasing.sql")
PAGES = 500
MOST_STEPS = 100_000


def erase(database: Database) -> None:
    """Let nothing deleted stay in the file or its log; raise Busy when a reader keeps the log.

    What could not be done now is done by `finish` at the next open.
    """
    from kept.sessions.sqlite import vector_cache

    with database.writing() as connection:
        connection.execute(SQL.owe)
    vector_cache.remove(database.path)
    merge(database)
    if not _emptied(database.connection):
        raise Busy(
            f"another process is reading {str(database.path)!r}, so its log could not be emptied yet",
            "the content cannot be found any more; its last bytes go when kept is next opened",
        )
    _settle(database)


def merge(database: Database) -> None:
    """Merge both indexes into one segment each, a little at a time, so that others can write between."""
    pages = -PAGES
    for _ in range(MOST_STEPS):
        with database.writing() as connection:
            changed = index.merge(connection, pages)
        if not changed:
            return
        pages = PAGES


def finish(database: Database) -> None:
    """Do what an earlier `erase` had to leave; a busy file leaves it once more."""
    if database.connection.execute(SQL.owed).fetchone() is None:
        return
    try:
        merge(database)
        if _emptied(database.connection):
            _settle(database)
    except Busy:
        return


def _settle(database: Database) -> None:
    with database.writing() as connection:
        connection.execute(SQL.settle)
    # the note itself went through the log: that holds no content


def _emptied(connection: Connection) -> bool:
    if connection.pragma("journal_mode") != "wal":
        return True
    ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return busy == 0

"""A small store made as small as it can be: its index in one piece, and no empty pages between."""

import logging

from kept.core.errors import Busy, StorageError
from kept.sessions.sqlite import erasing
from kept.storage.sql import statements
from kept.storage.sqlite import Connection, Database

SQL = statements("kept.sessions.sqlite", "tidying.sql")
log = logging.getLogger(__name__)

SMALL_BYTES = 10_000_000
"""Up to here everything is rewritten in a fraction of a second; beyond, the share that lies unused is small."""
LOOSE_SHARE = 1 / 8
"""Pages of an index outside its largest piece: with fewer, there is little to be gained."""
FREE_SHARE = 1 / 25
WAIT_SECONDS = 0.1


def tidy(database: Database) -> None:
    """Merge the indexes and give free pages back, if the file is small and there is enough of either.

    While another process writes, it is left to the next time.
    """
    try:
        with database.limit_wait(WAIT_SECONDS) as connection:
            if not _is_small(connection):
                return
            if _loose(connection) > LOOSE_SHARE:
                erasing.merge(database)
            if _number(connection, "freelist_count") > FREE_SHARE * _number(connection, "page_count"):
                connection.execute("VACUUM")
    except Busy:
        return
    except StorageError as error:  # nobody asked for it: what is wrong is said by whoever needs the file next
        log.warning("the store is not made smaller: %s", error)


def _is_small(connection: Connection) -> bool:
    return _number(connection, "page_count") * _number(connection, "page_size") <= SMALL_BYTES


def _loose(connection: Connection) -> float:
    """Return the share of the indexes' pages that lie outside the largest piece of each."""
    ((pages, largest),) = connection.execute(SQL.pieces).fetchall()
    return 1 - largest / pages if isinstance(pages, int) and isinstance(largest, int) else 0.0


def _number(connection: Connection, name: str) -> int:
    number = connection.pragma(name)
    assert isinstance(number, int)
    return number

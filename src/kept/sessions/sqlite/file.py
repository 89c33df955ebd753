"""An open session file: the database, and what every part of the store writes, reads and tells through."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kept.core.clock import SystemClock
from kept.core.errors import Busy, StorageError
from kept.core.events import ignore
from kept.core.ports import Clock, EventSink, UnitOfWork
from kept.sessions.settings import SessionSettings
from kept.sessions.sqlite import index
from kept.storage.sql import statements
from kept.storage.sqlite import Connection, Database
from kept.storage.state import STATE_NAME, open_state

if TYPE_CHECKING:
    from kept.sessions.redaction import Redaction


SQL = statements("kept.sessions.sqlite", "file.sql")
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
    merge_indexes(database)
    if not _empty_log(database.connection):
        raise Busy(
            f"another process is reading {str(database.path)!r}, so its log could not be emptied yet",
            "the content cannot be found any more; its last bytes go when kept is next opened",
        )
    _settle(database)


def merge_indexes(database: Database) -> None:
    """Merge both indexes into one segment each, a little at a time, so that others can write between."""
    pages = -PAGES
    for _ in range(MOST_STEPS):
        with database.writing() as connection:
            changed = index.merge(connection, pages)
        if not changed:
            return
        pages = PAGES


def finish_erasing(database: Database) -> None:
    """Do what an earlier `erase` had to leave; a busy file leaves it once more."""
    if database.connection.execute(SQL.owed).fetchone() is None:
        return
    try:
        merge_indexes(database)
        if _empty_log(database.connection):
            _settle(database)
    except Busy:
        return


def _settle(database: Database) -> None:
    with database.writing() as connection:
        connection.execute(SQL.settle)
    # the note itself went through the log: that holds no content


def _empty_log(connection: Connection) -> bool:
    if connection.pragma("journal_mode") != "wal":
        return True
    ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return busy == 0


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
                merge_indexes(database)
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


class SessionFile:
    """Owns the database from its opening, with the index made ready, to its closing, tidied."""

    def __init__(
        self,
        place: Database | Path | str,
        settings: SessionSettings | None = None,
        *,
        clock: Clock | None = None,
        sink: EventSink = ignore,
    ) -> None:
        self.settings = settings or SessionSettings()
        self.clock = clock or SystemClock()
        self.sink = sink
        self.database = _opened(place, self.settings, sink)
        if self.database.is_empty:
            index.create(self.database.connection)  # so that a search finds nothing instead of no index
        elif not self.database.is_read_only:
            index.make_ready(self.database, sink=sink, clock=self.clock)
            finish_erasing(self.database)

    def close(self) -> None:
        """Close the database, tidied; who shares it with others closes it there."""
        self.tidy()
        self.database.close()

    def tidy(self) -> None:
        """Give back the room that writing left unused, where that takes a moment; call it before closing."""
        if self.database.has_written:
            tidy(self.database)

    def now(self) -> float:
        """Return the present in epoch seconds."""
        return self.clock.now().timestamp()

    @cached_property
    def redaction(self) -> "Redaction":
        """What takes credentials out of everything that is stored; loaded at the first write."""
        from kept.sessions.redaction import Redaction

        return Redaction(is_on=self.settings.redact)

    @contextmanager
    def writing(self, unit: UnitOfWork | None = None) -> Iterator[Connection]:
        """Give the connection inside a transaction: the caller's unit, or one of its own."""
        if unit is not None:
            yield cast(Connection, unit)
            return
        with self.database.writing() as connection:
            yield connection

    def catch_up(self) -> None:
        """Index what other programs wrote; a busy file leaves it for the next search."""
        if self.database.is_read_only:
            return
        try:
            index.drain(self.database)
        except Busy:
            return

    def mended(self) -> bool:
        """Make anew what is derived and damaged; False when the damage lies elsewhere, or nothing can be written."""
        from kept.sessions.sqlite import repair

        return not self.database.is_read_only and bool(
            repair.rebuild_damaged(self.database, sink=self.sink, clock=self.clock)
        )


def _opened(place: Database | Path | str, settings: SessionSettings, sink: EventSink) -> Database:
    if isinstance(place, Database):
        return place
    path = Path(place)
    return open_state(path / STATE_NAME if path.is_dir() else path, settings.durability, sink=sink)

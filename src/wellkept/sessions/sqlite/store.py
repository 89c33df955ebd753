"""The session store in SQLite: the open file with its transactions, tidying and erasing, and the store of one user."""

import logging
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, cast

from wellkept.core.clock import SystemClock
from wellkept.core.errors import Busy, StorageError
from wellkept.core.ids import OWNER, UserId
from wellkept.core.messages import Lineage
from wellkept.core.ports import Clock, EventSink, UnitOfWork, ignore
from wellkept.core.search import Found, SearchRequest
from wellkept.sessions.rows import message_rows
from wellkept.sessions.rows.store import RowStore, retry_after_rebuild
from wellkept.sessions.settings import SessionSettings
from wellkept.sessions.sqlite import checksums, index
from wellkept.storage.connections import explain_sql_errors, statements
from wellkept.storage.sqlite import STATE_NAME, Connection, Database, open_state

if TYPE_CHECKING:
    from wellkept.sessions.redaction import Redaction
    from wellkept.sessions.rows.semantic import SemanticSearch
    from wellkept.sessions.rows.transfer import RowTransfer
    from wellkept.sessions.sqlite.upkeep import SqliteUpkeep

SQL = statements("wellkept.sessions.sqlite", "store.sql")
log = logging.getLogger(__name__)

PAGES = 100
"""Pages that one merge step may write; other writers get their turn between the steps."""
MOST_STEPS = 100_000
SMALL_BYTES = 16_000_000
"""Up to this size a rewrite takes a fraction of a second; in larger files the unused share is small."""
FRAGMENTED_SHARE = 1 / 8
"""Share of an index outside its largest segment above which merging is worth it."""
FREE_SHARE = 1 / 25
"""Share of free pages above which a vacuum is worth it."""
WAIT_SECONDS = 0.1
MERGE_SECONDS = 0.1
"""What the end of a command may take longer to merge the indexes of a large file; the next command goes on with it."""
MERGE_SECONDS_PER_CHANGE = 2e-6
"""And for each row that it changed: an import may take a tenth longer, so that the next search finds one segment."""
_UNTIL_DONE = 3_600.0
CHECKSUM_SECONDS = 0.2
"""What the end of a command may take longer until every row of an old file has its checksum."""
SPELLING_SECONDS = 0.5
"""The same until the words of all messages of an old file are listed: those of some 20,000 messages."""


_MERGED_PAGES = 64
"""Pages of small segments that are merged after the queue: a term is looked up in every segment.

FTS5 itself waits for sixteen segments, with which the list of a rare word takes four times as long to read.
"""
_CATCH_UP_WAIT_SECONDS = 3.0
"""How long a search waits for another writer before it does without the newest messages."""


def erase(database: Database) -> None:
    """Remove every deleted byte from the file and its write-ahead log; raise Busy while a reader holds the log.

    `finish_erasing` completes at the next open what could not be done now.
    """
    from wellkept.sessions.sqlite import semantic

    with database.writing() as connection:
        connection.execute(SQL.owe)
    semantic.remove_file(database.path)
    _remove_from_index(database)
    if not _empty_log(database):
        raise Busy(
            f"another process is reading {str(database.path)!r}, so its log could not be emptied yet",
            "the content cannot be found any more; its last bytes are removed when kept is next opened",
        )
    _settle(database)


def _remove_from_index(database: Database) -> None:
    """Remove the bytes of deleted messages from the index."""
    merge_index(database)
    index.remove_unused(database)


def merge_index(database: Database, *, seconds: float = inf) -> None:
    """Merge the word index into one segment, in small steps, so that others can write in between.

    After `seconds` the rest is left to the next merge, which goes on where this one was.
    """
    end = monotonic() + seconds
    pages = -PAGES  # a negative count begins a merge of all segments (FTS5)
    for _ in range(MOST_STEPS):
        with database.writing() as connection:
            changed = index.merge(connection, pages)
        if not changed or monotonic() >= end:
            return
        pages = PAGES


def finish_erasing(database: Database) -> None:
    """Complete an interrupted `erase`; while the file is busy or the disk refuses, leave it for the next open."""
    if database.connection.execute(SQL.owed).fetchone() is None:
        return
    try:
        _remove_from_index(database)
        if _empty_log(database):
            _settle(database)
    except StorageError as error:
        log.warning("erasing what was forgotten is not finished: %s", error.message)


def _settle(database: Database) -> None:
    with database.writing() as connection:
        connection.execute(SQL.settle)
    # this write adds a frame to the log, without any removed content


def _empty_log(database: Database) -> bool:
    with database.reading() as connection:  # a checkpoint writes, and its errors are explained here as well
        if connection.pragma("journal_mode") != "wal":
            return True
        ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return busy == 0


def tidy(database: Database) -> None:
    """Merge the index, where it is worth it; in a small file also drop unused words and free pages.

    Does nothing while another process writes.
    """
    try:
        with database.limit_wait(WAIT_SECONDS) as connection:
            is_small = _is_small(connection)
            if _fragmented_share(connection) > FRAGMENTED_SHARE:
                seconds = MERGE_SECONDS + MERGE_SECONDS_PER_CHANGE * connection.total_changes()
                merge_index(database, seconds=inf if is_small else seconds)
            if is_small and index.may_have_unused(connection):
                index.remove_unused(database)
            if is_small and _number(connection, "freelist_count") > FREE_SHARE * _number(connection, "page_count"):
                from wellkept.storage.maintenance import vacuum  # hardly any command frees pages

                vacuum(connection, database.path)
    except Busy:
        return
    except StorageError as error:  # best effort: the next use of the file reports the fault
        log.warning("cannot tidy the store: %s", error)


def fill_missing(database: Database, *, sink: EventSink) -> None:
    """Add some of what an older version did not write, checksums and words, unless another process writes now."""
    try:
        with database.limit_wait(WAIT_SECONDS):
            checksums.fill_missing(database, seconds=CHECKSUM_SECONDS)
            index.fill_spellings(database, seconds=SPELLING_SECONDS, sink=sink)
    except StorageError as error:  # best effort: the next close continues
        log.warning("cannot bring the store up to date: %s", error)


def _is_small(connection: Connection) -> bool:
    return _number(connection, "page_count") * _number(connection, "page_size") <= SMALL_BYTES


def _fragmented_share(connection: Connection) -> float:
    """Return the share of the index's pages outside its largest segment."""
    ((pages, largest),) = connection.execute(SQL.pieces).fetchall()
    return 1 - largest / pages if isinstance(pages, int) and isinstance(largest, int) else 0.0


def _number(connection: Connection, name: str) -> int:
    number = connection.pragma(name)
    assert isinstance(number, int)
    return number


class SessionFile:
    """Owns the database: opens it and prepares the index, tidies and closes it."""

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
        self.database = _open(place, self.settings, self.clock, sink)
        if self.database.is_empty:
            index.create(self.database.connection)  # a search then finds nothing instead of failing
        elif not self.database.is_read_only:
            with explain_sql_errors(self.database.path):
                made_by = self.database.connection.execute(index.SQL.version).fetchone()
                if made_by != (str(index.VERSION),):
                    index.make_ready(self.database, sink=sink, clock=self.clock)
                finish_erasing(self.database)

    def close(self) -> None:
        """Tidy and close the database; a caller that shares it with others closes it there instead."""
        self.tidy()
        self.database.close()

    def tidy(self) -> None:
        """Release unused space if that is quick; call it before closing."""
        if self.database.has_written:
            try:
                self.catch_up(wait_seconds=WAIT_SECONDS)
            except StorageError as error:  # best effort: the next search indexes what waits, or reports the fault
                log.warning("cannot index what waits for it: %s", error)
            tidy(self.database)
            fill_missing(self.database, sink=self.sink)

    def now(self) -> float:
        """Return the present in epoch seconds."""
        return self.clock.now().timestamp()

    @cached_property
    def redaction(self) -> "Redaction":
        """Removes credentials from everything that is stored; loaded at the first write."""
        from wellkept.sessions.redaction import Redaction

        return Redaction(is_on=self.settings.redact)

    def writing(
        self, unit: UnitOfWork | None = None, *, with_checksums: bool = True
    ) -> AbstractContextManager[Connection]:
        if unit is not None:
            return nullcontext(cast(Connection, unit))
        return self.database.writing(with_checksums=with_checksums)

    def catch_up(self, *, wait_seconds: float = _CATCH_UP_WAIT_SECONDS) -> None:
        """Index what waits for it; while another process keeps the file busy, leave it for the next search."""
        with self.database.reading() as connection:
            is_waiting = connection.execute(index.SQL.is_waiting).fetchone() is not None
        if not is_waiting or self.database.is_read_only:
            return
        with suppress(Busy), self.database.limit_wait(wait_seconds):
            if index.drain(self.database):
                with self.database.writing() as connection:
                    index.merge(connection, _MERGED_PAGES)

    def erase(self) -> None:
        """Remove every byte of what was deleted from index and file; raise Busy while a reader holds the log."""
        index.drain(self.database, seconds=_UNTIL_DONE)
        erase(self.database)

    def rebuild_damaged(self) -> bool:
        """Rebuild damaged derived tables; False if the damage is elsewhere or the file is read-only."""
        from wellkept.sessions.sqlite import repair

        return not self.database.is_read_only and bool(
            repair.rebuild_damaged(self.database, sink=self.sink, clock=self.clock)
        )


def _open(place: Database | Path | str, settings: SessionSettings, clock: Clock, sink: EventSink) -> Database:
    if isinstance(place, Database):
        return place
    path = Path(place)

    def salvage(damaged: Path) -> None:
        from wellkept.sessions.sqlite.repair import salvage_log

        salvage_log(damaged, settings, clock=clock, sink=sink)

    path = path / STATE_NAME if path.is_dir() else path
    return open_state(path, settings.durability, sink=sink, salvage=salvage)


class SqliteSessionStore(RowStore):
    """Stores and finds the conversations of one user; implements `sessions.ports.Sessions`.

    Takes a shared database, or a path: a file, or a folder in which `state.db` exists or is created.
    """

    def __init__(
        self,
        database: SessionFile | Database | Path | str,
        settings: SessionSettings | None = None,
        *,
        user: UserId = OWNER,
        clock: Clock | None = None,
        sink: EventSink = ignore,
        meaning: "SemanticSearch | None" = None,
    ) -> None:
        if not isinstance(database, SessionFile):
            database = SessionFile(database, settings, clock=clock, sink=sink)
        self.file: SessionFile = database
        self.database: Database = self.file.database
        self.sink = sink
        self.user = user
        self.meaning = meaning

    def for_user(self, user: UserId, *, sink: EventSink | None = None) -> "SqliteSessionStore":
        """Return the sessions of a user in the same open file; closing one closes all."""
        if user == self.user and sink is None:
            return self
        return SqliteSessionStore(self.file, user=user, sink=sink or ignore, meaning=self.meaning)

    def lineage(self) -> Lineage:
        return message_rows.lineage(self.database.connection, user=self.user)

    @retry_after_rebuild
    def search(self, request: SearchRequest) -> Found:
        self.file.catch_up()
        with self.database.reading() as connection:
            from wellkept.sessions.sqlite import postings

            return postings.find(
                connection, request, user=self.user, now=self.file.now(), embed=self._embed(connection)
            )

    @cached_property
    def upkeep(self) -> "SqliteUpkeep":
        from wellkept.sessions.sqlite.upkeep import SqliteUpkeep

        return SqliteUpkeep(self)

    @cached_property
    def transfer(self) -> "RowTransfer":
        from wellkept.sessions.rows.transfer import RowTransfer

        return RowTransfer(self.file, user=self.user, sink=self.sink)

"""Repair of a damaged store: rebuild derived tables in place, or salvage the readable rows into a new file."""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from kept.core.errors import Busy, StorageError, Unreadable
from kept.core.events import Progressed, Warned
from kept.core.ports import Clock, EventSink
from kept.sessions.records import Row
from kept.sessions.reports import Finding, Repaired, Salvaged
from kept.sessions.settings import SessionSettings
from kept.sessions.sqlite import index, vectors
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.sessions.sqlite.upkeep import check, log_tail
from kept.storage.connections import connect_read_only, explain_sql_errors, statements
from kept.storage.files import explain_errors, sync_folder
from kept.storage.maintenance import check_integrity, drop_from_schema, open_exclusively, rebuild_indexes, vacuum
from kept.storage.sqlite import Connection, Database, open_state

SQL = statements("kept.sessions.sqlite", "repair.sql")
log = logging.getLogger(__name__)

INDEX_TABLES = (
    "name GLOB 'message_words*' OR name GLOB 'message_substrings*' OR name = 'message_vocabulary' "
    "OR name GLOB 'next_words*' OR name GLOB 'next_substrings*'"
)
VECTOR_TABLES = "tbl_name = 'message_vectors' OR name = 'vectors_of_old_text'"
INDEX_DONE = "the search index was damaged; it was rebuilt from the stored messages"
VECTORS_DONE = "the vectors were damaged; those that could be read were kept, `kept sessions embed` computes the others"
ROWS_INDEX_DONE = "an index of the rows was damaged; it was rebuilt"
PAGES_DONE = "unused pages were released"
QUEUE_DONE = "the queue of messages to index was damaged; it was recreated"
_VECTORS = frozenset({"message_vectors", "vector_state"})


def rebuild_damaged(database: Database, *, sink: EventSink, clock: Clock) -> list[str]:
    """Rebuild damaged derived tables (indexes, vectors, queues) and return what was done, in words.

    Returns nothing if the damage is elsewhere or cannot be repaired now.
    """
    if database.connection.in_transaction or not _rows_are_whole(database):
        return []
    try:
        done = _rebuild(database, sink=sink, clock=clock)
    except (Busy, Unreadable) as error:
        log.warning("cannot repair in place: %s", error)
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


def _rebuild(database: Database, *, sink: EventSink, clock: Clock) -> list[str]:
    tables, indexed = _find_damaged(database, SQL.derived), _find_damaged(database, SQL.indexed)
    done = _replace_tables(database, tables, indexed) if tables or indexed else []
    if _index_faults(database):  # checked last: recreating the queue loses what was waiting in it
        index.rebuild(database, sink=sink, clock=clock)
        done.append(INDEX_DONE)
    if not done and check_integrity(database.connection, database.path):
        vacuum(database.connection, database.path)  # pages that an earlier repair could not release
        done.append(PAGES_DONE)
    return done


def _find_damaged(database: Database, sql: str) -> list[str]:
    with database.reading() as connection:
        names = [str(row[0]) for row in connection.execute(sql)]
        return [name for name in names if check_integrity(connection, database.path, f"integrity_check({name})")]


def _index_faults(database: Database) -> list[str]:
    try:
        with database.reading() as connection:
            return index.check(connection)
    except Unreadable as error:
        return [error.message]


def _replace_tables(database: Database, tables: Sequence[str], indexed: Sequence[str]) -> list[str]:
    """Recreate the tables on new pages: damaged pages cannot be dropped, so a vacuum releases them."""
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
        log.warning("cannot release the damaged pages yet: %s", error)
    return done


def _save_vectors(connection: Connection, path: Path, *, has_owner: bool) -> None:
    """Keep the readable vectors; without the name of their model none can be used."""
    if not has_owner:
        drop_from_schema(connection, f"{VECTOR_TABLES} OR tbl_name = 'vector_state'")
        return
    connection.execute(vectors.SQL.create_vectors.replace("message_vectors", "next_vectors"))
    # a transaction that reads a damaged page cannot write any more, so another connection reads
    with closing(connect_read_only(path)) as damaged:
        for row in by_number(damaged, "message_vectors", "seq, message_id, vectors", lambda _: None):
            connection.execute(SQL.keep_vectors, row)
    drop_from_schema(connection, VECTOR_TABLES)
    connection.execute(SQL.keep_sequence)
    connection.execute(SQL.rename_vectors)
    connection.execute(vectors.SQL.create_trigger)


TASK = "salvaging rows"
_BY_NUMBER = frozenset({"sessions", "messages", "blobs", "nodes"})
_MADE_ANEW = ("sqlite_", "message_", "next_", "index_queue", "leases")
_STRIDE = 256
_MOST_GUESSED = 20_000
"""Row numbers tried one by one when the highest one cannot be read; messages always have theirs."""


class Salvage:
    """Copies the readable rows of a damaged file into a new database."""

    def __init__(self, damaged: Connection, path: Path, *, sink: EventSink) -> None:
        self._damaged = damaged
        self._path = path
        self._sink = sink
        self.result = Salvaged()

    def into(self, target: Database) -> Salvaged:
        """Copy every readable row into `target`, which is new and empty, in one transaction."""
        with target.writing() as connection:
            connection.execute("PRAGMA defer_foreign_keys = ON")
            names = [str(row[0]) for row in connection.execute(SQL.tables)]
            for table in names:
                if not table.startswith(_MADE_ANEW):
                    self._copy(connection, table)
            connection.execute(SQL.made_anew)
            connection.execute(SQL.unqueue)
            connection.execute(SQL.adopt)
            self.result.unnamed_sessions = connection.changes()
            connection.execute(SQL.recount)
            connection.execute(SQL.drop_lost_carried)
        return self.result

    def _copy(self, target: Connection, table: str) -> None:
        columns = self._shared_columns(target, table)
        listed, marks = ", ".join(columns), ", ".join("?" * len(columns))
        insert = f"INSERT OR IGNORE INTO {table} ({listed}) VALUES ({marks})"  # noqa: S608 - names from our own schema
        rows = (
            by_number(self._damaged, table, listed, self._lose)
            if table in _BY_NUMBER
            else self._from_both_ends(table, columns)
        )
        count = 0
        for row in rows:
            target.execute(insert, row)
            count += target.changes()
            if count % 10_000 == 1:
                self._sink(Progressed(f"{TASK} of {table}", count, None))
        self.result.rows[table] = count

    def _shared_columns(self, target: Connection, table: str) -> list[str]:
        """Return the columns of the new table that the damaged file has too; an older file has fewer."""
        columns = [str(row[1]) for row in target.execute(f"PRAGMA table_info({table})")]
        try:
            with explain_sql_errors(self._path):
                known = {str(row[1]) for row in self._damaged.execute(f"PRAGMA table_info({table})")}
        except StorageError:
            return columns
        return [name for name in columns if name in known] or columns

    def _lose(self, table: str) -> None:
        self.result.lost[table] = self.result.lost.get(table, 0) + 1

    def _from_both_ends(self, table: str, columns: list[str]) -> Iterator[Row]:
        """Yield the rows before the first one that cannot be read, then those after the last."""
        select = f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608 - names from our own schema
        if (yield from self._until_damage(select)):
            return
        self._lose(table)
        yield from self._until_damage(f"{select} ORDER BY {columns[0]} DESC")

    def _until_damage(self, select: str) -> Generator[Row, None, bool]:
        try:
            with explain_sql_errors(self._path):
                yield from self._damaged.execute(select)
        except StorageError:
            return False
        return True


def by_number(damaged: Connection, table: str, listed: str, lose: Callable[[str], None]) -> Iterator[Row]:
    """Yield the rows of a table stride by stride; a stride that cannot be read is halved until single rows fail."""
    select = f"SELECT {listed} FROM {table} WHERE rowid BETWEEN ? AND ?"  # noqa: S608 - names from our own schema
    path, last = Path(damaged.filename), _last_number(damaged, table)
    pending = [(first, min(first + _STRIDE - 1, last)) for first in range(1, last + 1, _STRIDE)][::-1]
    while pending:
        first, end = pending.pop()
        try:
            with explain_sql_errors(path):
                found = damaged.execute(select, (first, end)).fetchall()
        except StorageError:
            if first == end:
                lose(table)
            else:
                middle = (first + end) // 2
                pending += [(middle + 1, end), (first, middle)]
            continue
        yield from found


def _last_number(damaged: Connection, table: str) -> int:
    for sql in (
        f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'",  # noqa: S608 - names from our own schema
        f"SELECT max(rowid) FROM {table}",  # noqa: S608 - names from our own schema
    ):
        try:
            with explain_sql_errors(Path(damaged.filename)):
                found = damaged.execute(sql).fetchone()
        except StorageError:
            continue
        if found is not None:
            return int(found[0] or 0)
    return _MOST_GUESSED


class Repair:
    """One repair of the file at `path`; it opens and closes the file as it needs."""

    def __init__(self, path: Path, settings: SessionSettings, *, clock: Clock, sink: EventSink) -> None:
        self._path = path
        self._settings = settings
        self._clock = clock
        self._sink = sink
        self._report = Repaired()

    def run(self) -> Repaired:
        """Check, repair as little as needed, and check again."""
        tail = log_tail(self._path)  # before anything opens the file
        self._refuse_what_cannot_be_written()
        if tail is not None:
            self._report.found.append(tail)
        try:
            wrong = self._examine()
            if wrong:
                self._report.found += wrong
                if any(not finding.is_lost for finding in wrong) and not self._rebuild_in_place():
                    self._salvage()
        except Unreadable as error:
            self._report.found.append(Finding(error.message, "the file is set aside and its readable rows are copied"))
            self._salvage()
        self._report.left = self._examine() if self._report.found else []
        return self._report

    def _refuse_what_cannot_be_written(self) -> None:
        """Raise the reason if the file cannot be written: a full disk is not damage."""
        with suppress(Unreadable), closing(open_state(self._path, self._settings.durability)) as database:
            if database.is_read_only:
                with database.writing():
                    return

    def _examine(self) -> list[Finding]:
        database = open_state(self._path, self._settings.durability)
        try:
            return check(self._store(database))
        finally:
            database.close()

    def _store(self, database: Database) -> SqliteSessionStore:
        return SqliteSessionStore(database, self._settings, clock=self._clock, sink=self._sink)

    def _rebuild_in_place(self) -> bool:
        """Rebuild derived tables; False if that was not enough and the file must be salvaged."""
        database = open_state(self._path, self._settings.durability)
        try:
            done = rebuild_damaged(database, sink=self._sink, clock=self._clock)
            left = [finding for finding in check(self._store(database)) if not finding.is_lost]
        except StorageError as error:
            log.warning("cannot repair in place: %s", error)
            return False
        finally:
            database.close()
        if not left:
            self._report.done += done
        return not left

    def _salvage(self) -> None:
        """Copy the readable rows into a new file; keep the damaged one under another name."""
        stamp = f"{self._clock.now():%Y%m%d-%H%M%S}"
        fresh = self._path.with_name(f"{self._path.name}.salvaged-{stamp}")
        aside = self._path.with_name(f"{self._path.name}.damaged-{stamp}")
        with open_exclusively(self._path) as damaged:
            target = open_state(fresh, self._settings.durability)
            self._report.salvaged = Salvage(damaged, self._path, sink=self._sink).into(target)
            self._store(target).database.close()
        with explain_errors("set aside", self._path):
            for suffix in ("", "-wal", "-shm"):
                old = self._path.with_name(f"{self._path.name}{suffix}")
                if old.exists():
                    old.replace(aside.with_name(f"{aside.name}{suffix}"))
            fresh.replace(self._path)
            sync_folder(self._path.parent)
        self._report.put_aside = aside
        self._report.done.append(f"the damaged file was set aside as {aside.name} and its readable rows were copied")

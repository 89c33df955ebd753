"""Repair of a damaged store: rebuild derived tables in place, or salvage the readable rows into a new file."""

import logging
import re
from collections.abc import Container, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from wellkept.core.errors import Busy, DamagedLog, ForeignDatabase, StorageError, Unreadable
from wellkept.core.events import Warned
from wellkept.core.ports import Clock, EventSink
from wellkept.core.regular_files import explain_errors
from wellkept.sessions.reports import Finding, Repaired, Salvaged
from wellkept.sessions.rows import vectors
from wellkept.sessions.settings import SessionSettings
from wellkept.sessions.sqlite import checksums, index, index_check
from wellkept.sessions.sqlite.check import check_file, has_unread_log
from wellkept.sessions.sqlite.recovery import DERIVED, Recovery, find_misplaced, read_table
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.connections import statements
from wellkept.storage.files import create_empty, is_foreign, open_scratch, resolve_link
from wellkept.storage.locks import hold_lock
from wellkept.storage.log_recovery import copy_before_damage, recover_log, settle_names
from wellkept.storage.maintenance import check_integrity, drop_from_schema, rebuild_indexes, vacuum
from wellkept.storage.sqlite import Connection, Database, open_state
from wellkept.storage.swap import Replacement, companion, finish, hold_alone

SQL = statements("wellkept.sessions.sqlite", "repair.sql")
log = logging.getLogger(__name__)

INDEX_TABLES = (
    "name GLOB 'message_words*' OR name = 'message_spellings' OR name = 'message_vocabulary' "
    "OR name GLOB 'next_words*' OR name = 'next_spellings' OR name GLOB 'next_queue*' "
    # of earlier versions
    "OR name GLOB 'message_trigrams*' OR name GLOB 'next_trigrams*' "
    "OR name GLOB 'message_substrings*' OR name GLOB 'next_substrings*'"
)
_INDEX_NAMES = ("message_words", "message_spellings", "message_trigrams", "message_substrings")
VECTOR_TABLES = "tbl_name = 'message_vectors' OR name = 'vectors_of_old_text'"
INDEX_DONE = "the search index was damaged; it was rebuilt from the stored messages"
VECTORS_DONE = "the vectors were damaged; those that could be read were kept, `kept sessions embed` computes the others"
ROWS_INDEX_DONE = "an index of the rows was damaged; it was rebuilt"
COUNTS_DONE = "the number of messages of a session was wrong; it was counted again"
BLOBS_DONE = "the list of the images of messages was wrong; it was made again from the messages"
PAGES_DONE = "unused pages were released"
QUEUE_DONE = "the queue of messages to index was damaged; it was recreated"
_TREE = re.compile(r"Tree (\d+) ")
_DIFFERING = re.compile(r"(?:row \d+ missing from|wrong # of entries in) index (\S+)")
_END = "database disk image is malformed"
_WAIT_SECONDS = 30.0
"""How long a process waits for another one that repairs the file."""
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
    """Whether the check of each canonical table blames nothing but its indexes.

    An index that differs from its table although both trees are whole may list rows that the table has lost. A table
    that is recreated may hold rows of another one, whose page has changed places with its own.
    """
    if find_misplaced(database.path):
        return False
    try:
        with database.reading() as connection:
            roots = {int(str(root)): str(name) for root, name in connection.execute(SQL.roots)}
            tables = {name for name in _names(connection, SQL.tables) if not name.startswith(DERIVED)}
            return all(
                _blames_indexes_only(
                    check_integrity(connection, database.path, f"integrity_check({name})"), roots, tables
                )
                for name in tables
            )
    except Unreadable:
        return False


def _names(connection: Connection, sql: str) -> list[str]:
    return [str(row[0]) for row in connection.execute(sql)]


def _blames_indexes_only(lines: Sequence[str], roots: Mapping[int, str], tables: Container[str]) -> bool:
    trees = {roots.get(int(found[1]), "") for line in lines if (found := _TREE.match(line))}
    differing = {found[1] for line in lines if (found := _DIFFERING.match(line))}
    # a damaged tree may end the check of the rows early
    is_known = all(_TREE.match(line) or _DIFFERING.match(line) or (trees and _END in line) for line in lines)
    return is_known and "" not in trees and not any(name in tables for name in trees) and differing <= trees


def _rebuild(database: Database, *, sink: EventSink, clock: Clock) -> list[str]:
    tables, indexed = _find_damaged(database, SQL.derived), _find_damaged(database, SQL.indexed)
    done = _replace_tables(database, tables, indexed) if tables or indexed else []
    if _index_faults(database):  # checked last: recreating the queue loses what was waiting in it
        index.rebuild(database, sink=sink, clock=clock)
        done += [INDEX_DONE] if INDEX_DONE not in done else []
    with database.writing() as connection:
        connection.execute(index.SQL.recount_all)
        if connection.changes():
            done.append(COUNTS_DONE)
        if checksums.correct_blobs(connection):
            done.append(BLOBS_DONE)
    if not done and check_integrity(database.connection, database.path):
        vacuum(database.connection, database.path)  # pages that an earlier repair could not release
        done.append(PAGES_DONE)
    return done


def _find_damaged(database: Database, sql: str) -> list[str]:
    with database.reading() as connection:
        return [
            name
            for name in _names(connection, sql)
            if check_integrity(connection, database.path, f"integrity_check({name})")
        ]


def _index_faults(database: Database) -> list[str]:
    try:
        with database.reading() as connection:
            damaged = {one.message_id for one in checksums.check_rows(connection)}
            return index_check.find_faults(connection, most_chars=index_check.REPAIR_CHARS, without=damaged)
    except Unreadable as error:
        return [error.message]


def _replace_tables(database: Database, tables: Sequence[str], indexed: Sequence[str]) -> list[str]:
    """Recreate the tables on new pages: damaged pages cannot be dropped, so a vacuum releases them."""
    done = [ROWS_INDEX_DONE] if indexed else []
    with database.writing() as connection:
        if any(name.startswith(_INDEX_NAMES) for name in tables):
            drop_from_schema(connection, INDEX_TABLES)
            index.create(connection)
            done.append(INDEX_DONE)
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
    # a transaction that reads a damaged page cannot write any more, so the pages are read without SQLite
    for row in read_table(path, "message_vectors", vectors.SQL.create_vectors):
        values = (row.number, row.values.get("message_id"), row.values.get("vectors"))
        connection.execute(SQL.keep_vectors, values)
    drop_from_schema(connection, VECTOR_TABLES)
    connection.execute(SQL.keep_sequence)
    connection.execute(SQL.rename_vectors)
    connection.execute(vectors.SQL.create_trigger)


def salvage_log(path: Path, settings: SessionSettings, *, clock: Clock, sink: EventSink) -> None:
    """Repair a file whose log is so damaged that its rows must be read one by one, as `kept sessions repair` does.

    Of several processes that find the damage one repairs it, and the others wait. Warns with what was saved.
    """
    path = resolve_link(path)
    with hold_lock(companion(path, ".lock"), timeout_seconds=_WAIT_SECONDS):
        try:
            open_state(path, settings.durability).close()
        except DamagedLog:
            report = Repair(path, settings, clock=clock, sink=sink).run()
            sink(Warned(*_describe(path, report)))


def _describe(path: Path, report: Repaired) -> tuple[str, str]:
    """Return what a repair has saved and lost, and what to do next."""
    salvaged, aside = report.salvaged, report.put_aside
    if salvaged is None or aside is None:
        return f"{path.name} was repaired", "`kept doctor` checks it"
    saved = " and ".join(f"{salvaged.rows.get(name, 0):,} {name}" for name in ("messages", "sessions"))
    lost, damaged = (sum(map(len, names.values())) for names in (salvaged.lost, salvaged.damaged))
    what = f"{path.name} was repaired: {saved} were saved, {lost:,} rows are lost, {damaged:,} damaged"
    return f"{what}; the old file is {aside.name}", "`kept doctor` names what is damaged; a backup may have the rest"


_TABLES_TO_ADD = (
    "SELECT t.name FROM pragma_table_list AS t JOIN earlier.sqlite_schema AS e ON e.name = t.name AND e.type = 'table' "
    "WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.name <> 'state_meta'"
)
"""Without what a file says of itself, such as the version of its search index."""


class Repair:
    """One repair of the file at `path`; it opens and closes the file as it needs."""

    def __init__(self, path: Path, settings: SessionSettings, *, clock: Clock, sink: EventSink) -> None:
        with explain_errors("open", path):
            self._path = resolve_link(path)
        self._settings = settings
        self._clock = clock
        self._sink = sink
        self._report = Repaired()

    def run(self) -> Repaired:
        """Check, repair as little as needed, and check again."""
        finish(self._path)
        if is_foreign(self._path):
            raise ForeignDatabase(f"{str(self._path)!r} belongs to another program", "it is left as it is")
        found = self._report.found = check_file(self._path, clock=self._clock)
        try:
            if self._recover_log():
                found = check_file(self._path, clock=self._clock)
        except DamagedLog:
            create_empty(self._path)  # it may be missing beside its log
            self._salvage()
        else:
            self._repair_or_salvage(found)
        self._report.left = check_file(self._path, clock=self._clock) if self._report.found else []
        return self._report

    def _recover_log(self) -> bool:
        """Recover what SQLite would remove unread, if that is possible without reading rows; return whether it was."""
        done = [settle_names(self._path, may_cut=False)]
        if has_unread_log(self._path):
            done.append(recover_log(self._path, may_cut=False))
        self._report.done += filter(None, done)
        return any(done)

    def _repair_or_salvage(self, found: Sequence[Finding]) -> None:
        self._refuse_what_cannot_be_written()
        if any(not finding.is_lost for finding in found) and not self._rebuild_in_place():
            self._salvage()

    def _refuse_what_cannot_be_written(self) -> None:
        """Raise the reason if the file cannot be written: a full disk is not damage."""
        with suppress(Unreadable), closing(open_state(self._path, self._settings.durability)) as database:
            if database.is_read_only:
                with database.writing():
                    return

    def _store(self, database: Database) -> SqliteSessionStore:
        return SqliteSessionStore(database, self._settings, clock=self._clock, sink=self._sink)

    def _rebuild_in_place(self) -> bool:
        """Rebuild derived tables; False if that was not enough and the file must be salvaged."""
        try:
            with closing(open_state(self._path, self._settings.durability)) as database:
                done = rebuild_damaged(database, sink=self._sink, clock=self._clock)
            left = check_file(self._path, clock=self._clock)
        except StorageError as error:
            log.warning("cannot repair in place: %s", error)
            return False
        is_enough = all(finding.is_lost for finding in left)
        if is_enough:
            self._report.done += done
        return is_enough

    def _salvage(self) -> None:
        """Copy every row that can be read into a new file, which takes the place of the damaged one."""
        replacement = Replacement.of(self._path, f"{self._clock.now():%Y%m%d-%H%M%S}")
        with hold_alone(self._path):
            try:
                replacement.begin()
                self._report.salvaged = self._copy_to(replacement.fresh)
                replacement.swap()
            except BaseException:
                replacement.abandon()
                raise
        self._report.put_aside = replacement.aside
        self._report.done.append(
            f"the damaged file was set aside as {replacement.aside.name} and its readable rows were copied"
        )

    def _copy_to(self, fresh: Path) -> Salvaged:
        recovery = Recovery(self._path, sink=self._sink)
        recovery.copy_to(fresh)
        with closing(open_state(fresh, self._settings.durability)) as database:
            self._add_what_the_log_hides(database, recovery.result)
            recovery.settle(database)
            self._store(database)  # builds the search index
        return recovery.result

    def _add_what_the_log_hides(self, database: Database, salvaged: Salvaged) -> None:
        """Add rows of the state before the damage of the log: it may have moved them to a page that is lost."""
        with open_scratch(self._path.parent) as folder:
            earlier = folder / self._path.name
            try:
                if not copy_before_damage(self._path, earlier):
                    return
                open_state(earlier).close()  # as it is now declared
            except (StorageError, Unreadable, DamagedLog) as error:
                log.warning("the state before the damage of the log cannot be read: %s", error)
                return
            connection = database.connection
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute("ATTACH ? AS earlier", (str(earlier),))
            try:
                with database.writing(with_checksums=False):
                    names = [str(name) for (name,) in connection.execute(_TABLES_TO_ADD).fetchall()]
                    for name in names:
                        if not name.startswith(DERIVED):
                            connection.execute(f"INSERT OR IGNORE INTO main.{name} SELECT * FROM earlier.{name}")  # noqa: S608 - names of our tables
                            salvaged.rows[name] = salvaged.rows.get(name, 0) + connection.changes()
            finally:
                connection.execute("DETACH earlier")
                connection.execute("PRAGMA foreign_keys = ON")

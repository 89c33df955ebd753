"""A SQLite database: one connection per thread, short immediate write transactions, migrations on open."""

import errno
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Literal, TypeAlias
from weakref import WeakSet
from zlib import crc32

import apsw

from wellkept.core.errors import REMEDY, Busy, DamagedLog, ForeignDatabase, NewerDatabase, StorageError, Unreadable
from wellkept.core.regular_files import check_regular, explain_errors, open_regular
from wellkept.storage.connections import (
    CHECKPOINT_PAGES,
    EXCHANGED,
    Checkpointer,
    EmptyDatabase,
    Migration,
    connect_read_only,
    explain_sql_errors,
    has_log,
    is_absent,
    leave_wal,
    migrate,
    open_connection,
    shares_memory,
    sql_migrations,
    use_wal,
)
from wellkept.storage.files import (
    APPLICATION_ID,
    create_empty,
    make_folder,
    resolve_link,
    sync_file,
    sync_folder,
    temporary_name,
    write_durably,
)
from wellkept.storage.locks import is_range_locked, lock_folder, share_byte

if TYPE_CHECKING:
    from wellkept.core.ports import EventSink  # `core.ports` imports every value that it mentions
    from wellkept.storage.row_checksums import CoveredTable


_TURN_MICROSECONDS = 500
"""How long a writer that got its turn may ignore others: handing over the lock costs as much as an append."""
_PATIENCE_MICROSECONDS = 1_500
"""How long a writer lets others go first: the next in line may not be scheduled."""
_OLDEST_MICROSECONDS = 500_000
"""Older marks are ignored: a stopped process must not make others wait again and again."""
_TIME_BITS = 46
"""Two years; the bits above them tell the databases of a folder apart."""


class WriteLock:
    """Begins the write transactions of this process on one database, in the order in which writers came.

    SQLite has no queue: a process that has just released the lock is likely to get it again. So a waiting writer leaves
    a mark: it locks one byte of the folder, at an offset that encodes its time of arrival, and later writers let it go
    first. Marks only decide the order, and end with their process; SQLite's lock alone protects the file. Without marks
    (on systems other than Linux, in a folder that cannot be locked, for other programs) the order is left to chance.
    """

    def __init__(self, path: Path) -> None:
        with suppress(OSError):  # a loop of links: opening the database says so
            path = resolve_link(path)
        self._folder = path.parent
        self._base = (crc32(path.name.encode()) & 0xFFFF) << _TIME_BITS
        self._turn_began = 0

    def begin(self, connection: apsw.Connection, wait_seconds: float) -> None:
        """Begin an immediate transaction; raise BusyError if other writers hold the lock for too long."""
        connection.set_busy_timeout(0)  # SQLite would sleep up to 100 ms, for a lock that an append holds for 0.2 ms
        folder = self._open_folder()
        try:
            came = _now()
            has_turn = came - self._turn_began < _TURN_MICROSECONDS
            if (has_turn or not self._is_behind(folder, came)) and _try_begin(connection):
                return
            self._mark(folder, came)
            self._wait(connection, folder, came=came, wait_seconds=wait_seconds)
            self._turn_began = _now()
        finally:
            if folder is not None:
                os.close(folder)  # releases the mark as well
            connection.set_busy_timeout(int(wait_seconds * 1_000))

    def _wait(self, connection: apsw.Connection, folder: int | None, *, came: int, wait_seconds: float) -> None:
        while True:
            waited = (_now() - came) / 1_000_000
            if waited > wait_seconds:
                _begin(connection)
                return
            if self._is_behind(folder, came):
                pause = 0.0001
            elif _try_begin(connection):
                return
            else:  # poll less often during a long transaction
                pause = 0.00003 if waited < 0.01 else min(0.001, waited / 50)
            time.sleep(pause)

    def _open_folder(self) -> int | None:
        if sys.platform == "linux":
            with suppress(OSError):
                return os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        return None

    def _is_behind(self, folder: int | None, came: int) -> bool:
        """Whether another writer has been waiting for longer, so that it goes first."""
        if folder is None or (now := _now()) - came > _PATIENCE_MICROSECONDS:
            return False
        oldest = max(0, now - _OLDEST_MICROSECONDS)
        return is_range_locked(folder, self._base + oldest, came - oldest)

    def _mark(self, folder: int | None, came: int) -> None:
        if folder is not None:
            share_byte(folder, self._base + came)


def _now() -> int:
    return time.monotonic_ns() // 1_000


def _begin(connection: apsw.Connection) -> None:
    apsw.Cursor(connection).execute("BEGIN IMMEDIATE")  # without rows, and therefore without damaged text


def _try_begin(connection: apsw.Connection) -> bool:
    with suppress(apsw.BusyError, apsw.LockedError):
        _begin(connection)
        return True
    return False


Connection: TypeAlias = apsw.Connection
Durability: TypeAlias = Literal["normal", "full"]

BUSY_SECONDS = 10.0
PAGE_BYTES = 2_048
"""Page size of new files. Half of SQLite's default: each of some forty tables and indexes takes a page when empty."""
_HEADER_BYTES = 100


class Database:
    """One database file, opened once per thread, with its schema brought up to date.

    A file without the mark `application_id` raises ForeignDatabase, one with a newer schema NewerDatabase; neither is
    written. A file in a place that cannot be written (disk full, read-only) can be read, and each write tries again. If
    none can be created, `empty_if_refused` gives an empty one in memory for reads; each write raises the reason.
    """

    def __init__(  # noqa: PLR0913 - all but the path are given by name
        self,
        path: Path,
        *,
        application_id: int,
        migrations: tuple[Migration, ...],
        durability: Durability = "normal",
        read_only: bool = False,
        empty_if_refused: bool = False,
        may_cut_log: bool = True,
    ) -> None:
        self.path = path
        self._application_id = application_id
        self._migrations = migrations
        self._durability = durability
        self._read_only = read_only
        self._empty_if_refused = empty_if_refused
        self._may_cut_log = may_cut_log
        """Whether a damaged log is cut where nothing else can be done here; else DamagedLog is raised."""
        self._empty: EmptyDatabase | None = None
        self.has_written = False
        """Whether a transaction was committed through this object."""
        self.covered: dict[str, CoveredTable] | None = None
        """The tables whose rows get checksums: None if none do, empty until the first write."""
        self._lock: WriteLock | None = None
        self._wrote = 0.0
        self._local = threading.local()
        # weak: a connection lives as long as its thread, and worker threads come and go in a long conversation
        self._all: WeakSet[Connection] = WeakSet()
        self._replaced: list[Connection] = []
        """Connections that could not write, kept until all are closed: a statement may still read with one."""
        self._guard = threading.Lock()
        self._has_wal = True
        """Whether the file system allows a write-ahead log."""
        try:
            with explain_sql_errors(path):
                self._open_first()
        except BaseException:
            self.close()  # the error keeps this object alive: its lock would look like another process
            raise

    @property
    def connection(self) -> Connection:
        """Return this thread's connection."""
        existing: Connection | None = getattr(self._local, "connection", None)
        if existing is None:
            with explain_sql_errors(self.path):
                existing = self._local.connection = self._connect()
        return existing

    @property
    def is_read_only(self) -> bool:
        """Whether this thread can only read: by request, or because the file cannot be written."""
        return self._read_only or self._write_refusal(self.connection) is not None

    @property
    def is_empty(self) -> bool:
        """Whether there is no file and reads go to an empty in-memory database."""
        return self._empty is not None

    def reading(self) -> AbstractContextManager[Connection]:
        """Give this thread's connection for reads in a block; SQLite's errors become StorageErrors."""
        return explain_sql_errors(self.path, self.connection)

    @contextmanager
    def writing(self, *, with_checksums: bool = True) -> Iterator[Connection]:
        """Yield this thread's connection in one immediate transaction; joins one that is already open on this thread.

        Commits at the end, rolls back on an error. Without `with_checksums` changed rows stay without one.
        """
        connection = self._writer()
        if connection.in_transaction:
            from wellkept.storage.row_checksums import pause

            with nullcontext() if with_checksums else pause(connection):
                yield connection
            return
        with explain_sql_errors(self.path):
            self._begin(connection)
            try:
                with self._follow(connection) if with_checksums else nullcontext():
                    yield connection
                apsw.Cursor(connection).execute("COMMIT")
                self.has_written, self._wrote = True, monotonic()
            except BaseException:
                with suppress(apsw.Error):  # a full disk may have rolled back already
                    connection.execute("ROLLBACK")
                raise

    def _begin(self, connection: Connection) -> None:
        """Begin an immediate transaction; writers wait for each other in the order in which they came."""
        # a process that has not just written cannot starve others: most processes need no queue, and do not load it
        if monotonic() - self._wrote > _SERIES_SECONDS:
            connection.set_busy_timeout(0)
            try:
                with suppress(apsw.BusyError, apsw.LockedError):
                    apsw.Cursor(connection).execute("BEGIN IMMEDIATE")  # without rows, so without damaged text
                    return
            finally:
                connection.set_busy_timeout(int(self._wait_seconds * 1_000))
        if self._lock is None:
            self._lock = WriteLock(self.path)
        self._lock.begin(connection, self._wait_seconds)

    def _follow(self, connection: Connection) -> AbstractContextManager[None]:
        from wellkept.storage.row_checksums import follow_changes  # only writes need it

        return nullcontext() if self.covered is None else follow_changes(connection, self.covered)

    @contextmanager
    def limit_wait(self, seconds: float) -> Iterator[Connection]:
        """Yield the connection; inside the block this thread waits `seconds` for other writers, then raises Busy."""
        connection, before = self.connection, self._wait_seconds
        connection.set_busy_timeout(int(seconds * 1_000))
        self._local.wait_seconds = seconds
        try:
            with explain_sql_errors(self.path):
                yield connection
        finally:
            self._local.wait_seconds = before
            connection.set_busy_timeout(int(before * 1_000))

    @property
    def _wait_seconds(self) -> float:
        return float(getattr(self._local, "wait_seconds", BUSY_SECONDS))

    def close(self) -> None:
        """Close every connection; what was committed survives power loss after that.

        SQLite checkpoints the WAL when the last connection to the file closes.
        """
        with self._guard:
            for connection in list(self._all):
                with suppress(apsw.Error):
                    connection.close()
            self._all.clear()
            self._replaced.clear()
        self._local = threading.local()
        self.sync()

    def sync(self) -> None:
        """Make every committed transaction survive power loss, which `full` does with each of them.

        A log that is not there was checkpointed.
        """
        if self.has_written and self._durability != "full":
            log = resolve_link(self.path).with_name(f"{self.path.name}-wal")
            with explain_errors("write", log), suppress(FileNotFoundError):
                sync_file(log)
                sync_folder(log.parent)

    def _open_first(self) -> None:
        self._finish_repair()
        try:
            is_new = self._find_or_create()
        except StorageError as refused:
            if not self._empty_if_refused or not is_absent(self.path) or has_log(self.path):
                raise
            self._empty = EmptyDatabase(refused)
            migrate(self.connection, self._migrations, None)
            return
        if not is_new:
            self._refuse_foreign_header()
        self._has_wal = self._read_only or shares_memory(self.path)
        path = resolve_link(self.path)
        for attempt in range(_ATTEMPTS + 1):  # a damaged log is recovered before, by this process or by another one
            try:
                connection = self._local.connection = self._connect(is_new=is_new)
                break
            except (apsw.BusyError, DamagedLog) as error:
                if attempt == _ATTEMPTS or not self._clear_way(path, error):
                    raise
        if not self._read_only and self._write_refusal(connection) is None:
            migrate(connection, self._migrations, self.path)

    def _clear_way(self, path: Path, error: Exception) -> bool:
        """Remove what kept a file from being opened; return whether it is worth another try."""
        from wellkept.storage.log_recovery import recover_log
        from wellkept.storage.swap import wait_for_repair

        if wait_for_repair(path):
            return True
        if self._read_only or not isinstance(error, DamagedLog):
            return False
        try:
            _warn_recovered(recover_log(path, may_cut=self._may_cut_log))
        except Busy:
            if not wait_for_repair(path):
                raise
        return True

    def _finish_repair(self) -> None:
        """Complete or roll back an interrupted repair before the file is opened."""
        with explain_errors("open", self.path):
            path = resolve_link(self.path)
            is_settled = path.exists() or not any(path.parent.glob(f"{path.name}.salvaged-*"))
            if is_settled and not path.with_name(f"{path.name}.repair").exists():
                return
        from wellkept.storage import swap

        swap.wait_for_repair(path)
        if self._read_only:
            swap.refuse_unfinished(path)
        else:
            swap.finish(path)

    def _find_or_create(self) -> bool:
        """Return whether the file is empty; create it if it is missing."""
        if self._read_only and not self.path.exists():
            raise StorageError(f"there is no database at {str(self.path)!r}", "check the path or the --home")
        with explain_errors("open", self.path):
            path = resolve_link(self.path)
            if not self._read_only and (has_log(path) or path.with_name(f"{path.name}{EXCHANGED}").exists()):
                from wellkept.storage.log_recovery import settle_names

                _warn_recovered(settle_names(path, may_cut=self._may_cut_log))
            elif not self._read_only and path.with_name(f"{path.name}-shm").exists():
                from wellkept.storage.log_recovery import note_lost_log

                if what := note_lost_log(path):
                    log.warning("%s", what, extra={REMEDY: "`kept restore BACKUP` restores what a backup has"})
            is_new = not path.exists() or path.stat().st_size == 0
            if self.path.exists():
                check_regular(self.path, self.path.stat())  # SQLite would wait for a pipe to be written
            else:
                make_folder(path.parent)
                shares_memory(path)
                mark = self._application_id
                data = build(tuple(self._migrations), page_bytes=PAGE_BYTES, application_id=mark)
                create(path, data)
        return is_new

    def _connect(self, *, is_new: bool = False) -> Connection:
        if self._empty is not None:
            self._local.refused = self._empty.refused
            return self._prepare(self._empty.connect())
        self._local.refused = None
        # a repair must not replace the file between its opening and its locking
        with lock_folder(resolve_link(self.path).parent):
            if self._read_only:
                return self._prepare(connect_read_only(self.path))
            try:
                return self._connect_for_writing(is_new=is_new)
            except (apsw.FullError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.IOError) as error:
                if is_new:
                    raise
                return self._connect_for_reading(error)

    def _connect_for_writing(self, *, is_new: bool) -> Connection:
        has_wal = self._has_wal
        if not has_wal:
            leave_wal(self.path)
        with explain_errors("open", self.path):
            connection = open_connection(self.path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(has_wal))  # until the log was checked
            connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
            if is_new:
                connection.pragma("page_size", PAGE_BYTES)
                connection.pragma("application_id", self._application_id)
            else:
                self._refuse_foreign(connection)
            if has_wal:
                use_wal(connection, self.path)
            # with a rollback journal a loss of power could damage the file otherwise
            connection.pragma("synchronous", self._durability if has_wal else "full")
            connection.pragma("secure_delete", "ON")
            connection.pragma("journal_size_limit", CHECKPOINT_PAGES * PAGE_BYTES)
            connection.set_wal_hook(Checkpointer())
            return self._prepare(connection)
        except BaseException:
            connection.close()  # the error keeps it alive: its lock would look like another process
            raise

    def _connect_for_reading(self, refused: apsw.Error) -> Connection:
        """Open a file that cannot be written; raise `refused` if it cannot be read either, or has an older schema."""
        try:
            connection = connect_read_only(self.path)
        except apsw.Error:
            raise refused from None
        newest = self._migrations[-1].version if self._migrations else 0
        if connection.pragma("user_version") != newest:
            connection.close()
            raise refused
        self._local.refused = refused
        return self._prepare(connection)

    def _write_refusal(self, connection: Connection) -> Exception | None:
        """Return why this thread's connection cannot write, or None if it can."""
        assert connection is self._local.connection
        refused: Exception | None = self._local.refused
        return refused

    def _writer(self) -> Connection:
        """Return this thread's connection, reopened if it could not write before."""
        before = self.connection
        if self._write_refusal(before) is None:
            return before
        with explain_sql_errors(self.path):
            connection = self._connect()
            if self._local.refused is not None:
                connection.close()
                raise self._local.refused
        with self._guard:
            self._replaced.append(before)
        self._local.connection = connection
        return connection

    def _prepare(self, connection: Connection) -> Connection:
        with self._guard:
            self._all.add(connection)  # first: closed with the others if the rest fails
        connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
        if self._read_only:
            self._refuse_foreign(connection)
        connection.pragma("foreign_keys", "ON")
        return connection

    def _refuse_foreign_header(self) -> None:
        """Refuse a foreign file by its header: opening it would checkpoint a leftover WAL into it."""
        with explain_errors("read", self.path), open_regular(self.path) as file:
            header = file.read(_HEADER_BYTES)
        if len(header) == _HEADER_BYTES and header.startswith(b"SQLite format 3\0"):
            schema, mark = (int.from_bytes(header[at : at + 4], "big") for at in (40, 68))
            version = int.from_bytes(header[60:64], "big", signed=True)
            self._refuse_mark(mark, version, empty=mark == version == schema == 0)

    def _refuse_foreign(self, connection: Connection) -> None:
        mark, version = int(str(connection.pragma("application_id"))), int(str(connection.pragma("user_version")))
        empty = mark == 0 and version == 0 and not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        try:
            self._refuse_mark(mark, version, empty=empty)
        except StorageError:
            connection.close()
            raise
        if empty and not self._read_only:
            connection.pragma("application_id", self._application_id)

    def _damage_error(self, what: str) -> Unreadable:
        return Unreadable(f"{str(self.path)!r} is damaged: {what}", "run `kept doctor`; it names the repair")

    def _refuse_mark(self, mark: int, version: int, *, empty: bool) -> None:
        if mark != self._application_id and not empty:
            from wellkept.storage.files import declares_our_tables

            if self._application_id == APPLICATION_ID and declares_our_tables(self.path):
                raise self._damage_error("the mark of kept in its header")
            what = f"{str(self.path)!r} belongs to another program"
            raise ForeignDatabase(what, "it is left as it is; choose another --home")
        newest = self._migrations[-1].version if self._migrations else 0
        if not 0 <= version <= newest:
            from wellkept.storage.versions import is_schema_of

            if is_schema_of(self.path, self._migrations):
                what = f"{str(self.path)!r} says that it has schema {version}; its tables are those of schema {newest}"
                remedy = "if a newer kept wrote it, update this one; if not, `kept sessions repair` corrects the number"
                raise Unreadable(what, remedy)
            raise NewerDatabase(
                f"{str(self.path)!r} has schema {version}, this kept knows {newest}",
                "update kept; the file was not touched",
            )


def _warn_recovered(what: str) -> None:
    if what:
        log.warning("%s", what, extra={REMEDY: "remove what is set aside when nothing is missing"})


log = logging.getLogger(__name__)
_ATTEMPTS = 3
"""How often opening is tried while other processes repair the file."""
_SERIES_SECONDS = 0.005  # the longest gap between two transactions of a process that writes continuously
STATE_NAME = "state.db"
FALLBACK_NAME = "kept.db"
"""The file to use where `state.db` belongs to another program."""


def state_migrations() -> tuple[Migration, ...]:
    """Return every migration of the shared file, in order; a tier adds its own as the next number."""
    return sql_migrations("wellkept.storage")


def open_state(
    path: Path,
    durability: Durability = "normal",
    *,
    read_only: bool = False,
    sink: "EventSink | None" = None,
    salvage: Callable[[Path], object] | None = None,
) -> Database:
    """Open the shared database, or `kept.db` next to it if `path` belongs to another program.

    Never writes the foreign file. Warns once, when `kept.db` is created. `salvage` is called for a file whose log is
    so damaged that its rows must be read one by one; without it DamagedLog is raised.
    """
    fallback = path.with_name(FALLBACK_NAME)
    is_first = not fallback.exists()
    open_at = partial(
        Database,
        application_id=APPLICATION_ID,
        migrations=state_migrations(),
        durability=durability,
        read_only=read_only,
        empty_if_refused=not read_only,
        may_cut_log=False,
    )
    database = None
    for place in dict.fromkeys((path, fallback)):
        try:
            database = open_at(place)
        except DamagedLog:
            if salvage is None:
                raise
            salvage(place)
            database = open_at(place)
        except ForeignDatabase:
            if place == fallback:
                raise
            continue
        break
    assert database is not None
    database.covered = {}
    theirs = fallback.with_name(STATE_NAME) if path == fallback else path
    if is_first and database.path == fallback and theirs.exists():
        _announce(theirs, fallback, sink)
    return database


def _announce(foreign: Path, ours: Path, sink: "EventSink | None") -> None:
    message = f"{str(foreign)!r} belongs to another program and is left as it is; sessions go to {ours.name!r}"
    remedy = f"bring its conversations over with `kept import hermes --source {foreign.parent}`"
    if sink is None:
        log.warning("%s; %s", message, remedy)
    else:
        from wellkept.core.events import Warned

        sink(Warned(message, remedy))


_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
"""How file systems say that a file cannot have a second name."""


@lru_cache(maxsize=4)  # a server makes a file for each new user, and the migrations take longer than all the rest
def build(migrations: tuple[Migration, ...], *, page_bytes: int, application_id: int) -> bytes:
    """Return a database without rows, as the bytes of its file."""
    with closing(apsw.Connection(":memory:")) as connection:
        connection.pragma("page_size", page_bytes)
        connection.pragma("application_id", application_id)
        migrate(connection, migrations, None)
        return connection.serialize("main")


def create(path: Path, data: bytes) -> None:
    """Create a database, unless another process does so at the same time.

    It gets its name when it is complete: a file without a byte means that a database was lost, so a kill must not
    leave one.
    """
    make_folder(path.parent)
    temp = temporary_name(path)
    try:
        write_durably(temp, data, mode=0o600)  # journals get the same mode
        with suppress(FileExistsError):
            os.link(temp, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        create_empty(path)
    finally:
        with suppress(OSError):  # the next write in the folder removes it
            temp.unlink(missing_ok=True)

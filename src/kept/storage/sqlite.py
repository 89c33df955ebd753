"""SQLite as we use it: one connection per thread, short immediate writes, errors in our words."""

import logging
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias
from weakref import WeakSet

import apsw

from kept.core.errors import Busy, ForeignDatabase, NewerDatabase, StorageError, Unreadable
from kept.storage.files import explained, make_folder
from kept.storage.log import LOG_PAGES, ShortLog
from kept.storage.migrations import Migration, migrate
from kept.storage.reader import Empty, is_absent, reader, refusal_of

log = logging.getLogger(__name__)

Connection: TypeAlias = apsw.Connection
Durability: TypeAlias = Literal["normal", "full"]

BUSY_SECONDS = 10.0
PAGE_BYTES = 2_048
"""Of new files. Half of SQLite's own: each of some forty tables and indexes has a page even while it is empty."""
_HEADER_BYTES = 100


@contextmanager
def explained_sql(path: Path) -> Iterator[None]:
    """Turn SQLite's complaints about `path` into ours, with the next step."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise Busy(f"{str(path)!r} is busy: {error}", "another process is writing: try again in a moment") from error
    except (apsw.FullError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.IOError) as error:
        raise refusal_of(error, path) from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise Unreadable(f"{str(path)!r} is damaged: {error}", "run `kept doctor`; it names the repair") from error
    except apsw.SQLError as error:
        if "fts5" not in str(error):
            raise
        # an index whose own settings are damaged says that it is no index, or of no known format
        raise Unreadable(f"{str(path)!r} is damaged: {error}", "run `kept doctor`; it names the repair") from error
    except (apsw.PermissionsError, apsw.AuthError) as error:
        raise StorageError(f"cannot use {str(path)!r}: {error}", "check the disk and the permissions") from error


class Database:
    """One database file, opened once per thread, with its schema brought up to date.

    `application_id` marks the file as ours: a file with another mark raises ForeignDatabase, one with
    a newer schema NewerDatabase, and neither is written. Where the place cannot be written (no room, read-only)
    a file that is there is read, and each write tries again: there may be room by then. Where none is there and none
    can be made, `empty_if_refused` lets an empty one in memory be read, and each write raises why.
    """

    def __init__(
        self,
        path: Path,
        *,
        application_id: int,
        migrations: tuple[Migration, ...],
        durability: Durability = "normal",
        read_only: bool = False,
        empty_if_refused: bool = False,
    ) -> None:
        self.path = path
        self._application_id = application_id
        self._migrations = migrations
        self._durability = durability
        self._read_only = read_only
        self._empty_if_refused = empty_if_refused
        self._empty: Empty | None = None
        self.has_written = False
        """Whether something was committed through this object."""
        self._local = threading.local()
        # a connection lives as long as its thread: worker threads come and go in a long conversation
        self._all: WeakSet[Connection] = WeakSet()
        self._guard = threading.Lock()
        with explained_sql(path):
            self._open_first()

    @property
    def connection(self) -> Connection:
        """Return this thread's connection."""
        existing: Connection | None = getattr(self._local, "connection", None)
        if existing is None:
            with explained_sql(self.path):
                existing = self._local.connection = self._connect()
        return existing

    @property
    def is_read_only(self) -> bool:
        """Whether this thread can only read: because that was asked for, or because the place refuses more."""
        return self._read_only or self._refused(self.connection) is not None

    @property
    def is_empty(self) -> bool:
        """Whether there is no file: what is read is an empty one in memory."""
        return self._empty is not None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give the connection for reads; SQLite's complaints become ours."""
        with explained_sql(self.path):
            yield self.connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give the connection inside one immediate transaction: committed at the end, or rolled back whole.

        A unit of work that is already open on this thread is joined, so that several tiers commit together.
        """
        connection = self._writer()
        if connection.in_transaction:
            yield connection
            return
        with explained_sql(self.path):
            _begin_immediate(connection, self._patience_seconds)
            try:
                yield connection
                connection.execute("COMMIT")
                self.has_written = True
            except BaseException:
                with suppress(apsw.Error):  # a full disk may have rolled back already
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def hurrying(self, seconds: float) -> Iterator[Connection]:
        """Give the connection; what this thread does inside waits for other writers at most so long, then is Busy."""
        connection = self.connection
        connection.set_busy_timeout(int(seconds * 1_000))
        self._local.patience_seconds = seconds
        try:
            with explained_sql(self.path):
                yield connection
        finally:
            self._local.patience_seconds = BUSY_SECONDS
            connection.set_busy_timeout(int(BUSY_SECONDS * 1_000))

    @property
    def _patience_seconds(self) -> float:
        return float(getattr(self._local, "patience_seconds", BUSY_SECONDS))

    def close(self) -> None:
        """Close every connection; the last one folds the WAL back into the file."""
        with self._guard:
            for connection in list(self._all):
                with suppress(apsw.Error):
                    connection.close()
            self._all.clear()
        self._local = threading.local()

    def _open_first(self) -> None:
        try:
            is_new = self._found_or_made()
        except StorageError as refused:
            if not self._empty_if_refused or not is_absent(self.path):
                raise
            self._empty = Empty(refused)
            migrate(self.connection, self._migrations, None)
            return
        if not is_new:
            self._refuse_foreign_header()
        connection = self._local.connection = self._connect(is_new=is_new)
        if not self._read_only and self._refused(connection) is None:
            migrate(connection, self._migrations, self.path)

    def _found_or_made(self) -> bool:
        """Return whether the file holds nothing yet; make it where it is missing."""
        if not self._read_only:
            make_folder(self.path.parent)
        elif not self.path.exists():
            raise StorageError(f"there is no database at {str(self.path)!r}", "check the path or the --home")
        with explained("open", self.path):
            is_new = not self.path.exists() or self.path.stat().st_size == 0
            if is_new and not self._read_only:
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its journals the same mode
        return is_new

    def _connect(self, *, is_new: bool = False) -> Connection:
        if self._empty is not None:
            self._local.refused = self._empty.refused
            return self._made_ready(self._empty.opened())
        self._local.refused = None
        if self._read_only:
            return self._made_ready(reader(self.path))
        try:
            return self._opened_for_writing(is_new=is_new)
        except (apsw.FullError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.IOError) as error:
            if is_new:
                raise
            return self._opened_for_reading(error)

    def _opened_for_writing(self, *, is_new: bool) -> Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        with explained("open", self.path):
            connection = apsw.Connection(str(self.path), flags=flags)
        connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
        if is_new:
            connection.pragma("page_size", PAGE_BYTES)
            connection.pragma("application_id", self._application_id)
        else:
            self._refuse_foreign(connection)
        use_wal(connection, self.path)
        connection.pragma("synchronous", self._durability)
        connection.pragma("secure_delete", "ON")
        connection.pragma("journal_size_limit", LOG_PAGES * PAGE_BYTES)
        connection.set_wal_hook(ShortLog())
        return self._made_ready(connection)

    def _opened_for_reading(self, refused: apsw.Error) -> Connection:
        """Open a file that cannot be written; raise why, where it cannot be read either or has an older schema."""
        try:
            connection = reader(self.path)
        except apsw.Error:
            raise refused from None
        newest = self._migrations[-1].version if self._migrations else 0
        if connection.pragma("user_version") != newest:
            connection.close()
            raise refused
        self._local.refused = refused
        return self._made_ready(connection)

    def _refused(self, connection: Connection) -> Exception | None:
        """Return why this thread's connection cannot write, None when it can."""
        assert connection is self._local.connection
        refused: Exception | None = self._local.refused
        return refused

    def _writer(self) -> Connection:
        """Return this thread's connection, opened anew when it could not write before."""
        if self._refused(self.connection) is None:
            return self.connection
        with explained_sql(self.path):
            self._local.connection = self._connect()
            refused = self._refused(self._local.connection)
            if refused is not None:
                raise refused
        return self.connection

    def _made_ready(self, connection: Connection) -> Connection:
        connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
        if self._read_only:
            self._refuse_foreign(connection)
        connection.pragma("foreign_keys", "ON")
        with self._guard:
            self._all.add(connection)
        return connection

    def _refuse_foreign_header(self) -> None:
        """Refuse by the first bytes alone: opening the file would fold its leftover log into it."""
        with explained("read", self.path), self.path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        if len(header) == _HEADER_BYTES and header.startswith(b"SQLite format 3\0"):
            schema, version, mark = (int.from_bytes(header[at : at + 4], "big") for at in (40, 60, 68))
            self._refuse_mark(mark, version, empty=mark == version == schema == 0)

    def _refuse_foreign(self, connection: Connection) -> None:
        mark, version = connection.pragma("application_id"), connection.pragma("user_version")
        assert isinstance(mark, int)
        assert isinstance(version, int)
        empty = mark == 0 and version == 0 and not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        try:
            self._refuse_mark(mark, version, empty=empty)
        except StorageError:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()
            raise
        if empty and not self._read_only:
            connection.pragma("application_id", self._application_id)

    def _refuse_mark(self, mark: int, version: int, *, empty: bool) -> None:
        if mark != self._application_id and not empty:
            raise ForeignDatabase(
                f"{str(self.path)!r} belongs to another program", "it is left as it is; choose another --home"
            )
        newest = self._migrations[-1].version if self._migrations else 0
        if version > newest:
            raise NewerDatabase(
                f"{str(self.path)!r} has schema {version}, this kept knows {newest}",
                "update kept; the file was not touched",
            )


def use_wal(connection: Connection, path: Path) -> None:
    """Switch to the write-ahead log, or to a rollback journal where the file system cannot share memory."""
    with suppress(apsw.BusyError):  # another process is switching or recovering it at this moment
        try:
            if connection.pragma("journal_mode", "wal") == "wal":
                return
        except (apsw.IOError, apsw.CantOpenError):
            pass
        connection.pragma("journal_mode", "delete")
        log.warning("no write-ahead log at %s: readers wait for writers there", path.parent)


def _begin_immediate(connection: Connection, patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except (apsw.BusyError, apsw.LockedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.002, 0.02))  # jitter keeps writers from colliding again
        else:
            return

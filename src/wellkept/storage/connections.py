"""SQLite connections: errors in our words, damaged text, read-only places, and a write-ahead log that stays short."""

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar
from urllib.parse import quote

import apsw
from msgspec import Struct

from wellkept.core import regular_files
from wellkept.core.errors import REMEDY, Busy, StorageError, Unreadable
from wellkept.core.regular_files import explain_errors
from wellkept.core.text import resource_path, resource_text
from wellkept.storage.files import APPLICATION_MARK, create_empty, read_header, resolve_link, temporary_name
from wellkept.storage.locks import POLL_SECONDS, Support, find_support

_ROOM_BYTES = 64 * 1024
"""Twice the space that SQLite needs next to the file before it can read with a write-ahead log."""
_SIGNS_OF_DAMAGE = (
    "fts5",  # a damaged configuration of an index ("no such table", "invalid fts5 file format")
    "no such table",
    "no such column",
    "already exists",  # a version in the header that is older than the schema
    "duplicate column name",
    "malformed database schema",
    "unsupported file format",
    # a damaged declaration of an index, as FTS5 reports its parts
    "parse error in",
    "no such tokenizer",
    "error in tokenizer constructor",
    "unrecognized option",
    "vtable constructor failed",
)
"""SQLite reports damage to the schema as an error of the statement."""


def explain(error: BaseException, path: Path) -> StorageError | None:
    """Return what an error of SQLite about `path` means and what to do next; None for any other error."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return Busy(f"{str(path)!r} is busy: {error}", "another process is writing: try again in a moment")
        case apsw.FullError() | apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.IOError():
            return _describe_refusal(error, path)
        case apsw.CorruptError() | apsw.NotADBError() | UnicodeDecodeError():
            return Unreadable(f"{str(path)!r} is damaged: {error}", "run `kept doctor`; it names the repair")
        case apsw.SQLError() if any(sign in str(error) for sign in _SIGNS_OF_DAMAGE):
            return Unreadable(f"{str(path)!r} is damaged: {error}", "run `kept doctor`; it names the repair")
        case apsw.PermissionsError() | apsw.AuthError():
            return StorageError(f"cannot use {str(path)!r}: {error}", "check the disk and the permissions")
        case _:
            return None


def _describe_refusal(error: apsw.Error, path: Path) -> StorageError:
    """Return why `path` cannot be used; the state of the disk is more precise than SQLite's error code."""
    where = repr(str(path))
    if _is_read_only(path):
        remedy = "choose another folder with --home, or remount it"
        return StorageError(f"cannot write {where}: the file system is read-only", remedy)
    if isinstance(error, apsw.FullError) or is_full(path):
        return StorageError(f"cannot write {where}: the disk is full", "free some space, then try again")
    if isinstance(error, apsw.ReadOnlyError):
        return StorageError(f"cannot write {where}: it is read-only", "check the permissions of the file")
    if isinstance(error, apsw.CantOpenError):
        return StorageError(f"cannot open {where}: {error}", "check the folder and its permissions")
    return StorageError(f"cannot use {where}: {error}", "check the disk and the permissions")


def find_refusal(path: Path) -> StorageError | None:
    """Return why a file cannot be written, as far as can be seen without writing; None if it seems writable."""
    if _is_read_only(path) or is_full(path):
        return _describe_refusal(apsw.IOError(), path)
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return _describe_refusal(apsw.ReadOnlyError(), path)
    return None


def _is_read_only(path: Path) -> bool:
    with explain_errors("reach", path.parent):
        return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)


def is_full(path: Path) -> bool:
    """Return whether the disk has too little room for SQLite to work."""
    with explain_errors("reach", path.parent):
        room = os.statvfs(path.parent)
    return room.f_blocks > 0 and room.f_bavail * room.f_frsize < _ROOM_BYTES  # some file systems report no blocks


log = logging.getLogger(__name__)

CHECKPOINT_PAGES = 8_000
"""About 16 MB: a checkpoint makes one writer wait for the disk, and restarting the log makes all of them wait."""
RESTART_PAGES = 16_000
"""From this size on, other connections have to wait briefly: under steady load the log would only grow."""
RESTART_WAIT_MILLISECONDS = 200
_BETWEEN_CHECKPOINTS = 4_000
_BETWEEN_RESTARTS = 1_000
"""Pages until the next attempt to restart a log that a reader was still using."""


Value: TypeAlias = int | float | bytes | str | None
Values: TypeAlias = tuple[Value, ...]


T = TypeVar("T")
_NO_ROW: Final = object()
"""A sentinel that equals no row, so that `iter` stops only where SQLite ends the rows."""


class DamagedText(str):
    """Text that is not valid UTF-8, with U+FFFD in place of what cannot be read."""

    __slots__ = ()


class TolerantCursor(apsw.Cursor):
    """A cursor that reads text that is not valid UTF-8 as DamagedText; apsw raises UnicodeDecodeError.

    Healthy rows come from SQLite as they are. At the first row that cannot be decoded the query is run again, in the
    same snapshot, with its text as bytes.
    """

    _query = ""
    _bindings: "apsw.Bindings | None" = None
    _given = 0

    def execute(
        self, statements: str, bindings: "apsw.Bindings | None" = None, **options: bool | int
    ) -> "TolerantCursor":
        """Execute `statements`; remembers them with the bindings, in case the rows must be read again."""
        self._query, self._bindings = statements, bindings
        self._given = 0
        super().execute(statements, bindings, **options)  # type: ignore[arg-type]  # options are passed on as they are
        return self

    def __iter__(self) -> Iterator[Values]:  # type: ignore[override]  # callers only iterate
        """Yield every row that was not returned yet."""
        given, step = self._given, super().__next__
        try:
            while True:
                yield step()
                given += 1
        except StopIteration:
            return
        except UnicodeDecodeError as error:
            again = self._read_again(error)
        yield from islice(again, given, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return every row that was not returned yet, in a third of the time that a loop takes."""
        try:
            return list(iter(super().__next__, _NO_ROW))
        except UnicodeDecodeError as error:
            return list(islice(self._read_again(error), self._given, None))

    def fetchone(self) -> Values | None:
        try:
            row = super().fetchone()
        except UnicodeDecodeError as error:
            row = next(islice(self._read_again(error), self._given, None), None)
        self._given += 1
        return row

    def _read_again(self, error: UnicodeDecodeError) -> Iterator[Values]:
        """Return all rows of the last statement, decoded here; raise `error` if it cannot be run as a subquery."""
        columns = [f"c{number}" for number in range(len(self.get_description()))]
        values = ", ".join(f"iif(typeof({name}) = 'text', CAST({name} AS BLOB), {name})" for name in columns)
        kinds = " || ".join(f"(typeof({name}) = 'text')" for name in columns)
        query = self._query.rstrip().rstrip(";")
        # the line break ends a comment at the end of the query
        sql = f"WITH damaged ({', '.join(columns)}) AS ({query}\n) SELECT {kinds}, {values} FROM damaged"  # noqa: S608
        try:
            found = apsw.Cursor(self.connection).execute(sql, self._bindings)
        except apsw.SQLError:  # a PRAGMA or a change
            raise error from None
        return (_decode_text(str(row[0]), row[1:]) for row in found)


def _decode_text(kinds: str, row: Values) -> Values:
    return tuple(
        _decode(value) if kind == "1" and isinstance(value, bytes) else value
        for kind, value in zip(kinds, row, strict=True)
    )


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return DamagedText(data.decode(errors="replace"))


def open_connection(path: Path, flags: int, *, options: str = "") -> apsw.Connection:
    """Open a connection to a file; its cursors read damaged text. `options` are those of an SQLite URI."""
    before = regular_files.identify(path)
    name = f"file:{quote(str(path))}?{options}" if options else str(path)
    connection = _open(name, flags | apsw.SQLITE_OPEN_URI if options else flags)
    regular_files.register(connection, path, before)
    return connection


class _Connection(apsw.Connection):
    """A connection that says when it is closed; while one is open, its file must not be closed outside of SQLite."""

    def close(self, force: bool = False) -> None:
        """Close the connection."""
        super().close(force)
        regular_files.unregister(self)


def _open(name: str, flags: int) -> apsw.Connection:
    connection = _Connection(name, flags=flags)
    connection.cursor_factory = TolerantCursor
    # else SQLite compares bound values with the conditions of partial indexes, and re-prepares such a statement
    # whenever one is bound, which takes five times as long as it runs
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


class Snapshot:
    """A block in which every read of a connection sees the same state of the file."""

    __slots__ = ("_connection", "_is_open")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._is_open = connection.in_transaction

    def __enter__(self) -> None:
        """Begin the block; inside of a transaction there is nothing to do."""
        if not self._is_open:
            apsw.Cursor(self._connection).execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        """End the block."""
        if not self._is_open:  # nothing was written; after a damaged page a commit would fail
            apsw.Cursor(self._connection).execute("ROLLBACK")


def is_writing(connection: apsw.Connection) -> bool:
    """Whether the connection is in a transaction that has changed, or is about to change, the file."""
    return connection.txn_state("main") == apsw.SQLITE_TXN_WRITE


class explain_sql_errors(Generic[T]):  # noqa: N801 - reads as a verb where it is used
    """Turn SQLite's errors about `path` in a block into StorageErrors that say what to do next.

    The block is given `value`. A class, because a search begins a dozen such blocks and a generator takes longer.
    """

    __slots__ = ("_path", "_value")

    def __init__(self, path: Path, value: T = None) -> None:  # type: ignore[assignment]  # most blocks need no value
        self._path = path
        self._value = value

    def __enter__(self) -> T:
        """Begin the block."""
        return self._value

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise what explains an error of the block, if it is one of SQLite's."""
        explained = None if error is None else explain(error, self._path)
        if explained is not None:
            raise explained from error


def connect_read_only(path: Path) -> apsw.Connection:
    """Open a file for reading; without its write-ahead log where no file can be created next to it."""
    if not shares_memory(path):
        leave_wal(path)
    with explain_errors("open", path):
        connection = open_connection(path, apsw.SQLITE_OPEN_READONLY)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError):
        connection.close()
        writable = os.access(path.parent, os.W_OK) and not is_full(path)
        if writable or has_log(path):
            raise
        return open_connection(path, apsw.SQLITE_OPEN_READONLY, options="immutable=1")
    except BaseException:
        connection.close()  # the error keeps it alive, and a repair could not lock the file
        raise
    return connection


EXCHANGED = ".damaged-exchanged"
"""The end of the name of a log while it gets its name back."""


def has_log(path: Path) -> bool:
    """Whether a database has a log that is not empty."""
    wal = path.with_name(f"{path.name}-wal")
    return wal.exists() and wal.stat().st_size > 0


def is_emptied(path: Path) -> bool:
    """Whether a file exists and is empty, and its log too."""
    with explain_errors("open", path):
        return path.is_file() and path.stat().st_size == 0 and not has_log(path)


class EmptyDatabase:
    """An empty in-memory database, shared by all threads, in place of a file that cannot be created."""

    def __init__(self, refused: StorageError) -> None:
        self.refused = refused
        self._name = f"file:/kept-{id(self)}?vfs=memdb"
        self._first = self.connect()  # SQLite frees the database with its last connection

    def connect(self) -> apsw.Connection:
        """Open another connection to the same database."""
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        return _open(self._name, flags)


def is_absent(path: Path) -> bool:
    """Whether `path` certainly does not exist; a path that cannot be reached may exist."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


_MODES = slice(18, 20)
"""Where the header says how the file is written and read: 1 with a rollback journal, 2 with a write-ahead log."""
_SWITCH_SECONDS = 10.0


def shares_memory(path: Path) -> bool:
    """Whether a write-ahead log can be used beside a file; warn once where it cannot.

    Raise StorageError where bytes of a file cannot be locked: SQLite would take that for another process that writes.
    """
    with explain_errors("open", path):
        spare = temporary_name(resolve_link(path))
    support = find_support(spare)
    if support is Support.NO_LOCKS:
        what = f"the file system of {str(path.parent)!r} cannot lock parts of a file, which SQLite needs"
        remedy = "mount it with locks (NFS: start the lock service), or choose a local disk with --home"
        raise StorageError(what, remedy)
    if support is Support.LOCKS_ONLY and (device := path.parent.stat().st_dev) not in _warned:
        _warned.add(device)
        remedy = "it works as it is; a local disk is faster"
        what = "no write-ahead log at %s, whose file system has no shared memory: readers wait for writers there"
        log.warning(what, path.parent, extra={REMEDY: remedy})
    return support is Support.FULL


_warned: set[int] = set()
"""The devices without shared memory that were reported."""


def use_wal(connection: apsw.Connection, path: Path) -> None:
    """Switch to the write-ahead log, and check the one that is there: SQLite would remove what it cannot read.

    Until then closing the connection leaves the log alone.
    """
    with suppress(apsw.BusyError):  # another process is switching or recovering it at this moment
        connection.pragma("journal_mode", "wal")
        if has_log(path):
            from wellkept.salvage.write_ahead import check_log  # a log is left by a process that died

            check_log(connection, path)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


def leave_wal(path: Path) -> None:
    """Switch one of our files to a rollback journal, where it came with a write-ahead log; raise DamagedLog as usual.

    Where memory cannot be shared, one process alone can use a log: it keeps the index of the log to itself.
    """
    header = read_header(path)
    if header[_MODES] != b"\2\2" or header[68:72] != APPLICATION_MARK:
        return
    deadline = monotonic() + _SWITCH_SECONDS
    while True:
        try:
            _switch_alone(path)
        except apsw.BusyError:
            if monotonic() > deadline:
                raise
            sleep(POLL_SECONDS)
        else:
            return


def _switch_alone(path: Path) -> None:
    from wellkept.salvage.write_ahead import check_log

    connection = open_connection(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("locking_mode", "exclusive")
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        if has_log(path):
            check_log(connection, path)
        connection.pragma("journal_mode", "delete")
    finally:
        connection.close()


class Checkpointer:
    """The WAL hook of one connection: SQLite calls it after each commit with the number of pages in the log."""

    def __init__(self) -> None:
        self._next = CHECKPOINT_PAGES

    def __call__(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """Run a checkpoint if the log has grown enough since the last one, also by another process."""
        if pages < CHECKPOINT_PAGES:
            self._next = CHECKPOINT_PAGES
        elif pages >= self._next:
            self._next = pages + (_BETWEEN_CHECKPOINTS if pages < RESTART_PAGES else _BETWEEN_RESTARTS)
            try:
                if pages - connection.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_NOOP)[1] >= _BETWEEN_CHECKPOINTS:
                    connection.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_PASSIVE)
                if pages >= RESTART_PAGES:
                    _restart_log(connection, name)  # others then wait only for the pages that are still to be copied
            except (apsw.BusyError, apsw.LockedError):
                pass  # a reader holds an older snapshot: try again later
            except apsw.Error as error:
                # the commit is safe in the log: an error from here would report it as failed
                log.warning("the write-ahead log could not be copied into the database: %s", error)
        return apsw.SQLITE_OK


def _restart_log(connection: apsw.Connection, name: str) -> None:
    usual_milliseconds = int(str(connection.pragma("busy_timeout")))
    connection.set_busy_timeout(RESTART_WAIT_MILLISECONDS)
    try:
        connection.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_RESTART)
    finally:
        connection.set_busy_timeout(usual_milliseconds)


_NAME = re.compile(r"^-- name: (\w+)(, short)?\s*$", re.MULTILINE)


class Statement(str):
    """One statement of a `.sql` file, in a text for both databases or in two that stand side by side.

    The text is SQLite's as it stands. What is written as `/*! ... */` is a comment for SQLite and a part of the
    statement on PostgreSQL, where all tables have the columns `tenant` and `user_id` and every statement names them:

        SELECT value FROM notes WHERE /*! tenant = :tenant AND user_id = :user AND */ session_id = ?

    A unit of work on PostgreSQL binds `:tenant` and `:user` itself. Where the dialects differ in more than that, the
    statement of the same name in `FILE.postgres.sql` is used there.
    """

    __slots__ = ("_file", "is_short", "name")
    _file: "Statements"
    name: str
    is_short: bool
    """Whether it takes milliseconds at any size: as the first of a transaction it is sent with the beginning of it."""

    def __new__(cls, text: str, file: "Statements", name: str, *, is_short: bool) -> Self:
        """Make a statement of a file."""
        made = super().__new__(cls, text)
        made._file, made.name, made.is_short = file, name, is_short
        return made

    @property
    def for_server(self) -> "Statement":
        """The statement as it is written for PostgreSQL."""
        return self._file.for_server.get(self.name, self)


class Statements:
    """The statements of one file, as attributes."""

    def __init__(self, package: str, file: str) -> None:
        self._package, self._file = package, file
        self.by_name = self._read(file)
        self.__dict__.update(self.by_name)

    def _read(self, file: str) -> dict[str, Statement]:
        _, *pieces = _NAME.split(resource_text(self._package, file))
        return {
            name: Statement(text.strip().rstrip(";"), self, name, is_short=bool(short))
            for name, short, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
        }

    @cached_property
    def for_server(self) -> dict[str, Statement]:
        """Those that PostgreSQL needs in other words."""
        file = self._file.replace(".sql", ".postgres.sql")
        return self._read(file) if resource_path(self._package, file).is_file() else {}

    def __getattr__(self, name: str) -> Statement:
        raise AttributeError(f"no statement {name!r} in {self._package}/{self._file}")


@cache
def statements(package: str, file: str) -> Statements:
    """Return the statements of `file` in `package`."""
    return Statements(package, file)


Step: TypeAlias = str | Callable[[apsw.Connection], None]


class Migration(Struct, frozen=True):
    """One step of a schema; with `rewrites`, the file is backed up before the step runs."""

    version: int
    step: Step
    rewrites: bool = False


def sql_migrations(package: str, folder: str = "migrations") -> tuple[Migration, ...]:
    """Return the migrations of `package`, files `NNNN_name.sql`; a first line `-- rewrites` requests a backup."""
    found = []
    for file in resource_path(package, folder).iterdir():
        number, _, rest = file.name.partition("_")
        if number.isdigit() and rest.endswith(".sql"):
            text = file.read_text(encoding="utf-8")
            found.append(Migration(int(number), text, rewrites=text.startswith("-- rewrites")))
    assert len({each.version for each in found}) == len(found), f"two migrations of {package} have the same number"
    return tuple(sorted(found, key=lambda migration: migration.version))


def migrate(connection: apsw.Connection, migrations: Sequence[Migration], path: Path | None) -> None:
    """Bring the database up to date; each step is one transaction and sets its version.

    `path` is None for an in-memory database, which is not backed up.
    """
    newest = migrations[-1].version if migrations else 0
    if _version(connection) >= newest:
        return
    for migration in migrations:
        if _version(connection) >= migration.version:
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            _apply(connection, migration, path)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(apsw.Error):  # a full disk may have rolled back already
                connection.execute("ROLLBACK")
            raise


def _apply(connection: apsw.Connection, migration: Migration, path: Path | None) -> None:
    if _version(connection) >= migration.version:
        return  # another process migrated while this one waited for the lock
    if migration.rewrites and path is not None:
        _back_up(path, path.with_name(f"{path.name}.before-{migration.version}"))
    if callable(migration.step):
        migration.step(connection)
    else:
        connection.execute(migration.step)
    connection.pragma("user_version", migration.version)


def _version(connection: apsw.Connection) -> int:
    version = connection.pragma("user_version")
    assert isinstance(version, int)
    return version


def _back_up(path: Path, target: Path) -> None:
    """Copy the file through a second connection: SQLite cannot back up the one that holds the write lock."""
    create_empty(target)
    source = open_connection(path, apsw.SQLITE_OPEN_READONLY)
    copy = open_connection(target, apsw.SQLITE_OPEN_READWRITE)
    with copy.backup("main", source, "main") as backup:
        backup.step()
    copy.close()
    source.close()

"""Files that are replaced atomically and durably, and OS errors that say what to do next.

The only way in which files are written, renamed and made, because a command must not report a change that a loss of
power would take away. A single file: `write_atomically` or `open_replacement`. A folder: build it in a scratch folder
with any of the plain functions, then `publish` it. What is durable already: `move`.
"""

import errno
import logging
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from wellkept.core.errors import REMEDIES, REMEDY, Busy, StorageError, Unreadable, explain_errors
from wellkept.core.ids import random_hex
from wellkept.core.regular_files import close_descriptor, open_for_update, open_regular
from wellkept.storage.os_locks import NoLocks, try_lock

APPLICATION_MARK = b"KEPT"
"""Application id in the header of each of our databases; here because `config.home` must not load SQLite."""
APPLICATION_ID = int.from_bytes(APPLICATION_MARK, "big")

SCRATCH_FOLDER = ".unfinished"
"""Where `storage.scratch` makes folders below a root."""
_RENAME_FORBIDDEN = {errno.EBUSY, errno.EXDEV}
_TEMP_MARK = ".kept-tmp-"


def make_folder(path: Path, *, mode: int = 0o700) -> None:
    """Create `path` and its missing parents with this mode; their names survive power loss."""
    with explain_errors("create the folder", path):
        if path.is_dir():
            return
        missing = []
        for folder in (path, *path.parents):
            if folder.exists():
                break
            missing.append(folder)
        for folder in reversed(missing):
            folder.mkdir(mode=mode, exist_ok=True)
            sync_folder(folder.parent)
        if not path.is_dir():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def read_bytes(path: Path) -> bytes | None:
    """Return the bytes of `path`, or None if it does not exist; raise Unreadable if it cannot be read.

    Only regular files are read: a pipe or a device in the place of a file would never end.
    """
    found = read_with_stamp(path)
    return None if found is None else found[0]


def read_with_stamp(path: Path) -> tuple[bytes, int] | None:
    """Return what `read_bytes` returns, and when the file was last written, in nanoseconds."""
    try:
        with open_regular(path, buffering=0) as file:  # a buffered file makes four more system calls
            return file.read(), os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return None
    except ValueError as error:  # a name with a zero byte, or not in UTF-8
        raise Unreadable(f"cannot read {str(path)!r}: {error}", "check the name") from error
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "check the file")
        raise Unreadable(f"cannot read {str(path)!r}: {error.strerror or error}", remedy) from error


def write_atomically(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace the bytes of `path`: readers see the old or the new bytes, and after a return they survive power loss.

    The order matters: write and fsync a temporary file, rename it, fsync the folder. Follows a symlink to its target
    and keeps the mode of an existing file. Writes in place only where the file system forbids a rename over the
    target (bind mounts).
    """
    with explain_errors("write", path):
        target = resolve_link(path)
        with suppress(FileNotFoundError):
            existing = target.stat().st_mode
            if stat.S_ISDIR(existing):
                what = f"cannot write {str(path)!r}: there is a folder in its place"
                raise StorageError(what, REMEDIES[errno.EISDIR])
            mode = stat.S_IMODE(existing)
        remove_stale_temps(target)
        temp = temporary_name(target)
        try:
            write_durably(temp, data, mode=mode)
            _replace(temp, target, data)
        except BaseException:
            with suppress(OSError):  # the first error says more
                temp.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)


def temporary_name(target: Path) -> Path:
    """Return a new name beside `target`; `remove_stale_temps` recognises it when this process was killed."""
    return target.with_name(f".{target.name}{_TEMP_MARK}{os.getpid()}-{random_hex(4)}")


def resolve_link(path: Path) -> Path:
    """Return the target of a symlink; raise OSError for a loop."""
    try:
        return path.resolve() if path.is_symlink() else path
    except RuntimeError as error:  # how pathlib reports a loop of links
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error


def write_durably(path: Path, data: bytes, *, mode: int) -> None:
    """Write a file in place; after a return its bytes survive power loss."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), mode)
    with os.fdopen(descriptor, "wb") as file:
        with suppress(OSError):
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:  # the umask, or a file that was there
                path.chmod(mode)  # some file systems have no modes
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _replace(temp: Path, target: Path, data: bytes) -> None:
    try:
        temp.replace(target)
    except OSError as error:
        if error.errno not in _RENAME_FORBIDDEN:
            raise
        with update_in_place(target) as file:
            file.write(data)
            file.truncate()
        with suppress(OSError):  # the data is in its place, and the next write removes the temporary file
            temp.unlink(missing_ok=True)


@contextmanager
def update_in_place(path: Path) -> Iterator[BinaryIO]:
    """Open an existing file for reading and writing; what was written survives power loss."""
    descriptor = open_for_update(path)
    try:
        with os.fdopen(descriptor, "r+b", closefd=False) as file:
            yield file
        os.fsync(descriptor)
    finally:
        close_descriptor(descriptor)


@contextmanager
def open_replacement(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that durably takes the place of `path` when the block ends without an error.

    A pipe or a device at `path` is written to as it is.
    """
    with explain_errors("write", path):
        target = resolve_link(path)
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                yield file
            return
        temp = temporary_name(target)
        try:
            with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temp.replace(target)
        except BaseException:
            with suppress(OSError):  # the first error says more
                temp.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)


def remove(path: Path) -> None:
    """Remove a file, if it is there; it does not come back after a loss of power."""
    with explain_errors("remove", path):
        try:
            path.unlink()
        except FileNotFoundError:
            return
        sync_folder(path.parent)


def move(source: Path, target: Path) -> None:
    """Give a file or folder whose bytes are durable another name; the name survives power loss, too."""
    make_folder(target.parent)
    with explain_errors("move", source):
        source.replace(target)
        for folder in {target.parent, source.parent}:
            sync_folder(folder)


def publish(source: Path, target: Path) -> None:
    """Move a folder that was built elsewhere to its place; readers see all of it or nothing, also after power loss."""
    sync_tree(source)
    move(source, target)


def sync_tree(folder: Path) -> None:
    """Make all files below a folder survive power loss."""
    with explain_errors("write", folder):
        for base, _folders, names in os.walk(folder, topdown=False):
            for name in names:
                file = Path(base, name)
                if stat.S_ISREG(file.lstat().st_mode):  # a link is part of its folder
                    sync_file(file)
            sync_folder(Path(base))


def copy_bytes(source: Path | str, target: Path | str) -> None:
    """Write the bytes and the mode of a file to another one, not durably; raise OSError if that fails."""
    with open_regular(Path(source)) as original, Path(target).open("wb") as copy:
        shutil.copyfileobj(original, copy)
    shutil.copystat(source, target)


def sync_file(path: Path) -> None:
    """Make the bytes of a file survive power loss."""
    with open_regular(path, buffering=0) as file:
        os.fsync(file.fileno())


def create_empty(path: Path) -> None:
    """Create an empty file with mode 0600, unless there is one."""
    with explain_errors("write", path), suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive power loss, where the system supports it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def remove_stale_temps(path: Path) -> None:
    """Remove the temporary files that killed writers left beside `path`, its own and those of its neighbours."""
    with suppress(OSError):
        target = resolve_link(path)
        for name in filter(is_stale_temp, os.listdir(target.parent)):  # noqa: PTH208 - names, not paths
            target.with_name(name).unlink(missing_ok=True)


def is_stale_temp(name: str) -> bool:
    """Whether a file name is that of a temporary file whose writer was killed."""
    pid = name.rpartition(_TEMP_MARK)[2].partition("-")[0]
    return _TEMP_MARK in name and not (pid.isdecimal() and is_alive(int(pid)))


def is_alive(pid: int) -> bool:
    """Whether a process with this id is running."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


log = logging.getLogger(__name__)

POLL_SECONDS = 0.005
_warned: set[int] = set()
"""The devices without locks that were reported."""


@contextmanager
def hold_lock(sidecar: Path, *, timeout_seconds: float = 10.0) -> Iterator[None]:
    """Hold the lock on `sidecar`, a file that is never deleted; raise Busy with the holder's pid on timeout.

    Where the file system does not support locks, the block runs after one warning: atomic replacement still
    protects readers.
    """
    make_folder(sidecar.parent)
    with explain_errors("open the lock file", sidecar):
        descriptor = os.open(sidecar, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _acquire(descriptor, sidecar, timeout_seconds)
        _write_holder(descriptor, str(os.getpid()))
        try:
            yield
        finally:
            _write_holder(descriptor, "")  # the next holder may be a program that writes no pid
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, sidecar: Path, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not _try_lock(descriptor, sidecar):
        if time.monotonic() >= deadline:
            raise Busy(
                f"{str(sidecar)!r} is locked by {_holder(descriptor)} for more than {timeout_seconds:g} s",
                "wait for that process or end it, then try again",
            )
        time.sleep(POLL_SECONDS)


def _try_lock(descriptor: int, sidecar: Path) -> bool:
    """Lock an open file without waiting; return whether it is locked, or the file system has no locks."""
    try:
        return try_lock(descriptor)
    except NoLocks as error:
        _warn_once(sidecar, error)
        return True


def take_lock_file(path: Path) -> int | None:
    """Create and lock a file that exists only while it is locked; None while another process has it."""
    make_folder(path.parent)
    while True:
        with explain_errors("open the lock file", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _try_lock(descriptor, path):
            os.close(descriptor)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)  # its last holder has removed it meanwhile, and others lock a new file


def remove_lock_file(path: Path, descriptor: int) -> None:
    """Remove a file that `take_lock_file` created, while it is locked, and unlock it."""
    with suppress(OSError):
        path.unlink()
    os.close(descriptor)


def _warn_once(sidecar: Path, error: NoLocks) -> None:
    device = sidecar.stat().st_dev
    if device not in _warned:
        _warned.add(device)
        log.warning(
            "no file locks at %s (%s): two writers at once may undo each other's edit",
            sidecar.parent, error.strerror, extra={REMEDY: "edit from one process at a time, or use a local disk"},
        )  # fmt: skip


def _write_holder(descriptor: int, pid: str) -> None:
    with suppress(OSError):  # a full disk must not prevent an edit that makes a page smaller
        os.ftruncate(descriptor, 0)
        if pid:
            os.pwrite(descriptor, pid.encode(), 0)


def _holder(descriptor: int) -> str:
    with suppress(OSError):
        pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        if pid.isdecimal() and is_alive(int(pid)):
            return f"process {pid}"
    return "another process"


FOLDER_WAIT_SECONDS = 30.0
"""Longer than the ten seconds for which a process that opens a database may hold the folder."""


@contextmanager
def lock_folder(folder: Path, *, exclusive: bool = False) -> Iterator[None]:
    """Hold a shared or exclusive lock on a folder, so that no process replaces a file while another opens it.

    Where folders cannot be locked, the block runs without a lock.
    """
    descriptor = -1
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        if descriptor >= 0:
            with suppress(NoLocks):
                _wait_for_folder(descriptor, folder, exclusive=exclusive)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _wait_for_folder(descriptor: int, folder: Path, *, exclusive: bool) -> None:
    deadline = time.monotonic() + FOLDER_WAIT_SECONDS
    while not try_lock(descriptor, shared=not exclusive):
        if time.monotonic() > deadline:
            message = f"another process is opening or replacing a database in {str(folder)!r}"
            raise Busy(message, "wait until it has ended, then try again")
        time.sleep(POLL_SECONDS)


HEADER_BYTES = 100
MAGIC = b"SQLite format 3\0"
_MARKS = (
    b"CREATE TABLE index_queue",
    b"CREATE TABLE tombstones",
    b"CREATE TABLE blob_uses",
    b"CREATE TABLE carried",
    b"CREATE TRIGGER messages_added",
    b"CREATE TABLE state_meta",
)
"""Declarations in every version of our schema, and in no other program that we know of."""
_ENOUGH = 3
_SEARCHED_BYTES = 4_000_000
"""The schema is among the first pages: it is written before anything else, also by a VACUUM."""


def read_header(path: Path) -> bytes:
    """Return the first hundred bytes of a file; fewer if it is shorter or cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(HEADER_BYTES)
    except OSError:
        return b""


def is_foreign(path: Path) -> bool:
    """Whether an SQLite file with content belongs to another program.

    The mark alone does not decide: one damaged bit in it must not make our file a foreign one.
    """
    header = read_header(path)
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC[:15]):
        return False
    has_schema = header[40:44] != bytes(4)
    return has_schema and header[68:72] != APPLICATION_MARK and not declares_our_tables(path)


def declares_our_tables(path: Path) -> bool:
    """Whether the beginning of a file or of its log declares tables of ours."""
    found: set[bytes] = set()
    for file in (path, path.with_name(f"{path.name}-wal")):
        try:
            with open_regular(file) as opened:
                beginning = opened.read(_SEARCHED_BYTES)
        except OSError:
            continue
        found |= {mark for mark in _MARKS if mark in beginning}
    return len(found) >= _ENOUGH


def find_project(folder: str | Path | None) -> str | None:
    """Return the repository that a working folder is in, or the folder itself; None if there can be no such folder."""
    if folder is None or "\0" in str(folder):
        return None
    path = Path(folder)
    try:
        os.fsencode(path)
        return str(next((one for one in (path, *path.parents) if (one / ".git").exists()), path))
    except OSError:
        return str(folder)
    except UnicodeEncodeError:
        return None

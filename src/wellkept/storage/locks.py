"""Locks of the operating system on files and folders, and what of them a file system supports.

The only module that imports `fcntl` or `msvcrt`; both are missing somewhere. SQLite takes its own locks.
"""

import errno
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from struct import pack, unpack_from

from wellkept.core.errors import REMEDY, Busy
from wellkept.core.regular_files import explain_errors
from wellkept.storage.files import is_alive, make_folder

try:
    import fcntl
except ImportError:  # Windows, and some builds of Python
    HAS_FCNTL = False
else:
    HAS_FCNTL = True
if sys.platform == "win32":  # pragma: no cover
    import msvcrt

_FLOCK = "hhqqi4x"
"""Linux's `struct flock`: type, whence, start, length, process."""
_SHARED_MEMORY_BYTES = 32_768
_MEMORY_LOCKS = (120, 8)
"""The bytes of the file of shared memory that SQLite locks."""
_DATABASE_LOCK = (0x40000000, 1)
"""The first byte that SQLite locks in a database."""
_HELD = {errno.EACCES, errno.EAGAIN, errno.EDEADLK, errno.EINTR}
"""How systems say that another process holds a lock, or that the call was interrupted."""


class NoLocks(OSError):
    """This file system, or this Python, has no such locks."""


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock a whole file until the descriptor is closed; False while another process holds it."""
    try:
        if sys.platform == "win32":  # pragma: no cover
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        elif HAS_FCNTL:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        else:
            raise NoLocks(errno.ENOSYS, os.strerror(errno.ENOSYS))
    except OSError as error:
        if isinstance(error, NoLocks) or error.errno not in _HELD:
            raise NoLocks(error.errno, error.strerror) from error
        return False
    return True


def try_range(descriptor: int, start: int, length: int) -> bool:
    """Lock a range of a file for this process alone; False while another process holds a part of it.

    On Linux the lock belongs to the open file, not to the process: it stays when the file is read and closed
    meanwhile.
    """
    if not HAS_FCNTL:
        raise NoLocks(errno.ENOSYS, os.strerror(errno.ENOSYS))
    try:
        if sys.platform == "linux":
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))
        else:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
    except OSError as error:
        if error.errno not in _HELD:
            raise NoLocks(error.errno, error.strerror) from error
        return False
    return True


def is_range_locked(descriptor: int, start: int, length: int) -> bool:
    """Whether anybody holds a lock in a range; False where that cannot be asked."""
    if sys.platform != "linux" or not HAS_FCNTL:
        return False
    asked = pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    with suppress(OSError):
        return bool(unpack_from("h", fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)
    return False


def share_byte(descriptor: int, place: int) -> None:
    """Hold a shared lock on one byte until the descriptor is closed, where that is possible."""
    if sys.platform == "linux" and HAS_FCNTL:
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, place, 1, 0))


class Support(StrEnum):
    """What a file system supports of what SQLite needs."""

    FULL = "locks and shared memory"
    LOCKS_ONLY = "locks, and no memory that processes share: no write-ahead log"
    NO_LOCKS = "no locks on bytes of a file"


_found: dict[int, Support] = {}
"""By device: a process finds it out once."""


def find_support(spare: Path) -> Support:
    """Return what the file system of a folder supports; `spare` is a name in it that nothing has.

    Tried with a file of the kind that SQLite makes beside a database with a write-ahead log, because file systems fail
    at different points: when it is created, locked or mapped. Where no file can be created, FULL is returned, and
    SQLite reports what is wrong.
    """
    if sys.platform == "win32" or not HAS_FCNTL:
        return Support.FULL
    try:
        device = spare.parent.stat().st_dev
        if device not in _found:
            _found[device] = _probe(spare, spare.with_name(f"{spare.name}-shm"))
    except OSError:
        return Support.FULL
    return _found[device]


def _probe(database: Path, memory: Path) -> Support:
    import mmap  # once per process

    with _new_file(database) as descriptor:
        if not _can_lock(descriptor, *_DATABASE_LOCK):
            return Support.NO_LOCKS
    try:
        with _new_file(memory) as descriptor:
            os.ftruncate(descriptor, _SHARED_MEMORY_BYTES)
            if not _can_lock(descriptor, *_MEMORY_LOCKS):
                return Support.LOCKS_ONLY
            mmap.mmap(descriptor, _SHARED_MEMORY_BYTES).close()
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EROFS}:
            raise  # says nothing about memory
        return Support.LOCKS_ONLY
    return Support.FULL


@contextmanager
def _new_file(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        yield descriptor
    finally:
        path.unlink()
        os.close(descriptor)


def _can_lock(descriptor: int, start: int, length: int) -> bool:
    """Whether a lock of the process, as SQLite takes them, can be had on a file that nobody else knows."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
    except OSError:
        return False
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
        deadline = time.monotonic() + timeout_seconds
        while not _try_lock(descriptor, sidecar):
            if time.monotonic() >= deadline:
                raise Busy(
                    f"{str(sidecar)!r} is locked by {_holder(descriptor)} for more than {timeout_seconds:g} s",
                    "wait for that process or end it, then try again",
                )
            time.sleep(POLL_SECONDS)
        _write_holder(descriptor, str(os.getpid()))
        try:
            yield
        finally:
            _write_holder(descriptor, "")  # the next holder may be a program that writes no pid
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, sidecar: Path) -> bool:
    """Lock an open file without waiting; return whether it is locked, or the file system has no locks."""
    try:
        return try_lock(descriptor)
    except NoLocks as error:
        device = sidecar.stat().st_dev
        if device not in _warned:
            _warned.add(device)
            log.warning(
                "no file locks at %s (%s): two writers at once may undo each other's edit",
                sidecar.parent, error.strerror, extra={REMEDY: "edit from one process at a time, or use a local disk"},
            )  # fmt: skip
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
                deadline = time.monotonic() + FOLDER_WAIT_SECONDS
                while not try_lock(descriptor, shared=not exclusive):
                    if time.monotonic() > deadline:
                        message = f"another process is opening or replacing a database in {str(folder)!r}"
                        raise Busy(message, "wait until it has ended, then try again")
                    time.sleep(POLL_SECONDS)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)

"""File locks between processes; the kernel frees a lock when its process ends."""

import errno
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kept.core.errors import Busy
from kept.storage.files import explain_errors, is_alive, make_folder

if sys.platform == "win32":  # pragma: no cover
    import msvcrt
else:
    import fcntl

log = logging.getLogger(__name__)

POLL_SECONDS = 0.005
_NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EOPNOTSUPP}
_warned: set[Path] = set()


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
                "wait for that process or end it, then try again; nothing was changed",
            )
        time.sleep(POLL_SECONDS)


def _try_lock(descriptor: int, sidecar: Path) -> bool:
    try:
        if sys.platform == "win32":  # pragma: no cover
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS_HERE:
            _warn_once(sidecar)
            return True
        return False
    return True


def _warn_once(sidecar: Path) -> None:
    if sidecar not in _warned:
        _warned.add(sidecar)
        log.warning("no file locks at %s: two writers at once may undo each other's edit", sidecar.parent)


def _write_holder(descriptor: int, pid: str) -> None:
    with suppress(OSError):  # a full disk must not prevent an edit that makes a page smaller
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, pid.encode(), 0)


def _holder(descriptor: int) -> str:
    with suppress(OSError):
        pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        if pid.isdecimal() and is_alive(int(pid)):
            return f"process {pid}"
    return "another process"

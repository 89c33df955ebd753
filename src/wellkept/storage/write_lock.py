"""The wait of writers for SQLite's write lock, in the order in which they came.

SQLite has no queue: a process that has just released the lock is likely to get it again. So a waiting writer leaves a
mark: it locks one byte of the folder, at an offset that encodes its time of arrival, and later writers let it go
first. Marks only decide the order, and end with their process; SQLite's lock alone protects the file. Without marks
(on systems other than Linux, in a folder that cannot be locked, for other programs) the order is left to chance.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import apsw

from wellkept.storage.files import resolve_link
from wellkept.storage.os_locks import is_range_locked, share_byte

_TURN_MICROSECONDS = 500
"""How long a writer that got its turn may ignore others: handing over the lock costs as much as an append."""
_PATIENCE_MICROSECONDS = 1_500
"""How long a writer lets others go first: the next in line may not be scheduled."""
_OLDEST_MICROSECONDS = 500_000
"""Older marks are ignored: a stopped process must not make others wait again and again."""
_TIME_BITS = 46
"""Two years; the bits above them tell the databases of a folder apart."""


class WriteLock:
    """Begins the write transactions of this process on one database."""

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

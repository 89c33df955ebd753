"""Databases in places that cannot be written: read as far as that goes, and the reason in words."""

import os
from pathlib import Path
from urllib.parse import quote

import apsw

from kept.core.errors import StorageError
from kept.storage.files import explained

_ROOM_BYTES = 64 * 1024
"""What SQLite needs beside the file before it can read with a write-ahead log, twice over."""


def reader(path: Path) -> apsw.Connection:
    """Open a file for reading; where nothing can be made beside it, without the log that would have to stand there."""
    with explained("open", path):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError):
        connection.close()
        writable = os.access(path.parent, os.W_OK) and not _is_full(path)
        if writable or _has_log(path):
            raise
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return apsw.Connection(f"file:{quote(str(path))}?immutable=1", flags=flags)
    return connection


class Empty:
    """An empty database in memory, which every thread of this process sees, in place of a file that cannot be made."""

    def __init__(self, refused: StorageError) -> None:
        self.refused = refused
        self._name = f"file:/kept-{id(self)}?vfs=memdb"
        self._first = self.opened()  # it lives as long as a connection to it

    def opened(self) -> apsw.Connection:
        """Open a connection to it."""
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        return apsw.Connection(self._name, flags=flags)


def is_absent(path: Path) -> bool:
    """Whether there is surely no such file; one that cannot be reached may be there."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def refusal_of(error: apsw.Error, path: Path) -> StorageError:
    """Return why `path` cannot be used, by what its disk says rather than by SQLite's word for it."""
    where = repr(str(path))
    if _is_read_only(path):
        remedy = "choose another folder with --home, or remount it"
        return StorageError(f"cannot write {where}: the file system is read-only", remedy)
    if isinstance(error, apsw.FullError) or _is_full(path):
        return StorageError(f"cannot write {where}: the disk is full", "free some space, then try again")
    if isinstance(error, apsw.ReadOnlyError):
        return StorageError(f"cannot write {where}: it is read-only", "check the permissions of the file")
    if isinstance(error, apsw.CantOpenError):
        return StorageError(f"cannot open {where}: {error}", "check the folder and its permissions")
    return StorageError(f"cannot use {where}: {error}", "check the disk and the permissions")


def _is_read_only(path: Path) -> bool:
    with explained("reach", path.parent):
        return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)


def _is_full(path: Path) -> bool:
    with explained("reach", path.parent):
        room = os.statvfs(path.parent)
    return room.f_blocks > 0 and room.f_bavail * room.f_frsize < _ROOM_BYTES  # some systems count no blocks at all

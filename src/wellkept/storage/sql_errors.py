"""Errors of SQLite in our words: what happened to which file, and what to do next."""

import os
from pathlib import Path

import apsw

from wellkept.core.errors import Busy, StorageError, Unreadable, explain_errors

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

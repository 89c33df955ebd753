"""Files that are replaced atomically and durably, and OS errors that say what to do next."""

import errno
import glob
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kept.core.errors import StorageError, Unreadable
from kept.core.ids import random_hex

APPLICATION_MARK = b"KEPT"
"""Application id in the header of each of our databases; here because `config.home` must not load SQLite."""
APPLICATION_ID = int.from_bytes(APPLICATION_MARK, "big")

_REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space, then try again; nothing was changed",
    errno.EDQUOT: "the disk quota is used up: free some space, then try again; nothing was changed",
    errno.EROFS: "the file system is read-only: choose another folder with --home, or remount it",
    errno.EACCES: "check the owner and the permissions of the file and its folder",
    errno.EPERM: "check the owner and the permissions of the file and its folder",
    errno.EISDIR: "there is a folder in the file's place: move it away",
    errno.ENOTDIR: "there is a file in a folder's place: move it away, or choose another folder with --home",
    errno.EEXIST: "there is a file in a folder's place: move it away, or choose another folder with --home",
    errno.ELOOP: "the symbolic links form a loop: repair or remove them",
    errno.ENAMETOOLONG: "the path is too long: choose a shorter --home",
    errno.EIO: "the disk reports an input/output error: check the disk, and restore from a backup if need be",
}
_RENAME_FORBIDDEN = {errno.EBUSY, errno.EXDEV}
_TEMP_MARK = ".kept-tmp-"


@contextmanager
def explain_errors(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError on `path` into a StorageError that says what to do next."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "check the path and try again")
        raise StorageError(f"cannot {action} {str(path)!r}: {error.strerror or error}", remedy) from error


def make_folder(path: Path) -> None:
    """Create `path` and its missing parents with mode 0700."""
    with explain_errors("create the folder", path):
        missing = []
        for folder in (path, *path.parents):
            if folder.exists():
                break
            missing.append(folder)
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not path.is_dir():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def read_bytes(path: Path) -> bytes | None:
    """Return the bytes of `path`, or None if it does not exist; raise Unreadable if it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "check the file")
        raise Unreadable(f"cannot read {str(path)!r}: {error.strerror or error}", remedy) from error


def write_atomically(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace the bytes of `path`: readers see the old or the new bytes, and after a return they survive power loss.

    The order matters: write and fsync a temporary file, rename it, fsync the folder. Follows a symlink to its target
    and keeps the mode of an existing file. Writes in place only where the file system forbids a rename over the
    target (bind mounts).
    """
    with explain_errors("write", path):
        target = resolve_link(path)
        if target.is_dir():
            raise StorageError(f"cannot write {str(path)!r}: there is a folder in its place", _REMEDIES[errno.EISDIR])
        temp = target.with_name(f".{target.name}{_TEMP_MARK}{os.getpid()}-{random_hex(4)}")
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(target.stat().st_mode)
        try:
            _write_durably(temp, data, mode=mode)
            _replace(temp, target, data)
        finally:
            temp.unlink(missing_ok=True)
        sync_folder(target.parent)


def resolve_link(path: Path) -> Path:
    """Return the target of a symlink; raise OSError for a loop."""
    try:
        return path.resolve() if path.is_symlink() else path
    except RuntimeError as error:  # how pathlib reports a loop of links
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error


def _write_durably(path: Path, data: bytes, *, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), mode)
    with os.fdopen(descriptor, "wb") as file:
        with suppress(OSError):
            path.chmod(mode)  # the umask may have removed bits; some file systems have no modes
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _replace(temp: Path, target: Path, data: bytes) -> None:
    try:
        temp.replace(target)
    except OSError as error:
        if error.errno not in _RENAME_FORBIDDEN:
            raise
        with target.open("r+b") as file:
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())


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
    """Remove temporary files of writers of `path` that were killed."""
    with suppress(OSError):
        target = resolve_link(path)
        for temp in target.parent.glob(f".{glob.escape(target.name)}{_TEMP_MARK}*"):
            pid = temp.name.rpartition(_TEMP_MARK)[2].partition("-")[0]
            if not (pid.isdecimal() and is_alive(int(pid))):
                temp.unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
    """Whether a process with this id is running."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True

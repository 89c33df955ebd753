"""Files and folders that are replaced atomically and durably, and scratch folders in which they are built.

The only way in which files are written, renamed and made, because a command must not report a change that a loss of
power would take away. A single file: `write_atomically` or `open_replacement`. A folder: build it in a scratch folder
with any of the plain functions, then `publish` it. What is durable already: `move`.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from wellkept.core.errors import StorageError, Unreadable
from wellkept.core.regular_files import REMEDIES, close_descriptor, explain_errors, open_for_update, open_regular

SCRATCH_FOLDER = ".unfinished"
"""Where `open_scratch` makes folders below a root."""
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
    content = read_with_stamp(path)
    return None if content is None else content[0]


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
    return target.with_name(f".{target.name}{_TEMP_MARK}{os.getpid()}-{os.urandom(4).hex()}")


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


@contextmanager
def open_scratch(root: Path) -> Iterator[Path]:
    """Yield a new folder below `root`, on the same file system, and remove it at the end with all that is in it."""
    folder = root / SCRATCH_FOLDER / f"{os.getpid()}-{os.urandom(4).hex()}"
    make_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        _remove_if_empty(folder.parent)


def remove_unfinished(root: Path) -> None:
    """Remove what processes that have ended left in `root`: their scratch folders and temporary files.

    What cannot be removed now is removed later.
    """
    remove_stale_temps(root / SCRATCH_FOLDER)
    parent = root / SCRATCH_FOLDER
    if not parent.is_dir():
        return
    with suppress(OSError):
        for folder in list(parent.iterdir()):
            pid = folder.name.partition("-")[0]
            if not (pid.isdecimal() and is_alive(int(pid))):
                shutil.rmtree(folder)
    _remove_if_empty(parent)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


APPLICATION_MARK = b"KEPT"
"""Application id in the header of each of our databases."""
APPLICATION_ID = int.from_bytes(APPLICATION_MARK, "big")
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

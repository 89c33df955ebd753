"""Regular files: opened without waiting for a pipe in their place, and without losing the locks of a database.

When a process closes any descriptor of a file, POSIX releases all its locks on that file, including those that SQLite
holds through another descriptor. Another program then takes the database for abandoned and deletes the log under it.
So a descriptor of such a file stays open as long as SQLite has the file open: readers share one, and one that turns
out to belong to a database when it is closed is kept.
"""

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, cast, overload
from weakref import WeakSet

from wellkept.core.errors import StorageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

FileId: TypeAlias = tuple[int, int]
"""Device and inode: links and other names lead to the same file, and to the same locks."""
_RELEASE_SECONDS = 60.0
"""For how long descriptors outlive the last connection: its closing may still copy the log under a lock."""


class _Held:
    """One database file: its connections, and what must not be closed before them."""

    def __init__(self) -> None:
        self.path = Path()
        self.files: set[FileId] = set()
        """The database itself, without its shared memory."""
        self.connections: WeakSet[object] = WeakSet()
        self.opened = 0
        """How many connections were opened and not closed since; one that was only dropped counts on."""
        self.readers: dict[FileId, int] = {}
        """The descriptor through which a file is read: the database, or the file of its shared memory."""
        self.kept: list[int] = []
        """Descriptors that were closed while the file was open here."""
        self.unused_since: float | None = None

    def is_over(self, now: float) -> bool:
        """Whether the last connection was closed long ago."""
        if self.connections:
            self.unused_since = None
        elif self.unused_since is None:
            self.unused_since = now
        return self.unused_since is not None and now - self.unused_since > _RELEASE_SECONDS


_guard = Lock()
_held: dict[FileId, _Held] = {}
"""By database file, and by the file through which the processes of a database share memory."""
_without_memory: set[_Held] = set()
"""Those whose file of shared memory must be looked for: SQLite creates it with the first statement."""
_swept = 0.0


def open_regular(path: Path, *, buffering: int = -1) -> BinaryIO:
    """Open a regular file, or the null device, for reading; raise OSError for anything else, without waiting.

    The only way in which files are opened for reading, because it keeps the locks of open databases.
    """
    file = _open_for_reading(path)
    try:
        check_regular(path, os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return cast(BinaryIO, file if buffering == 0 else io.BufferedReader(file, max(buffering, io.DEFAULT_BUFFER_SIZE)))


class FileBytes:
    """The bytes of a regular file that may be larger than the memory, each part read when it is asked for.

    Not a memory map: its end would close a descriptor, and with it release the locks of an open database.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_regular(path, buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> bytes: ...
    def __getitem__(self, place: int | slice) -> int | bytes:
        """Return a byte, or a part of the file."""
        if isinstance(place, int):
            return self[place : place + 1][0]
        start, end, step = place.indices(self._size)
        assert step == 1
        return os.pread(self._file.fileno(), max(end - start, 0), start)


def load_bytes(path: Path) -> bytes:
    """Return the bytes of a regular file; raise OSError, also if there is none."""
    with open_regular(path, buffering=0) as file:
        return file.read()


def load_text(path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
    r"""Return the text of a regular file with `\n` at the end of each line; raise OSError, also if there is none."""
    with io.TextIOWrapper(open_regular(path), encoding, errors) as file:
        return file.read()


def check_regular(path: Path, status: os.stat_result) -> None:
    """Raise OSError if `status` is neither that of a regular file nor of the null device."""
    if stat.S_ISREG(status.st_mode) or (
        stat.S_ISCHR(status.st_mode) and os.path.samestat(status, Path(os.devnull).stat())
    ):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.ENOTSUP, "it is a pipe, a socket or a device, not a file", str(path))


def identify(path: Path | str) -> FileId | None:
    """Return the file that a name leads to, or None."""
    try:
        status = os.stat(path)  # noqa: PTH116 - once per opened file
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def register(connection: object, path: Path, before: FileId | None) -> None:
    """Note that `connection` has `path` open; call it before its first statement, which takes the first lock.

    `before` is the file that had this name before the connection was opened, in case it was replaced meanwhile.
    """
    with _guard:
        try:
            status = os.stat(path)  # noqa: PTH116 - as `identify` does, without its call: every command opens files
            now = (status.st_dev, status.st_ino)
        except (OSError, ValueError):
            now = None
        for file in {before, now}:
            if file is not None:
                held = _held.setdefault(file, _Held())
                held.path = path
                held.files.add(file)
                held.connections.add(connection)
                held.opened += 1
                _without_memory.add(held)  # SQLite removes that file with the last connection, and makes a new one


def unregister(connection: object) -> None:
    """Note that `connection` was closed, and has released its locks."""
    with _guard:
        for held in {held for held in _held.values() if connection in held.connections}:
            held.connections.discard(connection)
            held.opened -= 1


def _open_for_reading(path: Path) -> io.RawIOBase:
    """Open a file for reading; raise OSError if that fails. Opening a pipe does not wait for its writer."""
    with _guard:
        file = identify(path) if _held else None
        held = None if file is None else _find(file)
        if held is not None and file is not None:
            if file not in held.readers:
                held.readers[file] = _open(path)
            return _SharedFile(held.readers[file], path)
    descriptor = _open(path)
    try:
        return _OwnFile(descriptor)
    except OSError:  # a folder
        close_descriptor(descriptor)
        raise


def close_descriptor(descriptor: int) -> None:
    """Close a descriptor, unless that would release the locks of a database."""
    with _guard:
        if _held:
            status = os.fstat(descriptor)
            held = _find((status.st_dev, status.st_ino))
            if held is not None:
                held.kept.append(descriptor)
                return
        os.close(descriptor)


def _find(file: FileId) -> _Held | None:
    """Return the open database that a file belongs to; the guard is held."""
    for held in list(_without_memory):
        memory = identify(f"{held.path}-shm")
        if memory is not None:
            _held[memory] = held
            _without_memory.discard(held)
    _release_unused()
    owner = _held.get(file)
    if owner is None or file in owner.files or file in owner.readers or identify(f"{owner.path}-shm") == file:
        return owner
    del _held[file]  # that shared memory was removed, and its number belongs to another file now
    return None


def _release_unused() -> None:
    global _swept
    now = monotonic()
    if now - _swept < _RELEASE_SECONDS / 2:
        return
    _swept = now
    _release({held for held in _held.values() if held.is_over(now)})


def _release(over: set[_Held]) -> None:
    for file in [file for file, held in _held.items() if held in over]:
        del _held[file]
    for held in over:
        _without_memory.discard(held)
        for descriptor in (*held.readers.values(), *held.kept):
            os.close(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))


def open_for_update(path: Path) -> int:
    """Return a descriptor for `close_descriptor`, for reading and writing; raise OSError for an open database."""
    with _guard:
        file = identify(path) if _held else None
        held = None if file is None else _find(file)
        if held is not None and held.opened == 0:
            _release({held})
        elif held is not None:
            raise OSError(errno.EBUSY, "this process has it open as a database", str(path))
        return os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))


class _OwnFile(io.FileIO):
    """A file with a descriptor of its own."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "rb", closefd=False)

    def close(self) -> None:
        if not self.closed:
            descriptor = self.fileno()
            super().close()
            close_descriptor(descriptor)


class _SharedFile(io.RawIOBase):
    """An open database as a file: a position of its own over the descriptor that all readers share."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._position = 0
        self.name = str(path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def readinto(self, buffer: "WriteableBuffer") -> int:
        count = os.preadv(self._descriptor, [buffer], self._position)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = (0, self._position, os.fstat(self._descriptor).st_size)[whence]
        if start + offset < 0:
            raise OSError(22, os.strerror(22))
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position


REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space, then try again",
    errno.EDQUOT: "the disk quota is used up: free some space, then try again",
    errno.EROFS: "the file system is read-only: choose another folder with --home, or remount it",
    errno.EACCES: "check the owner and the permissions of the file and its folder",
    errno.EPERM: "check the owner and the permissions of the file and its folder",
    errno.EISDIR: "there is a folder in the file's place: move it away",
    errno.ENOTDIR: "there is a file in a folder's place: move it away, or choose another folder with --home",
    errno.EEXIST: "there is a file in a folder's place: move it away, or choose another folder with --home",
    errno.ELOOP: "the symbolic links form a loop: repair or remove them",
    errno.ENAMETOOLONG: "the path is too long: choose a shorter --home",
    errno.ENOTSUP: "there is a pipe, a socket or a device in the file's place: move it away",
    errno.ENXIO: "there is a pipe, a socket or a device in the file's place: move it away",
    errno.EIO: "the disk reports an input/output error: check the disk, and restore from a backup if need be",
}
"""What a person does about an error of the operating system."""


@contextmanager
def explain_errors(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError on `path` into a StorageError that says what to do next."""
    try:
        yield
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "check the path and try again")
        raise StorageError(f"cannot {action} {str(path)!r}: {error.strerror or error}", remedy) from error

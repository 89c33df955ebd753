"""A folder whose files outside text names: each step is taken from a descriptor, and no link is ever followed.

A check of a path and a later use of it can see different files. So there is no check: a component is opened relative to
the folder before it, and the kernel refuses a link in its place.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from wellkept.core.errors import UsageError
from wellkept.core.regular_files import close_descriptor, explain_errors
from wellkept.storage.files import is_stale_temp, make_folder, temporary_name

Parts: TypeAlias = tuple[str, ...]
"""The components of a path below the root, none of them empty, `.` or `..`; the root itself has none."""
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | getattr(os, "O_CLOEXEC", 0)
_ABSENT = (FileNotFoundError, NotADirectoryError)
_ANY_DEPTH = 1_000
"""More levels than a path can have components."""


class FileTree:
    """The files below one folder, which is created with the first write; messages call it `shown_root`."""

    def __init__(self, root: Path, shown_root: str) -> None:
        self._root = root
        self._shown_root = shown_root

    def status(self, parts: Parts) -> os.stat_result | None:
        """Return the status of a file or folder, None if there is none; raise UsageError for a link on the way."""
        with explain_errors("read", self._path(parts)), suppress(*_ABSENT):
            if not parts:
                return self._root.stat()
            with self._open_folder(parts[:-1]) as folder:
                return self._status_in(folder, parts)
        return None

    def is_folder(self, parts: Parts) -> bool:
        """Whether there is a folder."""
        status = self.status(parts)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def read(self, parts: Parts) -> bytes | None:
        """Return the bytes of a file, None if there is none; raise UsageError for a link or anything but a file."""
        with explain_errors("read", self._path(parts)), suppress(*_ABSENT), self._open_folder(parts[:-1]) as folder:
            try:
                descriptor = os.open(parts[-1], _READ, dir_fd=folder)
            except OSError:
                self._status_in(folder, parts)
                raise
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise UsageError(f"Unsupported file type for {self._show(parts)}")
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    return file.read()
            finally:
                close_descriptor(descriptor)
        return None

    def write(self, parts: Parts, data: bytes) -> None:
        """Replace or create a file, and the folders above it; after a return its bytes survive power loss."""
        with explain_errors("write", self._path(parts)), self._open_folder(parts[:-1], create=True) as folder:
            with suppress(FileNotFoundError):
                self._status_in(folder, parts)
            for name in filter(is_stale_temp, os.listdir(folder)):  # noqa: PTH208 - a descriptor
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
            temp = temporary_name(Path(parts[-1])).name
            try:
                with os.fdopen(os.open(temp, _NEW, 0o600, dir_fd=folder), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(temp, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):  # the first error says more
                    os.unlink(temp, dir_fd=folder)
                raise
            os.fsync(folder)

    def remove(self, parts: Parts) -> None:
        """Remove a file, or a folder with all that is in it; a link in it is removed, never its target."""
        assert parts, "the root is never removed"
        with explain_errors("delete", self._path(parts)), self._open_folder(parts[:-1]) as folder:
            status = self._status_in(folder, parts)
            if stat.S_ISDIR(status.st_mode):
                shutil.rmtree(parts[-1], dir_fd=folder)
            else:
                os.unlink(parts[-1], dir_fd=folder)
            os.fsync(folder)

    def rename(self, old: Parts, new: Parts) -> None:
        """Move a file or folder to a name that is free; the folders above it are created."""
        assert old, "the root is never renamed"
        assert new, "the root is never replaced"
        with (
            explain_errors("rename", self._path(old)),
            self._open_folder(old[:-1]) as source,
            self._open_folder(new[:-1], create=True) as target,
        ):
            self._status_in(source, old)
            os.rename(old[-1], new[-1], src_dir_fd=source, dst_dir_fd=target)
            os.fsync(target)
            os.fsync(source)

    def walk(self, parts: Parts = (), *, levels: int = _ANY_DEPTH) -> Iterator[tuple[Parts, os.stat_result]]:
        """Yield the files and folders below a folder, up to so many levels deep; links and devices are left out."""
        with explain_errors("list", self._path(parts)), suppress(*_ABSENT), self._open_folder(parts) as top:
            for base, folders, files, descriptor in os.fwalk(".", dir_fd=top):
                above = Path(base).parts
                for name in (*folders, *files):
                    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode):
                        yield (*above, name), status
                if len(above) + 1 >= levels:
                    folders.clear()

    @contextmanager
    def _open_folder(self, parts: Parts, *, create: bool = False) -> Iterator[int]:
        if create:
            make_folder(self._root)
        descriptor = os.open(self._root, _FOLDER)
        try:
            for depth, part in enumerate(parts, start=1):
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=descriptor)
                        os.fsync(descriptor)
                try:
                    inner = os.open(part, _FOLDER | _NO_LINK, dir_fd=descriptor)
                except OSError:
                    self._status_in(descriptor, parts[:depth])
                    raise
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def _status_in(self, folder: int, parts: Parts) -> os.stat_result:
        """Return the status of the last component, or raise UsageError if it is a link."""
        status = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            shown = self._show(parts)
            raise UsageError(f"Path {shown} would escape {self._shown_root} directory: {parts[-1]} is a symlink")
        return status

    def _path(self, parts: Parts) -> Path:
        return self._root.joinpath(*parts)

    def _show(self, parts: Parts) -> str:
        return "/".join((self._shown_root, *parts))

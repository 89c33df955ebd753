"""Named texts of one user that are replaced as a whole: files of a folder, or rows of a server that hosts share."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from wellkept.core.ports import Database
from wellkept.core.regular_files import explain_errors
from wellkept.storage.files import make_folder, move, read_bytes, write_atomically
from wellkept.storage.locks import hold_lock


class FolderDocuments:
    """The files of a folder; implements `core.ports.Documents`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self, suffix: str) -> list[str]:
        """Return the names in the folder itself that end with `suffix`, sorted."""
        return sorted(path.name for path in self._folder.glob(f"*{suffix}")) if self._folder.is_dir() else []

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, None if there is none."""
        return read_bytes(self._folder / name)

    def write(self, name: str, data: bytes) -> None:
        """Replace a file as a whole."""
        make_folder(self._folder)
        write_atomically(self._folder / name, data)

    def append(self, name: str, lines: bytes) -> None:
        file = self._folder / name
        with explain_errors("append to", file):
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                # a writer may have been killed in the middle of its line
                is_cut = size and os.pread(descriptor, 1, size - 1) != b"\n"
                os.write(descriptor, b"\n" + lines if is_cut else lines)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def move(self, name: str, new: str) -> None:
        """Give a file another name, maybe in a folder below."""
        move(self._folder / name, self._folder / new)

    def remove(self, name: str) -> None:
        """Remove a file, in this folder and below."""
        for path in self._folder.rglob(name):
            path.unlink(missing_ok=True)

    def lock(self, name: str, *, timeout_seconds: float) -> AbstractContextManager[None]:
        """Keep other writers of a file out, or raise Busy after the timeout."""
        return hold_lock(self._folder / f"{name}.lock", timeout_seconds=timeout_seconds)


class RowDocuments:
    """Rows of the table `documents` on a PostgreSQL server; implements `core.ports.Documents`.

    What is appended is a row of its own, so that a long log is not written again with every line.
    """

    def __init__(self, database: "Database", folder: str) -> None:
        from wellkept.storage.connections import statements  # loads SQLite's driver

        self._database = database
        self._folder = folder
        self._sql = statements("wellkept.storage", "documents.sql")

    def names(self, suffix: str) -> list[str]:
        """Return the names in the folder itself that end with `suffix`, sorted."""
        with self._database.reading() as unit:
            found = [str(name) for (name,) in unit.execute(self._sql.names, (self._folder,))]
        return sorted(name for name in found if name.endswith(suffix) and "/" not in name)

    def read(self, name: str) -> bytes | None:
        with self._database.reading() as unit:
            rows = unit.execute(self._sql.parts, (self._folder, name))
            parts = [data for (data,) in rows if isinstance(data, bytes)]
        return b"".join(parts) if parts else None

    def write(self, name: str, data: bytes) -> None:
        with self._database.writing() as unit:
            # not `remove`: a document of the same name in a folder below stays
            unit.execute(self._sql.drop, (self._folder, name))
            self.append(name, data)

    def append(self, name: str, lines: bytes) -> None:
        with self._database.writing() as unit:
            unit.execute(self._sql.add, (self._folder, name, lines))

    def move(self, name: str, new: str) -> None:
        with self._database.writing() as unit:
            unit.execute(self._sql.rename, (new, self._folder, name))

    def remove(self, name: str) -> None:
        """Remove a document, in this folder and below."""
        with self._database.writing() as unit:
            unit.execute(self._sql.drop_everywhere, (self._folder, name))

    @contextmanager
    def lock(self, name: str, *, timeout_seconds: float) -> Iterator[None]:
        """Keep other writers of a document out until the end of the block, which is one transaction."""
        with self._database.limit_wait(timeout_seconds), self._database.writing() as unit:
            unit.execute(self._sql.lock, (f"{self._folder}/{name}",))
            yield

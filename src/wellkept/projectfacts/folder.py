"""The folder of a project: its own files and nothing else, so that no symbolic link leads out of it."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from wellkept.core.regular_files import open_regular

MOST_BYTES = 4_000_000
"""A larger file is not read."""


class Unknown(Exception):
    """Nothing certain can be said: something is unreadable, or reading it would take too long."""


class Budget:
    """How much one check may read."""

    def __init__(self, *, seconds: float, steps: int) -> None:
        self._end = time.monotonic() + seconds
        self._left = steps

    @property
    def is_over(self) -> bool:
        """Whether nothing more may be read."""
        return self._left < 0 or time.monotonic() > self._end

    def spend(self, steps: int = 1) -> None:
        """Count steps; raise Unknown when the budget is used up."""
        self._left -= steps
        if self.is_over:
            raise Unknown("the budget of the check is used up")


class Folder:
    """Reads below a folder. What is a link, or behind one, counts as unknown."""

    def __init__(self, root: Path, budget: Budget) -> None:
        self.root = root
        self.budget = budget
        self._prefix = os.path.join(root, "")  # noqa: PTH118 - a third of the time of a check was spent in pathlib
        self._kinds: dict[str, str | None] = {}

    def kind(self, name: str) -> str | None:
        """Return `file` or `folder`, None if there is nothing; raise Unknown behind a link and for special files."""
        if name in self._kinds:
            return self._kinds[name]
        parent = name.rpartition("/")[0]
        if parent and self.kind(parent) != "folder":
            return None
        self.budget.spend()
        try:
            mode = os.lstat(f"{self._prefix}{name}").st_mode
        except (FileNotFoundError, NotADirectoryError):
            kind = None
        except (OSError, ValueError) as error:
            raise Unknown(str(error)) from error
        else:
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise Unknown("a link or a special file")
            kind = "file" if stat.S_ISREG(mode) else "folder"
        self._kinds[name] = kind
        return kind

    def open(self, name: str) -> BinaryIO | None:
        """Open a file for reading, unbuffered; None if there is none."""
        if self.kind(name) != "file":
            return None
        self.budget.spend()
        try:
            return open_regular(self.root / name, buffering=0)
        except OSError as error:
            raise Unknown(str(error)) from error

    def read(self, name: str, *, most: int = MOST_BYTES) -> bytes | None:
        """Return the bytes of a file, None if there is none; raise Unknown if it has more than `most`."""
        data = self.read_end(name, most=most + 1)
        if data is not None and len(data) > most:
            raise Unknown("a huge file")
        return data

    def read_end(self, name: str, *, most: int) -> bytes | None:
        """Return the last bytes of a file, None if there is none."""
        file = self.open(name)
        if file is None:
            return None
        with file:
            try:
                file.seek(max(0, os.fstat(file.fileno()).st_size - most))
                return file.read(most) or b""
            except OSError as error:
                raise Unknown(str(error)) from error

    def names(self, name: str, *, most: int = 1_000) -> list[str]:
        """Return the names in a folder, sorted; raise Unknown if there are more than `most`."""
        if name and self.kind(name) != "folder":
            return []
        self.budget.spend()
        try:
            with os.scandir(self.root / name) as rows:
                return sorted(self._take(rows, most))
        except OSError as error:
            raise Unknown(str(error)) from error

    @staticmethod
    def _take(rows: "Iterator[os.DirEntry[str]]", most: int) -> list[str]:
        names = []
        for row in rows:
            names.append(row.name)
            if len(names) > most:
                raise Unknown("a huge folder")
        return names

"""The check of copied databases: what a backup, or the archive of one, holds of them that is not as it was written."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from wellkept.core.errors import KeptError, StorageError
from wellkept.storage.archive import HOME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wellkept.app.caller import Caller

T = TypeVar("T")
_SESSIONS = frozenset({"state.db", "kept.db"})
_LEDGER = "ledger.db"
_FACTS = "holographic.db"
_MOST_SHOWN = 5


def is_checked(name: str) -> bool:
    """Whether a file of an archive is one of our databases."""
    return Path(name).name in {*_SESSIONS, _LEDGER, _FACTS} and name.startswith(HOME)


def find_damage(files: Mapping[str, Path]) -> list[str]:
    """Return what is damaged in the databases among these copies, given by their name in the archive.

    Pages and rows are compared with their checksums. Derived data is not looked at: it can be rebuilt.
    """
    return [
        f"{name.removeprefix(HOME)}: {problem.replace(repr(str(path)), 'the file')}"
        for name, path in sorted(files.items())
        if is_checked(name)
        for problem in _shorten(_check(Path(name).name, path))
    ]


def _check(name: str, path: Path) -> list[str]:
    from wellkept.storage.maintenance import check_pages

    try:
        problems = check_pages(path)
        if not problems and name in _SESSIONS:
            from wellkept.app.store_care import check_copied_store

            return check_copied_store(path)
        if not problems and name == _LEDGER:
            from wellkept.memory.ledger import check_copied_ledger

            return check_copied_ledger(path)
    except KeptError as error:
        return [error.message]
    return problems


def _shorten(problems: list[str]) -> list[str]:
    rest = len(problems) - _MOST_SHOWN
    return [*problems[:_MOST_SHOWN], f"and {rest:,} more"] if rest > 0 else problems


def with_room(caller: Caller, read: Callable[[Path], T]) -> T:
    """Return what `read` makes of a folder for unpacked databases: in the home, or a temporary one if that is full."""
    from wellkept.storage.files import open_scratch

    root = caller.app.home.root
    if os.access(root, os.W_OK):
        try:
            with open_scratch(root) as folder:
                return read(folder)
        except StorageError as error:
            if not is_full(error):
                raise
    with tempfile.TemporaryDirectory(prefix="kept-verify-") as name:
        return read(Path(name))


def is_full(error: StorageError) -> bool:
    """Whether a disk without space is the reason."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in {errno.ENOSPC, errno.EDQUOT}

"""Scratch folders: a folder is built or removed there, so that its real path changes by one rename."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wellkept.core.ids import random_hex
from wellkept.storage.files import SCRATCH_FOLDER, is_alive, make_folder, remove_stale_temps


@contextmanager
def open_scratch(root: Path) -> Iterator[Path]:
    """Yield a new folder below `root`, on the same file system, and remove it at the end with all that is in it."""
    folder = root / SCRATCH_FOLDER / f"{os.getpid()}-{random_hex(4)}"
    make_folder(folder)
    try:
        yield folder
    finally:
        _remove(folder)
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
                _remove(folder)
    _remove_if_empty(parent)


def _remove(folder: Path) -> None:
    import shutil  # loads every kind of compression, and is hardly ever needed at start

    shutil.rmtree(folder)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()

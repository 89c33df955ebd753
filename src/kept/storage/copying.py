"""Files copied as they are at one moment, databases whole even while another process writes to them."""

import os
import shutil
from pathlib import Path

import apsw

from kept.storage.files import explained
from kept.storage.sqlite import explained_sql


def copy_file(source: str, target: str) -> None:
    """Copy a file; a database as one moment saw it, with what its log holds."""
    if _is_database(Path(source)):
        _copy_database(Path(source), Path(target))
    else:
        shutil.copy2(source, target)


def _is_database(path: Path) -> bool:
    with explained("read", path), path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _copy_database(source: Path, target: Path) -> None:
    with explained("write", target):
        os.close(os.open(target, os.O_RDWR | os.O_CREAT, 0o600))
    with explained_sql(source):
        origin = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        copy = apsw.Connection(str(target))
        try:
            with copy.backup("main", origin, "main") as backup:
                backup.step()
        finally:
            copy.close()
            origin.close()

"""Replacement of a database file by a repaired one, so that a kill at any moment leaves the old or the new state.

The journal `state.db.repair` says how far a replacement has come:

    copying    the new file is being written beside the old one. Rolled back: the new file is removed.
    swapping   the new file is complete, the old one has a second name. Completed: the log of the old file is
               removed, then one rename puts the new file in its place.

The log goes before the rename: SQLite would apply a log that it finds beside a file to that file. Whoever opens the
database holds a shared lock on its folder while it does, and the renames happen under an exclusive one, so that
nobody opens the old file under the name of the new one.
"""

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from wellkept.core import regular_files
from wellkept.core.errors import Busy, StorageError
from wellkept.core.regular_files import explain_errors, load_bytes
from wellkept.storage.files import (
    copy_bytes,
    is_alive,
    sync_file,
    sync_folder,
    write_atomically,
)
from wellkept.storage.locks import FOLDER_WAIT_SECONDS, POLL_SECONDS, NoLocks, lock_folder, try_range

_COPYING, _SWAPPING = "copying", "swapping"
COMPANIONS = ("-wal", "-shm", "-journal")


class Replacement(Struct, frozen=True):
    """One replacement of the file at `path`; `stamp` is part of the names of the other files."""

    path: Path
    stamp: str

    @property
    def fresh(self) -> Path:
        """The new file, until it takes the place of the old one."""
        return self.path.with_name(f"{self.path.name}.salvaged-{self.stamp}")

    @property
    def aside(self) -> Path:
        """The old file afterwards."""
        return self.path.with_name(f"{self.path.name}.damaged-{self.stamp}")

    @classmethod
    def of(cls, path: Path, moment: str) -> "Replacement":
        """Return a replacement whose names are not taken yet."""
        found, number = cls(path, moment), 1
        while found.fresh.exists() or found.aside.exists():
            number += 1
            found = cls(path, f"{moment}-{number}")
        return found

    def begin(self) -> None:
        """Announce that the new file is going to be written."""
        self._note(_COPYING)

    def swap(self) -> None:
        """Put the finished new file in the place of the old one; nobody else may have the old one open."""
        with explain_errors("replace", self.path), lock_folder(self.path.parent, exclusive=True):
            self._refuse_log()
            sync_file(self.fresh)
            _give_second_name(self.path, self.aside)
            log = companion(self.path, "-wal")
            if log.exists():
                _give_second_name(log, companion(self.aside, "-wal"))
            sync_folder(self.path.parent)
            self._note(_SWAPPING)
            self._complete()

    def _refuse_log(self) -> None:
        """Raise an error if rows of the new file are still in its log: SQLite closes a file without saying so."""
        log = companion(self.fresh, "-wal")
        if log.exists() and log.stat().st_size:
            raise StorageError(
                f"cannot replace {str(self.path)!r}: the disk did not take all of the new file",
                "free some space or check the disk, then try again; nothing was changed",
            )

    def abandon(self) -> None:
        """Roll the replacement back after an error, unless it has gone so far that the next open completes it."""
        journal = _read_journal(self.path)
        if journal is None or journal[0] == _COPYING:
            self.roll_back()

    def roll_back(self) -> None:
        """Remove the new file; the old one was not touched."""
        with explain_errors("remove", self.fresh):
            for made in (self.fresh, self.aside):
                for file in (made, *(companion(made, suffix) for suffix in COMPANIONS)):
                    file.unlink(missing_ok=True)
            _journal(self.path).unlink(missing_ok=True)

    def _complete(self) -> None:
        if self.fresh.exists():
            for suffix in COMPANIONS:
                companion(self.path, suffix).unlink(missing_ok=True)
            sync_folder(self.path.parent)
            self.fresh.replace(self.path)
            sync_folder(self.path.parent)
        _journal(self.path).unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def _note(self, stage: str) -> None:
        text = json.dumps({"stage": stage, "stamp": self.stamp, "pid": os.getpid()})
        write_atomically(_journal(self.path), text.encode())


def companion(path: Path, suffix: str) -> Path:
    """Return a file that SQLite keeps beside a database."""
    return path.with_name(f"{path.name}{suffix}")


def _journal(path: Path) -> Path:
    return companion(path, ".repair")


def is_unfinished(path: Path) -> bool:
    """Whether a replacement of this file was interrupted."""
    journal = _read_journal(path)
    return journal is not None and not (journal[0] == _COPYING and is_alive(journal[2]))


def wait_for_repair(path: Path) -> bool:
    """Wait until another process has repaired a file; return whether one did. Raise Busy if it takes too long."""
    deadline = time.monotonic() + FOLDER_WAIT_SECONDS
    waited = False
    while (found := _read_journal(path)) is not None and is_alive(found[2]) and found[2] != os.getpid():
        waited = True
        if time.monotonic() > deadline:
            raise Busy(f"process {found[2]} repairs {str(path)!r}", "wait until it has ended, then try again")
        time.sleep(POLL_SECONDS)
    return waited


def finish(path: Path) -> bool:
    """Complete or roll back a replacement that was interrupted; return whether there was one."""
    if not _journal(path).exists():
        return _finish_without_journal(path)
    if not is_unfinished(path):
        return False
    with explain_errors("complete the repair of", path), lock_folder(path.parent, exclusive=True):
        journal = _read_journal(path)
        if journal is None or (journal[0] == _COPYING and is_alive(journal[2])):
            return False  # another process has completed it, or has begun a new one
        stage, stamp, _ = journal
        replacement = Replacement(path, stamp)
        if stage == _SWAPPING:
            replacement._complete()  # noqa: SLF001 - a part of this module
        elif path.exists():
            replacement.roll_back()
    return True


def _finish_without_journal(path: Path) -> bool:
    """Complete a repair of kept 0.1, which moved the old file away before it renamed the new one."""
    if path.exists():
        return False
    for fresh in sorted(path.parent.glob(f"{path.name}.salvaged-*[0-9]"), reverse=True):
        replacement = Replacement(path, fresh.name.rpartition(".salvaged-")[2])
        if replacement.aside.exists():
            with explain_errors("complete the repair of", path), lock_folder(path.parent, exclusive=True):
                if not path.exists():
                    replacement._complete()  # noqa: SLF001 - a part of this module
            return True
    return False


def _read_journal(path: Path) -> tuple[str, str, int] | None:
    try:
        fields = json.loads(load_bytes(_journal(path)))
        return str(fields["stage"]), str(fields["stamp"]), int(fields["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _give_second_name(file: Path, name: Path) -> None:
    try:
        os.link(file, name)
    except OSError as error:
        if error.errno == errno.EEXIST:
            raise
        copy_bytes(file, name)  # a file system without links
        sync_file(name)


_LOCK_BYTES = (0x40000000, 512)
"""The range that SQLite locks: pending, reserved and shared bytes."""


@contextmanager
def hold_alone(path: Path, *, wait_seconds: float = 2.0) -> Iterator[None]:
    """Hold SQLite's exclusive lock on a file that SQLite itself may be unable to open; raise Busy if it is in use."""
    descriptor = -1
    deadline = time.monotonic() + wait_seconds
    try:
        while (descriptor := _open_closed(path) if descriptor < 0 else descriptor) < 0 or not _try_alone(descriptor):
            if time.monotonic() > deadline:
                message = f"{'this' if descriptor < 0 else 'another'} process has {str(path)!r} open"
                raise Busy(message, "close every other kept, then repair again")
            time.sleep(POLL_SECONDS)
        yield
    finally:
        if descriptor >= 0:
            regular_files.close_descriptor(descriptor)


def _open_closed(path: Path) -> int:
    """Return a descriptor of a file; -1 while this process has it open as a database."""
    with explain_errors("open", path):
        try:
            return regular_files.open_for_update(path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
    return -1


def _try_alone(descriptor: int) -> bool:
    try:
        return try_range(descriptor, *_LOCK_BYTES)
    except NoLocks:
        return True


def refuse_unfinished(path: Path) -> None:
    """Raise StorageError if a replacement was interrupted and this place cannot be written to complete it."""
    if is_unfinished(path):
        raise StorageError(f"a repair of {str(path)!r} was interrupted", "the next command that may write completes it")

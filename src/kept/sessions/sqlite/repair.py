"""Repair of a store: the index anew from the rows, or the whole file anew from what can be read of it."""

import logging
from contextlib import closing, suppress
from pathlib import Path

from kept.core.errors import StorageError, Unreadable
from kept.core.ports import Clock, EventSink
from kept.sessions.health import Finding, Repaired
from kept.sessions.settings import SessionSettings
from kept.sessions.sqlite.checkup import checked, log_tail
from kept.sessions.sqlite.healing import heal
from kept.sessions.sqlite.salvage import Salvage
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.storage.files import explain_errors, sync_folder
from kept.storage.maintenance import open_exclusively
from kept.storage.sqlite import Database
from kept.storage.state import open_state

log = logging.getLogger(__name__)


class Repair:
    """One repair of the file at `path`; it opens and closes the file as it needs."""

    def __init__(self, path: Path, settings: SessionSettings, *, clock: Clock, sink: EventSink) -> None:
        self._path = path
        self._settings = settings
        self._clock = clock
        self._sink = sink
        self._report = Repaired()

    def run(self) -> Repaired:
        """Check, mend as little as is needed, and check again."""
        tail = log_tail(self._path)  # before anything opens the file
        self._refuse_what_cannot_be_written()
        if tail is not None:
            self._report.found.append(tail)
        try:
            wrong = self._examine()
            if wrong:
                self._report.found += wrong
                if not self._mended_in_place():
                    self._rescue()
        except Unreadable as error:
            self._report.found.append(Finding(error.message, "the file is put aside and its rows are brought over"))
            self._rescue()
        self._report.left = self._examine() if self._report.done else []
        return self._report

    def _refuse_what_cannot_be_written(self) -> None:
        """Raise why nothing can be written here: a file that is only out of room is not damaged."""
        with suppress(Unreadable), closing(open_state(self._path, self._settings.durability)) as database:
            if database.is_read_only:
                with database.writing():
                    return

    def _examine(self) -> list[Finding]:
        database = open_state(self._path, self._settings.durability)
        try:
            return checked(self._store(database))
        finally:
            database.close()

    def _store(self, database: Database) -> SqliteSessionStore:
        return SqliteSessionStore(database, self._settings, clock=self._clock, sink=self._sink)

    def _mended_in_place(self) -> bool:
        """Make anew what is derived and see whether that was all; False leaves the file to the rescue."""
        database = open_state(self._path, self._settings.durability)
        try:
            done = heal(database, sink=self._sink, clock=self._clock)
            left = checked(self._store(database))
        except StorageError as error:
            log.warning("the damage cannot be mended in place: %s", error)
            return False
        finally:
            database.close()
        if not left:
            self._report.done += done
        return not left

    def _rescue(self) -> None:
        """Bring what can be read over into a new file; the damaged one is kept beside it under another name."""
        stamp = f"{self._clock.now():%Y%m%d-%H%M%S}"
        fresh = self._path.with_name(f"{self._path.name}.salvaged-{stamp}")
        aside = self._path.with_name(f"{self._path.name}.damaged-{stamp}")
        with open_exclusively(self._path) as damaged:
            target = open_state(fresh, self._settings.durability)
            self._report.salvaged = Salvage(damaged, self._path, sink=self._sink).into(target)
            self._store(target).database.close()
        with explain_errors("put aside", self._path):
            for suffix in ("", "-wal", "-shm"):
                old = self._path.with_name(f"{self._path.name}{suffix}")
                if old.exists():
                    old.replace(aside.with_name(f"{aside.name}{suffix}"))
            fresh.replace(self._path)
            sync_folder(self._path.parent)
        self._report.put_aside = aside
        self._report.done.append(f"the damaged file was put aside as {aside.name} and its rows were brought over")

"""The write cycle of a page: lock, re-read, check for drift, decide, append to the ledger, replace."""

import hashlib
import logging
import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from wellkept.core.errors import Busy, Reason, Refused, StorageError, UsageError, explain_errors
from wellkept.core.ids import LedgerId, SourceName
from wellkept.core.provenance import Kind, Source
from wellkept.memory.edits import Author, Change, Target, replay, steps_between
from wellkept.memory.page import Page, StoredPage, find_drift, page_hash
from wellkept.storage.files import (
    hold_lock,
    make_folder,
    move,
    read_bytes,
    read_with_stamp,
    remove_stale_temps,
    write_atomically,
)

if TYPE_CHECKING:
    from wellkept.core.ports import Clock, EventSink
    from wellkept.memory.ports import Ledger, Pages


log = logging.getLogger(__name__)

_LEDGER_REMEDY = "see `kept doctor` for the state of memories/ledger.db"

Decide: TypeAlias = Callable[[Page], Change | Refused]
"""Receives the page under its lock and returns what it becomes."""


class WrittenPage(Struct, frozen=True):
    """A page after its write, with the ids of its ledger rows (none when the ledger could not be written)."""

    page: Page
    change: Change
    ledger_ids: tuple[LedgerId, ...]
    warning: str = ""


class PageWriter:
    """Changes pages so that an accepted edit is never lost or half written."""

    def __init__(
        self, pages: "Pages", ledger: "Ledger", *, clock: "Clock", sink: "EventSink", timeout_seconds: float
    ) -> None:
        self._pages = pages
        self._ledger = ledger
        self._clock = clock
        self._sink = sink
        self._timeout_seconds = timeout_seconds

    def write(
        self, target: Target, limit: int, decide: Decide, *, author: Author, repair: bool = False
    ) -> WrittenPage | Refused:
        """Run one cycle; a refusal or an error changes nothing. `repair` skips the drift check."""
        with self._pages.lock(target, timeout_seconds=self._timeout_seconds):
            stored = self._pages.read(target)
            if repair:  # the file cannot be trusted, so the change starts from the page that the ledger knows
                page, trouble = self._replay(target, limit)
            else:
                page = Page(stored.entries, limit)
                # before settling, so that a page that cannot be trusted adds no rows
                if (refused := self._check_drift(target, page, stored)) is not None:
                    return refused
                trouble = self._settle(target, page, stored)
            change = decide(page)
            if isinstance(change, Refused):
                return change
            if not change.steps and change.entries == page.entries and not repair:
                return WrittenPage(page, change, ())
            # the row comes first: a row without its page is voided at the next write, a page without a row
            # would look like a change from outside
            ids: list[LedgerId] = []
            if not trouble:
                ids, trouble = self._append(target, change, page, author=author, stamp=stored.stamp)
            if trouble and change.is_only_copy:
                raise StorageError(f"nothing was changed: the archive cannot be written: {trouble}", _LEDGER_REMEDY)
            after = Page(change.entries, limit)
            if change.entries != page.entries or repair:
                self._pages.replace(target, after.text, expected=stored)
        self._report(target, change, ids, author)
        return WrittenPage(after, change, tuple(ids), self._warn(trouble))

    def record_outside_edits(self, target: Target) -> None:
        """Record what was changed on a page without kept."""
        with self._pages.lock(target, timeout_seconds=self._timeout_seconds):
            stored = self._pages.read(target)
            settle(self._ledger, target, stored.entries, now=self._clock.now().timestamp(), stamp=stored.stamp)

    def _replay(self, target: Target, limit: int) -> tuple[Page, str]:
        try:
            return Page(replay(self._ledger.rows(target)), limit), ""
        except StorageError as error:
            return Page((), limit), error.message

    def _settle(self, target: Target, page: Page, stored: StoredPage) -> str:
        try:
            settle(self._ledger, target, page.entries, now=self._clock.now().timestamp(), stamp=stored.stamp)
        except StorageError as error:
            return error.message
        return ""

    def _append(
        self, target: Target, change: Change, before: Page, *, author: Author, stamp: int
    ) -> tuple[list[LedgerId], str]:
        now = self._clock.now().timestamp()
        try:
            return self._ledger.append(target, change, before.entries, author=author, now=now, stamp=stamp), ""
        except StorageError as error:
            return [], error.message

    def _warn(self, trouble: str) -> str:
        """Warn that this edit is missing in the ledger; the page is canonical, so the edit itself succeeded."""
        if not trouble:
            return ""
        from wellkept.core.events import Warned

        message = f"the edit is not in the ledger and cannot be undone: {trouble}"
        log.warning("ledger_unavailable %s", trouble)
        self._sink(Warned(message, _LEDGER_REMEDY))
        return message

    def _check_drift(self, target: Target, page: Page, stored: StoredPage) -> Refused | None:
        trouble = find_drift(page.entries, page.limit, self._known_long_entries(target, page))
        if trouble is None:
            return None
        copy = self._pages.back_up(target, stored.raw, epoch=int(self._clock.now().timestamp()))
        return Refused(
            Reason.DRIFT,
            f"{self._pages.name(target)} was changed outside kept: {trouble}. Its bytes are saved as {copy}.",
            f"`kept memory repair --target {target}` (run by the user) resolves it; no edit is accepted before that.",
        )

    def _known_long_entries(self, target: Target, page: Page) -> set[str]:
        """Return the entries over the limit that the ledger has seen: the limit was lowered after they were written."""
        long = [entry for entry in page.entries if len(entry) > page.limit]
        try:
            return {entry for entry in long if self._ledger.contains(target, entry)}
        except StorageError:
            return set()

    def _report(self, target: Target, change: Change, ids: list[LedgerId], author: Author) -> None:
        from wellkept.core.events import MemoryWritten

        for number, (step, origin) in enumerate(change.with_origins(author)):
            ledger_id = ids[number] if ids else None
            self._sink(
                MemoryWritten(
                    ledger_id, step.action, target, step.before, step.after, origin, session_id=author.session_id
                )
            )


def settle(ledger: "Ledger", target: Target, entries: tuple[str, ...], *, now: float, stamp: int) -> None:
    """Make the ledger agree with a page that was just read; call it under the lock of the page.

    A write that never reached the page is voided. A page that matches no row was changed from outside and gets
    rows of that origin.
    """
    current = page_hash(entries)
    newest = ledger.newest(target)
    if current == (newest.page_after if newest is not None else page_hash(())):
        return
    if newest is not None and newest.was_never_applied(current, stamp):
        ledger.void(newest.write_id)
        return
    known = replay(ledger.rows(target))
    change = Change(entries, steps_between(known, entries))
    # what is there when kept first looks at a home is the person's own set-up
    sources = find_outside(target, known, entries) if ledger.is_watched() else {}
    ledger.append(target, change, known, author=Author(origin="outside", sources=sources), now=now)


def find_outside(target: Target, known: Sequence[str], entries: Sequence[str]) -> dict[str, SourceName]:
    """Return the entries that no write of kept put on a page, each with that as its source."""
    source = Source(Kind.OUTSIDE, FILE_NAMES.get(target, "MEMORY.md")).stored
    return {entry: source for entry in entries if entry not in known}


FILE_NAMES = {Target.MEMORY: "MEMORY.md", Target.USER: "USER.md"}
PROJECTS = "projects"
"""The folder of the projects' folders."""
BACKUPS_KEPT = 10


class FilePages:
    """The pages in one folder, `memories/`, and that of one project below; implements `Pages`."""

    def __init__(
        self, folder: Path, *, project: str | None = None, write: Callable[[Path, bytes], None] = write_atomically
    ) -> None:
        self._folder = folder
        self._project = project
        self._write = write

    def for_project(self, project: str | None) -> "FilePages":
        """Return the same pages with that of a project, given by its folder."""
        return FilePages(self._folder, project=project, write=self._write)

    def projects(self) -> list[str]:
        """Return the folders of all projects that have a page."""
        return sorted(path.parent.name for path in (self._folder / PROJECTS).glob("*/MEMORY.md"))

    def find_project(self, project: str) -> str:
        """Return the folder in which a project's page is: the one without its name if that was forgotten."""
        nameless = nameless_folder(project)
        return nameless if (self._folder / PROJECTS / nameless).is_dir() else project

    def rename_project(self, old: str, new: str) -> None:
        """Give the folder of a project another name."""
        source, target = (self._folder / PROJECTS / name for name in (old, new))
        if source.is_dir():
            move(source, target)

    def prepare(self) -> None:
        """Create the folder and remove temporary files of killed writers."""
        make_folder(self._folder)
        remove_stale_temps(self._path(Target.MEMORY))
        if self._path(Target.USER).is_symlink():  # else it is in the folder that was just looked at
            remove_stale_temps(self._path(Target.USER))
        if self._project and self._path(Target.PROJECT).parent.is_dir():
            remove_stale_temps(self._path(Target.PROJECT))

    def name(self, target: Target) -> str:
        """Return the file name of a page, below the folder."""
        return self._path(target).relative_to(self._folder).as_posix()

    def read(self, target: Target) -> StoredPage:
        """Return a page; a missing file is an empty page. The stamp is the time of the last write in nanoseconds."""
        path = self._path(target)
        raw, stamp = read_with_stamp(path) or (b"", 0)
        return StoredPage(str(path), target, raw, stamp)

    def lock(self, target: Target, *, timeout_seconds: float) -> AbstractContextManager[None]:
        """Hold the lock on the sidecar file, which is never deleted and which other agents use as well."""
        path = self._path(target)
        if target is Target.PROJECT:
            make_folder(path.parent)  # the first write of a project
        return hold_lock(path.with_name(f"{path.name}.lock"), timeout_seconds=timeout_seconds)

    def replace(self, target: Target, text: str, *, expected: StoredPage) -> None:
        """Replace the file durably and verify it by reading it back."""
        path, data = self._path(target), text.encode()
        # the lock keeps other agents out, but not a text editor
        if (read_bytes(path) or b"") != expected.raw:
            raise Busy(f"{str(path)!r} was changed by another program at the same moment", "try again")
        self._write(path, data)
        with explain_errors("read back", path):
            if read_bytes(path) != data:
                raise StorageError(f"{str(path)!r} does not hold what was written", "check the disk, then try again")

    def back_up(self, target: Target, raw: bytes, *, epoch: int) -> str:
        """Keep the raw bytes as `MEMORY.md.bak.<epoch>`, once per distinct content, the newest ten."""
        path = self._path(target)
        existing = sorted(path.parent.glob(f"{path.name}.bak.*"), key=_epoch)
        for copy in existing:
            if _digest(read_bytes(copy) or b"") == _digest(raw):
                return copy.name
        copy = path.with_name(f"{path.name}.bak.{epoch}")
        while copy.exists():
            epoch += 1
            copy = path.with_name(f"{path.name}.bak.{epoch}")
        write_atomically(copy, raw)
        for old in existing[: max(0, len(existing) + 1 - BACKUPS_KEPT)]:
            old.unlink(missing_ok=True)
        return copy.name

    def _path(self, target: Target) -> Path:
        if target is not Target.PROJECT:
            return self._folder / FILE_NAMES[target]
        if not self._project:
            raise UsageError("there is no project here", "run it in the folder of a project")
        return self._folder / PROJECTS / self._project / FILE_NAMES[Target.MEMORY]


def project_folder(root: Path) -> str:
    """Return the folder of a project's page: its name, and a hash of its path, because names repeat."""
    root = Path(os.path.realpath(root))
    name = re.sub(r"[^\w.-]+", "-", root.name).strip("-.")[:40] or "project"
    return f"{name}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:8]}"


def nameless_folder(project: str) -> str:
    """Return what the folder of a project's page is called after its name was forgotten."""
    return f"forgotten-{project.rpartition('-')[2]}"


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _epoch(path: Path) -> int:
    suffix = path.name.rpartition(".")[2]
    return int(suffix) if suffix.isdigit() else 0

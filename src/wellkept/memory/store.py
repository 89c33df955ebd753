"""Curated memory of one user: two pages and one per project, frozen for a session and written durably."""

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.clock import SystemClock
from wellkept.core.errors import Busy, Reason, Refused, StorageError, Unreadable, UsageError
from wellkept.core.ids import OWNER, LedgerId, SourceName, UserId, sha256
from wellkept.core.ports import ignore
from wellkept.core.provenance import Kind, Source
from wellkept.core.regular_files import explain_errors
from wellkept.core.text import JSON, split_words
from wellkept.core.values import JsonStruct
from wellkept.memory.page import (
    OF_AGENT,
    PERSON,
    PINNED,
    Add,
    Author,
    Change,
    Edit,
    Page,
    Replace,
    Room,
    Step,
    StoredPage,
    Target,
    apply_edits,
    clean,
    find_drift,
    find_pinned,
    find_unverified,
    find_verdict,
    list_unsafe,
    mask_threats,
    page_hash,
    preview,
    refuse_batch,
    refuse_too_long,
    render,
    replay,
    shelve,
    steps_between,
    undone_ids,
)
from wellkept.memory.settings import MemorySettings
from wellkept.storage.files import make_folder, move, read_bytes, read_with_stamp, remove_stale_temps, write_atomically
from wellkept.storage.locks import hold_lock

if TYPE_CHECKING:
    from wellkept.core.ids import SourceName
    from wellkept.core.ports import Clock, EventSink
    from wellkept.memory.ledger import Ledger


log = logging.getLogger(__name__)

_LEDGER_REMEDY = "see `kept doctor` for the state of memories/ledger.db"

Decide: TypeAlias = Callable[[Page], Change | Refused]
"""Receives the page under its lock and returns what it becomes."""
NoteFacts: TypeAlias = Callable[[Mapping[str, float | None]], Mapping[str, str]]
"""Receives the entries of a project's page, each with the time of its last change, and returns notes on some."""


class Pages(Protocol):
    """The storage of one user's pages: files, or rows of a server. It never returns another user's data.

    `wellkept.testing.memory_contract` has the suite that every implementation must pass.
    """

    def prepare(self) -> None:
        """Create what the first read or write needs, and remove what killed writers left behind."""

    def for_project(self, project: str | None) -> "Pages":
        """Return the same pages with that of a project, given by its folder."""

    def projects(self) -> list[str]:
        """Return the folders of all projects that have a page."""

    def find_project(self, project: str) -> str:
        """Return the folder of a project's page, or its neutral folder if the project's name was forgotten."""

    def rename_project(self, old: str, new: str) -> None:
        """Give the folder of a project, which has a page, another name."""

    def name(self, target: Target) -> str:
        """Return the name of the page for messages, such as `MEMORY.md`."""

    def read(self, target: Target) -> StoredPage:
        """Return a page, empty when it does not exist; raises StorageError when it cannot be read."""

    def lock(self, target: Target, *, timeout_seconds: float) -> AbstractContextManager[None]:
        """Keep every other writer of this page out, or raise Busy after the timeout. Readers never wait."""

    def replace(self, target: Target, text: str, *, expected: StoredPage) -> None:
        """Replace a page durably and as a whole; call it under the lock.

        Raises Busy, and changes nothing, when the page no longer has the bytes of `expected`.
        """

    def back_up(self, target: Target, raw: bytes, *, epoch: int) -> str:
        """Keep a copy of the raw bytes, once per distinct content, the newest ten; return the copy's name."""

    def archive(self) -> "Pages":
        """Return the archives of these pages: what left them to make room. They are written under the pages' locks."""


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
            # an entry that moves is for a moment in both places, so that a killed writer loses none
            self._add_to_archive(target, change.archived)
            if change.entries != page.entries or repair:
                self._pages.replace(target, after.text, expected=stored)
            self.drop_archived(target, {*change.entries, *change.withdrawn})
        self._report(target, change, ids, author)
        return WrittenPage(after, change, tuple(ids), self._warn(trouble))

    def _add_to_archive(self, target: Target, texts: Sequence[str]) -> None:
        """Append texts to the archive of a page; raises Unreadable, and changes nothing, if it cannot be read."""
        if texts:
            stored = self._pages.archive().read(target)
            entries = tuple(dict.fromkeys((*stored.entries, *texts)))
            if entries != stored.entries:
                self._pages.archive().replace(target, Page(entries, 0).text, expected=stored)

    def drop_archived(self, target: Target, texts: Collection[str]) -> None:
        """Remove texts from the archive of a page; call it under the lock of the page."""
        stored = self._pages.archive().read(target)
        if not stored.raw:
            return
        try:
            rest = tuple(entry for entry in stored.entries if entry not in texts)
        except Unreadable:  # reported by `kept doctor`; readers leave out what is on the page
            return
        if rest != stored.entries:
            self._pages.archive().replace(target, Page(rest, 0).text, expected=stored)

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
    recorded = replay(ledger.rows(target))
    change = Change(entries, steps_between(recorded, entries))
    # what is there when kept first looks at a home is the person's own set-up
    sources = find_outside(target, recorded, entries) if ledger.is_watched() else {}
    ledger.append(target, change, recorded, author=Author(origin="outside", sources=sources), now=now)


def find_outside(target: Target, recorded: Sequence[str], entries: Sequence[str]) -> dict[str, SourceName]:
    """Return the entries that were put on a page without kept, each with the page's file as its source."""
    source = Source(Kind.OUTSIDE, FILE_NAMES.get(target, "MEMORY.md")).stored
    return {entry: source for entry in entries if entry not in recorded}


FILE_NAMES = {Target.MEMORY: "MEMORY.md", Target.USER: "USER.md"}
PROJECTS = "projects"
"""The folder of the projects' folders."""
ARCHIVE = "archive"
"""The folder of what left the pages to make room; it is divided as that of the pages."""
BACKUPS_KEPT = 10


class FilePages:
    """The pages in one folder, `memories/`, and that of one project below; implements `Pages`."""

    def __init__(
        self,
        folder: Path,
        *,
        project: str | None = None,
        write: Callable[[Path, bytes], None] = write_atomically,
        part: str = "",
    ) -> None:
        self._root = folder
        self._folder = folder / part
        self._project = project
        self._write = write

    def for_project(self, project: str | None) -> "FilePages":
        """Return the same pages with that of a project, given by its folder."""
        return FilePages(self._root, project=project, write=self._write)

    def archive(self) -> "FilePages":
        """Return the archives of these pages: files of the same format and names, in a folder of their own."""
        return FilePages(self._root, project=self._project, write=self._write, part=ARCHIVE)

    def projects(self) -> list[str]:
        """Return the folders of all projects that have a page."""
        return sorted(path.parent.name for path in (self._folder / PROJECTS).glob("*/MEMORY.md"))

    def find_project(self, project: str) -> str:
        """Return the folder of a project's page, or its neutral folder if the project's name was forgotten."""
        nameless = nameless_folder(project)
        return nameless if (self._folder / PROJECTS / nameless).is_dir() else project

    def rename_project(self, old: str, new: str) -> None:
        """Give the folders of a project, that of its archive too, another name."""
        for part in (ARCHIVE, ""):
            source, target = (self._folder / part / PROJECTS / name for name in (old, new))
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
        if self._folder == self._root and (self._root / ARCHIVE).is_dir():
            self.archive().prepare()

    def name(self, target: Target) -> str:
        """Return the file name of a page, below the folder."""
        return self._path(target).relative_to(self._root).as_posix()

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
        make_folder(path.parent)  # the first entry of an archive
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
    return f"{name}-{sha256(os.fsencode(root)).hexdigest()[:8]}"


def nameless_folder(project: str) -> str:
    """Return the neutral folder of a project's page, used after the project's name was forgotten."""
    return f"forgotten-{project.rpartition('-')[2]}"


def _digest(data: bytes) -> bytes:
    return sha256(data).digest()


def _epoch(path: Path) -> int:
    suffix = path.name.rpartition(".")[2]
    return int(suffix) if suffix.isdigit() else 0


class Outcome(JsonStruct, frozen=True):
    """An accepted edit: the state of the page after it, and the message for the answer."""

    target: Target
    message: str
    entry_count: int
    used_chars: int
    char_limit: int
    ledger_ids: tuple[LedgerId, ...] = ()
    note: str = ""
    change: Change = field(name="_change", default_factory=lambda: Change((), ()))
    moved: tuple[str, ...] = field(name="_moved", default=())
    """The beginnings of the entries that moved to the archive, as a model may see them."""
    contradicts: tuple[str, ...] = field(name="_contradicts", default=())
    """Entries that may say another value of the same thing as the one that was added."""

    def as_json(self) -> dict[str, JSON]:
        """Return the outcome as commands print it with --json."""
        contradicts: dict[str, JSON] = {"contradicts": [*self.contradicts]} if self.contradicts else {}
        return {"success": True, **super().as_json(), **contradicts}


MOST_ARCHIVED_CHARS = 65_536
"""The length up to which a text that no page can hold goes to the archive."""

_SWITCHES = {Target.MEMORY: "memory_enabled", Target.USER: "user_profile_enabled", Target.PROJECT: "memory_enabled"}
"""The setting that switches a page off; that of a project is also off without the page `memory`."""


class Storage(Struct, frozen=True):
    """Where the pages of one user are kept, and the ledger of their edits."""

    pages: "Pages"
    ledger: "Ledger"


class MemoryStore:
    """The two pages of one user, in that user's folder or in another storage. Everything else has a default."""

    def __init__(
        self,
        storage: Path | str | Storage,
        settings: MemorySettings | None = None,
        *,
        user: UserId = OWNER,
        project: str | None = None,
        clock: "Clock | None" = None,
        sink: "EventSink" = ignore,
    ) -> None:
        self.project = project
        """The folder of the project's page; None where no project is known."""
        self.user = user
        self.settings = settings or MemorySettings()
        self.clock = clock or SystemClock()
        self.sink = sink
        opened = _open_folder(Path(storage), user) if isinstance(storage, Path | str) else storage
        self._opened = opened
        self.pages, self.ledger = opened.pages, opened.ledger
        if project is not None:
            self.pages, self.ledger = opened.pages.for_project(project), opened.ledger.for_project(project)
        self._frozen: Mapping[Target, str | None] | None = None
        self._note_facts: NoteFacts | None = None
        self._writer = PageWriter(
            self.pages, self.ledger, clock=self.clock, sink=sink, timeout_seconds=self.settings.lock_timeout_seconds
        )

    def close(self) -> None:
        """Close the ledger; the next use opens it again."""
        self._opened.ledger.close()

    def for_project(self, project: str | None, note_facts: NoteFacts | None = None) -> "MemoryStore":
        """Return the same memory with the page of another project, given by its folder; closing one closes all.

        `note_facts` checks that page against the project when it is loaded.
        """
        if project == self.project:
            return self
        bound = MemoryStore(
            self._opened, self.settings, user=self.user, project=project, clock=self.clock, sink=self.sink
        )
        bound._note_facts = note_facts
        return bound

    def projects(self) -> "list[MemoryStore]":
        """Return this memory once for each project that has a page."""
        return [self.for_project(project) for project in self.pages.projects()]

    def rename_project(self, old: str, new: str) -> None:
        """Give a project's page another name; a repetition completes one that was interrupted."""
        self._opened.ledger.rename_project(old, new)
        self._opened.pages.rename_project(old, new)

    @property
    def targets(self) -> tuple[Target, ...]:
        """Return the pages of this store; the page of the project only if a project is known."""
        return tuple(Target) if self.project is not None else (Target.MEMORY, Target.USER)

    def is_enabled(self, target: Target) -> bool:
        """Whether this page is here and the settings enable it."""
        match target:
            case Target.MEMORY:
                return self.settings.memory_enabled
            case Target.USER:
                return self.settings.user_profile_enabled
            case Target.PROJECT:
                return self.project is not None and self.settings.project_pages and self.settings.memory_enabled

    def limit(self, target: Target) -> int:
        """Return how many characters this page may contain."""
        match target:
            case Target.MEMORY:
                return self.settings.memory_char_limit
            case Target.USER:
                return self.settings.user_char_limit
            case Target.PROJECT:
                return self.settings.project_char_limit

    def page(self, target: Target | str) -> Page:
        """Return the page as it is stored now; raises Unreadable when it cannot be read."""
        target = Target(target)
        return Page(self.pages.read(target).entries, self.limit(target))

    def entries(self, target: Target | str) -> list[str]:
        """Return the live entries of a page."""
        return list(self.page(target).entries)

    def archived(self, target: Target | str) -> list[str]:
        """Return the entries that moved to the archive of a page, oldest first, without those that are back on it."""
        archived = self.pages.archive().read(Target(target)).entries
        live = self.pages.read(Target(target)).entries if archived else ()
        return [entry for entry in archived if entry not in live]

    def drop_archived(self, target: Target, texts: Collection[str]) -> None:
        """Remove texts from the archive of a page; the ledger keeps what it says about them."""
        with self.pages.lock(target, timeout_seconds=self.settings.lock_timeout_seconds):
            self._writer.drop_archived(target, texts)

    def mask(self, target: Target, entries: Sequence[str], *, is_page: bool = False) -> list[str]:
        """Return texts of a page as a model may see them: threats as a marker, unverified entries with their source.

        `is_page` means that they are all of the page as it is now, so that the ledger must know each of them.
        """
        return mask_threats(
            entries,
            partial(self.allowed_rules, target),
            unverified=self.list_unverified(target, entries if is_page else ()),
            clean=partial(self._read_clean, target),
        )

    def list_unverified(self, target: Target, entries: Sequence[str] | None = None) -> "Mapping[str, SourceName]":
        """Return the entries of a page that came from a source and that no person confirmed, each with its source.

        `entries` are those of the page, if the caller has read it; without any, the ledger alone is asked.
        """
        if self.settings.untrusted == "allow" or target not in self.targets:
            return {}
        try:
            recorded = find_unverified(self.ledger.rows(target)) if self.ledger.has_sources() else {}
            live = self.pages.read(target).entries if entries is None else tuple(entries)
            return {**recorded, **self._find_unrecorded(target, live)}
        except StorageError:
            return {}

    def _find_unrecorded(self, target: Target, entries: tuple[str, ...]) -> "Mapping[str, SourceName]":
        """Return the entries that were put on a page without kept since the last write."""
        newest = self.ledger.newest(target) if entries else None
        if not entries or page_hash(entries) == (newest.page_after if newest is not None else ""):
            return {}
        return find_outside(target, replay(self.ledger.rows(target)), entries) if self.ledger.is_watched() else {}

    def record_outside_edits(self) -> None:
        """Record changes that were made without kept; the first time, accept the pages as the person's own."""
        is_watched = self.ledger.is_watched()
        stores = [self] if is_watched else [self, *self.projects()]
        for store in stores:
            for target in store.targets:
                store._record_page(target)  # noqa: SLF001 - the same memory, of another project
        if not is_watched:
            self.ledger.watch()

    def _record_page(self, target: Target) -> None:
        newest = self.ledger.newest(target)
        if page_hash(self.pages.read(target).entries) != (newest.page_after if newest is not None else page_hash(())):
            self._writer.record_outside_edits(target)

    def _read_clean(self, target: Target) -> Collection[bytes]:
        """Return the digests of entries in which the scanner found nothing when they were written."""
        try:
            return self.ledger.clean_entries(target)
        except StorageError:
            return ()

    def load(self) -> Mapping[Target, str | None]:
        """Read the pages and freeze their blocks until the next call."""
        with suppress(StorageError):  # a home that cannot be written can still be read
            self.pages.prepare()
            self.record_outside_edits()
        self._frozen = {target: self._render(target) for target in self.targets}
        return self._frozen

    def render_snapshot(self, target: Target | str) -> str | None:
        """Return the frozen block of a page, None when it has none; loads the pages first if necessary."""
        frozen = self._frozen if self._frozen is not None else self.load()
        return frozen.get(Target(target))

    def _render(self, target: Target) -> str | None:
        if not self.is_enabled(target):
            return None
        try:
            page = self.page(target)
        except Unreadable as error:
            from wellkept.core.events import Warned

            self.sink(Warned(f"the prompt does not contain this page: {error.message}", error.remedy))
            return None
        shown = self.mask(target, page.entries, is_page=True)
        if target is Target.PROJECT:
            notes = self.note_facts(page.entries)
            pairs = zip(page.entries, shown, strict=True)
            shown = [f"{text} {notes[entry]}" if entry in notes else text for entry, text in pairs]
        return render(target, page, shown)

    def note_facts(self, entries: Sequence[str]) -> Mapping[str, str]:
        """Return short notes on the entries of the project's page that the project no longer confirms."""
        if self._note_facts is None or not entries or not self.settings.check_project:
            return {}
        unsafe = list_unsafe(entries, partial(self._read_clean, Target.PROJECT))
        return self._note_facts(self.changed_times(Target.PROJECT, [one for one in entries if one not in unsafe]))

    def changed_times(self, target: Target, entries: Sequence[str]) -> dict[str, float | None]:
        """Return when each entry was last changed; None if the ledger does not know it."""
        try:
            times = {row.step.after: row.time for row in self.ledger.rows(target)}
        except StorageError:
            times = {}
        return {entry: times.get(entry) for entry in entries}

    def allowed_rules(self, target: Target, entry: str) -> frozenset[str]:
        """Return the scanner rules that a person allowed for this entry and did not undo."""
        try:
            rows = self.ledger.rows(target)
        except StorageError:
            return frozenset()
        undone = undone_ids(rows)
        return frozenset[str]().union(
            *(row.allowed for row in rows if row.step.after == entry and row.id not in undone)
        )

    def apply(self, target: Target | str, edit: Edit, author: Author | None = None) -> Outcome | Refused:
        """Apply one edit."""
        return self.apply_all(target, (edit,), author)

    def apply_all(self, target: Target | str, edits: Sequence[Edit], author: Author | None = None) -> Outcome | Refused:
        """Apply all edits or none; the size is checked on the final state only."""
        target, author = Target(target), author or Author()
        refused = self.check(target, edits, author)
        if refused is not None:
            return refused

        def decide(page: Page) -> Change | Refused:
            change = self._change(target, page, edits, author)
            if isinstance(change, Refused) or change.steps:
                return change
            return self._vouch(target, page, edits, author) or change

        return self.write(target, decide, author)

    def dry_run(self, target: Target, edits: Sequence[Edit], author: Author) -> Outcome | Refused:
        """Return what `apply_all` would do to the page as it is now; writes nothing."""
        change = self.check(target, edits, author) or self._change(target, self.page(target), edits, author)
        if isinstance(change, Refused):
            return self._mask_matches(target, change)
        return self._outcome(target, WrittenPage(Page(change.entries, self.limit(target)), change, ()))

    def _change(self, target: Target, page: Page, edits: Sequence[Edit], author: Author) -> Change | Refused:
        return apply_edits(page, edits, room=self._find_room(target, author))

    def _find_room(self, target: Target, author: Author) -> Room | None:
        """Return how a full page makes room for this author, None if it must not: the write is refused then."""
        match self.settings.overflow:
            case "curate" if author.origin in PERSON:
                return Room(partial(self._sort_by_use, target), is_never_refused=True)
            case "archive":
                return Room(partial(self._list_movable, target, author))
            case _:
                return None

    def _list_movable(self, target: Target, author: Author, entries: Sequence[str]) -> list[str]:
        """Return the entries that a write may move to the archive; an untrusted source moves no verified entry."""
        from wellkept.core.provenance import read_source

        is_foreign = any(not read_source(source).is_own for source in author.sources.values())
        if is_foreign and author.origin in OF_AGENT and self.settings.untrusted == "hold":
            unverified = self.list_unverified(target)
            entries = [entry for entry in entries if entry in unverified]
        return self._sort_oldest_first(target, self._drop_pinned(target, entries))

    def _sort_by_use(self, target: Target, entries: Sequence[str]) -> list[str]:
        """Return `entries`, the least useful first: what a later one says too, then by the time of the last change."""
        by_age = self._sort_oldest_first(target, self._drop_pinned(target, entries))
        words = [frozenset(split_words(entry.casefold())) for entry in by_age]
        repeated = {
            entry for place, entry in enumerate(by_age) if any(words[place] <= later for later in words[place + 1 :])
        }
        return sorted(by_age, key=lambda entry: entry not in repeated)

    def _drop_pinned(self, target: Target, entries: Sequence[str]) -> list[str]:
        try:
            pinned = find_pinned(self.ledger.rows(target))
        except StorageError:
            pinned = set()
        return [entry for entry in entries if entry not in pinned]

    def pin(self, target: Target, needle: str, author: Author) -> Outcome | Refused:
        """Keep the one entry that contains a text on its page whatever its age, or no longer: `author.reason` says it.

        An entry that is marked so already is left as it is.
        """

        def decide(page: Page) -> Change | Refused:
            index = page.entries.index(needle) if needle in page.entries else page.find(needle)
            if isinstance(index, Refused):
                return index
            entry, wants_pin = page.entries[index], author.reason == PINNED
            if (entry in find_pinned(self.ledger.rows(target))) is wants_pin:
                return Change(page.entries, (), f"The entry is {'pinned' if wants_pin else 'not pinned'} already.")
            return Change(
                page.entries, (Step("replace", entry, entry, index),), "Pinned." if wants_pin else "Unpinned."
            )

        return self._refuse_disabled(target) if not self.is_enabled(target) else self.write(target, decide, author)

    def _vouch(self, target: Target, page: Page, edits: Sequence[Edit], author: Author) -> Change | None:
        """Return the change that records a person's permission or confirmation for entries already on the page.

        The rows remove and re-add the entry, so that undo takes the permission back as well.
        """
        texts = [clean(edit.text) for edit in edits if isinstance(edit, Add | Replace)]
        unverified = self.list_unverified(target) if author.origin in PERSON else {}
        steps = [
            step
            for entry in texts
            if isinstance(entry, str) and (entry in unverified or not author.allow <= self.allowed_rules(target, entry))
            for index in [page.entries.index(entry)]
            for step in (Step("remove", entry, None, index), Step("add", None, entry, index))
        ]
        message = f"Allowed for this entry from now on: {', '.join(sorted(author.allow))}."
        return Change(page.entries, tuple(steps), message if author.allow else "Confirmed.") if steps else None

    def write(self, target: Target, decide: Decide, author: Author, *, repair: bool = False) -> Outcome | Refused:
        """Run the write cycle with a decision of the caller (undo, repair, restore)."""
        if not repair:
            with suppress(StorageError):  # the write itself reports what is wrong with the ledger
                if not self.ledger.is_watched():
                    self.record_outside_edits()
        result = self._writer.write(target, self.limit(target), decide, author=author, repair=repair)
        if isinstance(result, Refused):
            return self._mask_matches(target, result)
        return self._outcome(target, result)

    def archive(self, target: Target, texts: Sequence[str], author: Author) -> Outcome | Refused:
        """Store texts in the archive of a page without putting them on it."""
        steps = tuple(Step("archive", text, None, -1) for text in texts)
        return self.write(target, lambda page: Change(page.entries, steps, "Archived.", is_only_copy=True), author)

    def keep_archived(self, target: Target, texts: Sequence[str], author: Author) -> Outcome | Refused:
        """Add texts to those that left the page to make room, as if they had been on it."""

        def decide(page: Page) -> Change:
            fresh = [text for text in texts if text not in page.entries]
            added, moved = shelve(page.entries, fresh)
            return Change(page.entries, added, "Archived.", moved, archived=tuple(fresh), is_only_copy=True)

        return self.write(target, decide, author)

    def _outcome(self, target: Target, written: WrittenPage) -> Outcome:
        displaced = [step.before or "" for step in written.change.overflow]
        moved = tuple(preview(text) for text in self.mask(target, displaced)) if displaced else ()
        return Outcome(
            target=target,
            message=written.change.message,
            entry_count=len(written.page.entries),
            used_chars=len(written.page.text),
            char_limit=written.page.limit,
            ledger_ids=written.ledger_ids,
            note=_describe_moves(written, moved) if moved else written.warning,
            change=written.change,
            moved=moved,
        )

    def _mask_matches(self, target: Target, refused: Refused) -> Refused:
        """Return the refusal with masked previews: a poisoned entry must not reach a model through an error."""
        matches = refused.detail.get("matches")
        if not isinstance(matches, list):
            return refused
        live = self.page(target).entries
        by_preview = {
            preview(entry): preview(masked) for entry, masked in zip(live, self.mask(target, live), strict=True)
        }
        return replace(
            refused, detail={**refused.detail, "matches": [by_preview.get(str(match), match) for match in matches]}
        )

    def check(self, target: Target, edits: Sequence[Edit], author: Author) -> Refused | None:
        """Return why these edits are refused regardless of the page's entries: disabled page or invalid text."""
        if not self.is_enabled(target):
            return self._refuse_disabled(target)
        for number, edit in enumerate(edits, start=1):
            refused = self._check_edit(target, edit, author, is_last=number == len(edits))
            if refused is not None:
                return refuse_batch(refused, number, len(edits), reason=refused.reason)
        return None

    def _refuse_disabled(self, target: Target) -> Refused:
        if target is Target.PROJECT and self.project is None and self.settings.project_pages:
            remedy = "work in the folder of a project, or use the page 'memory'"
            return Refused(Reason.DISABLED, "There is no project here.", remedy)
        is_project = target is Target.PROJECT and self.settings.memory_enabled
        setting = "project_pages" if is_project else _SWITCHES[target]
        remedy = f"`kept config set memory.{setting} true` (run by the user) switches it on; do not retry before that."
        return Refused(Reason.DISABLED, f"The page '{target}' is disabled.", remedy)

    def _check_edit(self, target: Target, edit: Edit, author: Author, *, is_last: bool) -> Refused | None:
        if not isinstance(edit, Add | Replace):
            return None
        entry = clean(edit.text)
        if isinstance(entry, Refused):
            return entry
        # before the scan, so that megabytes are not scanned; an earlier step of a batch may be replaced by a later one
        room = self._find_room(target, author)
        limit = MOST_ARCHIVED_CHARS if room is not None and room.is_never_refused else 0
        if is_last and len(entry) > max(limit, self.limit(target)) and len(entry) > len(self.page(target).text):
            return refuse_too_long(self.page(target), entry)
        return check_text(entry, author.allow)

    def _sort_oldest_first(self, target: Target, entries: Sequence[str]) -> list[str]:
        """Return `entries` by their last change; those unknown to the ledger come first."""
        try:
            return sorted(entries, key=lambda entry: self.ledger.last_change(target, entry))
        except StorageError:
            return list(entries)


def _describe_moves(written: WrittenPage, moved: Sequence[str]) -> str:
    """Return which entries moved to the archive, and the commands that bring them back."""
    ids = written.ledger_ids[len(written.change.steps) :]
    commands = ", ".join(f"`kept memory restore {ledger_id}`" for ledger_id in ids)
    return f"Moved to the archive to make room: {'; '.join(moved)}" + (f" (back: {commands})" if commands else "")


def _open_folder(folder: Path, user: UserId) -> Storage:
    from wellkept.memory.ledger import Ledger

    return Storage(FilePages(folder), Ledger(folder / "ledger.db", user=user))


def find_contradicted(entries: Iterable[str], text: str) -> list[str]:
    """Return the entries that a text may take the place of, because it says another value of the same thing."""
    others = [entry for entry in entries if entry != text]
    if not others:
        return []
    from wellkept.facts.comparison import LIKELY, compare, read  # reads word lists, which most processes do not need

    later = read(text)
    return [entry for entry in others if compare(read(entry), later) >= LIKELY]


def check_text(text: str, allow: frozenset[str] = frozenset()) -> Refused | None:
    """Return why the scanner refuses a text, None when only rules in `allow` match."""
    verdict = find_verdict(text, allow)
    if verdict.verdict == "clean":
        return None
    rules: list[str] = sorted({finding.rule for finding in verdict.findings})
    named = ", ".join(
        f"{finding.rule} ({finding.detail})" if finding.detail else finding.rule for finding in verdict.findings
    )
    if verdict.blocked:
        return Refused(
            Reason.BLOCKED,
            f"The content matches threat rules: {named}.",
            "Do not store it. State the bare fact without instructions, secrets or hidden characters.",
            {"rules": rules},
        )
    return Refused(
        Reason.HELD,
        f"The content looks like an order or a risk, not a fact: {named}.",
        "Rephrase it as a declarative fact, or leave it to the user's approval.",
        {"rules": rules},
    )


def rules_in(refused: Refused) -> frozenset[str]:
    """Return the scanner rules that a refusal names."""
    rules = refused.detail.get("rules", ())
    return frozenset(str(rule) for rule in rules) if isinstance(rules, list | tuple) else frozenset()


def rules_to_approve(texts: Iterable[str]) -> frozenset[str] | Refused:
    """Return the rules that hold these texts, or the refusal of a text that is blocked.

    A person's approval lets held texts pass; it never lets a blocked one pass.
    """
    rules: frozenset[str] = frozenset()
    for text in texts:
        refused = check_text(text)
        if refused is not None and refused.reason is Reason.BLOCKED:
            return refused
        if refused is not None:
            rules |= rules_in(refused)
    return rules

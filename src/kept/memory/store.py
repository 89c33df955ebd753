"""Curated memory: two pages that are read as a frozen snapshot and written durably."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kept.core.clock import SystemClock
from kept.core.errors import KeptError, StorageError, Unreadable
from kept.core.events import Event, Warned
from kept.core.ids import LedgerId
from kept.core.ports import Clock, EventSink
from kept.core.refusal import Reason, Refused
from kept.memory.budget import changed
from kept.memory.edits import Add, Edit, Replace, Step, Target
from kept.memory.files import PageFiles
from kept.memory.ledger import Author, Change, Ledger
from kept.memory.page import Page, preview
from kept.memory.settings import MemorySettings
from kept.memory.snapshot import render, safe_entries
from kept.memory.writer import Decide, PageWriter, Written
from kept.security.scan import scan


@dataclass(frozen=True, slots=True)
class Outcome:
    """An accepted edit: what the page is like now, and what to tell."""

    target: Target
    message: str
    entry_count: int
    used_chars: int
    char_limit: int
    ledger_ids: tuple[LedgerId, ...] = ()
    note: str = ""
    change: Change = field(default_factory=lambda: Change((), ()))


def _ignore(event: Event, /) -> None:
    """Hear nothing."""


class MemoryStore:
    """The two pages in one folder. Opens with the folder alone; everything else has a default."""

    def __init__(
        self,
        folder: Path | str,
        settings: MemorySettings | None = None,
        *,
        clock: Clock | None = None,
        sink: EventSink = _ignore,
    ) -> None:
        self.files = PageFiles(Path(folder))
        self.settings = settings or MemorySettings()
        self.clock = clock or SystemClock()
        self._sink = sink
        self._frozen: Mapping[Target, str | None] | None = None
        self._writer = PageWriter(
            self.files,
            ledger=lambda: self.ledger,
            clock=self.clock,
            sink=sink,
            timeout_seconds=self.settings.lock_timeout_seconds,
        )

    @cached_property
    def ledger(self) -> Ledger:
        """The rows of every edit; raises StorageError where they cannot be opened."""
        return Ledger(self.files.folder / "ledger.db")

    def close(self) -> None:
        """Close the ledger."""
        if "ledger" in self.__dict__:
            self.ledger.close()
            del self.__dict__["ledger"]

    def tell(self, event: Event) -> None:
        """Tell the one sink."""
        self._sink(event)

    def enabled(self, target: Target) -> bool:
        """Whether the configuration has this page switched on."""
        return self.settings.memory_enabled if target is Target.MEMORY else self.settings.user_profile_enabled

    def limit(self, target: Target) -> int:
        """Return how many characters this page may hold."""
        return self.settings.memory_char_limit if target is Target.MEMORY else self.settings.user_char_limit

    def page(self, target: Target | str) -> Page:
        """Return the page as it is on disk now; raises Unreadable where it cannot be read."""
        target = Target(target)
        return Page(self.files.entries(target), self.limit(target))

    def entries(self, target: Target | str) -> list[str]:
        """Return the live entries of a page."""
        return list(self.page(target).entries)

    def shown_entries(self, target: Target) -> list[str]:
        """Return the live entries as a model may see them: poisoned ones as their marker."""
        return safe_entries(self.page(target).entries, lambda entry: self.allowed(target, entry))

    def load(self) -> Mapping[Target, str | None]:
        """Read both pages once and freeze their blocks until the next call."""
        self._frozen = {target: self._rendered(target) for target in Target}
        return self._frozen

    def render_snapshot(self, target: Target | str) -> str | None:
        """Return the frozen block of a page, loading first if that has not happened; None for no block."""
        frozen = self._frozen if self._frozen is not None else self.load()
        return frozen[Target(target)]

    def _rendered(self, target: Target) -> str | None:
        if not self.enabled(target):
            return None
        try:
            page = self.page(target)
        except Unreadable as error:
            self._sink(Warned(f"the prompt goes on without this page: {error.message}", error.remedy))
            return None
        return render(target, page, lambda entry: self.allowed(target, entry))

    def allowed(self, target: Target, entry: str) -> frozenset[str]:
        """Return the scanner rules that a person let pass for this entry."""
        if not (self.files.folder / "ledger.db").exists():
            return frozenset()
        try:
            return self.ledger.allowed(target, entry)
        except StorageError:
            return frozenset()

    def apply(self, target: Target | str, edit: Edit, author: Author | None = None) -> Outcome | Refused:
        """Apply one edit."""
        return self.apply_all(target, (edit,), author)

    def apply_all(self, target: Target | str, edits: Sequence[Edit], author: Author | None = None) -> Outcome | Refused:
        """Apply all edits or none; the size is checked on the final state only."""
        target, author = Target(target), author or Author()
        refused = self.checked(target, edits, author)
        if refused is not None:
            return refused
        messages: list[str] = []

        def decide(page: Page) -> Change | Refused:
            return changed(page, edits, archive_oldest=self._oldest_first(target), messages=messages)

        return self.write(target, decide, author, messages=messages)

    def write(
        self,
        target: Target,
        decide: Decide,
        author: Author,
        *,
        messages: Sequence[str] = (),
        repair: bool = False,
    ) -> Outcome | Refused:
        """Run the write cycle with a decision of the caller's (undo, repair, restore)."""
        result = self._writer.write(target, self.limit(target), decide, author=author, repair=repair)
        if isinstance(result, Refused):
            return result
        return _outcome(target, result, messages)

    def checked(self, target: Target, edits: Sequence[Edit], author: Author) -> Refused | None:
        """Return why these edits may not even be tried: the page is off, or the scanner objects."""
        if not self.enabled(target):
            return Refused(Reason.DISABLED, f"The page '{target}' is disabled.", "Do not retry; tell the user.")
        for edit in edits:
            if isinstance(edit, Add | Replace) and (refused := threat(edit.text, author.allow)) is not None:
                return refused
        return None

    def _oldest_first(self, target: Target) -> "Ages | None":
        return Ages(self, target) if self.settings.overflow == "archive" else None


@dataclass(frozen=True, slots=True)
class Ages:
    """Orders entries by when they were last changed, longest ago first."""

    store: MemoryStore
    target: Target

    def __call__(self, entries: Sequence[str]) -> list[str]:
        """Return `entries`, the one changed longest ago first; those the ledger does not know come before all."""
        try:
            return sorted(entries, key=lambda entry: self.store.ledger.last_change(self.target, entry))
        except KeptError:
            return list(entries)


def threat(text: str, allow: frozenset[str]) -> Refused | None:
    """Return the scanner's objection to a text, None when it is clean."""
    verdict = scan(text, allow=allow)
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


def _outcome(target: Target, written: Written, messages: Sequence[str]) -> Outcome:
    moved = [preview(step.before or "") for step, origin in _with_origins(written.change) if origin == "overflow"]
    note = f"Moved to the archive to make room: {'; '.join(moved)}" if moved else written.warning
    return Outcome(
        target=target,
        message=" ".join(dict.fromkeys(messages)) or "Done.",
        entry_count=len(written.page.entries),
        used_chars=len(written.page.text),
        char_limit=written.page.limit,
        ledger_ids=written.ledger_ids,
        note=note,
        change=written.change,
    )


def _with_origins(change: Change) -> list[tuple[Step, str]]:
    origins = change.origins or ("",) * len(change.steps)
    return list(zip(change.steps, origins, strict=True))

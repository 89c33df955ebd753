"""Curated memory: two pages that are read as a frozen snapshot and written durably."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from kept.core.clock import SystemClock
from kept.core.errors import Reason, Refused, StorageError, Unreadable
from kept.core.events import Event, Warned, ignore
from kept.core.ids import LedgerId
from kept.memory.edits import Add, Author, Change, Edit, Replace, Step, Target
from kept.memory.files import PageFiles
from kept.memory.ledger import Ledger
from kept.memory.page import Page, changed, clean, in_batch, preview, too_long
from kept.memory.settings import MemorySettings
from kept.memory.snapshot import render
from kept.memory.threats import objection, safe_entries
from kept.memory.writer import Decide, PageWriter, Written

if TYPE_CHECKING:
    from kept.core.ports import Clock, EventSink  # the page of ports draws in all the values they speak of


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


class MemoryStore:
    """The two pages in one folder. Opens with the folder alone; everything else has a default."""

    def __init__(
        self,
        folder: Path | str,
        settings: MemorySettings | None = None,
        *,
        clock: "Clock | None" = None,
        sink: "EventSink" = ignore,
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
        """The rows of every edit, only for reading where the folder allows no more; raises StorageError."""
        path = self.files.ledger
        try:
            return Ledger(path)
        except StorageError:
            if not path.is_file() or os.access(path.parent, os.W_OK):
                raise
            return Ledger(path, read_only=True)

    @property
    def has_ledger(self) -> bool:
        """Whether there are rows to look at; who only reads asks first, because opening makes the file."""
        return self.files.ledger.exists()

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
        return self.safe(target, self.page(target).entries)

    def safe(self, target: Target, entries: Sequence[str]) -> list[str]:
        """Return texts of a page as a model may see them: poisoned ones as their marker."""
        return safe_entries(entries, lambda entry: self.allowed(target, entry))

    def load(self) -> Mapping[Target, str | None]:
        """Read both pages once and freeze their blocks until the next call."""
        with suppress(StorageError):  # a home that cannot be written can still be read
            self.files.prepare()
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
        try:
            return self.ledger.allowed(target, entry) if self.has_ledger else frozenset()
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

        def decide(page: Page) -> Change | Refused:
            change = self._changed(target, page, edits)
            if isinstance(change, Refused) or change.steps or not author.allow:
                return change
            return self._allowing(target, page, edits, allow=author.allow) or change

        return self.write(target, decide, author)

    def _changed(self, target: Target, page: Page, edits: Sequence[Edit]) -> Change | Refused:
        oldest_first = partial(self._oldest_first, target) if self.settings.overflow == "archive" else None
        return changed(page, edits, oldest_first=oldest_first)

    def _allowing(self, target: Target, page: Page, edits: Sequence[Edit], *, allow: frozenset[str]) -> Change | None:
        """Return the change that writes entries which are there already once more, to let rules pass for them."""
        texts = [clean(edit.text) for edit in edits if isinstance(edit, Add | Replace)]
        steps = [
            step
            for entry in texts
            if isinstance(entry, str) and not allow <= self.allowed(target, entry)
            for place in [page.entries.index(entry)]
            for step in (Step("remove", entry, None, place), Step("add", None, entry, place))
        ]
        message = f"Allowed for this entry from now on: {', '.join(sorted(allow))}."
        return Change(page.entries, tuple(steps), message) if steps else None

    def tried(self, target: Target, edits: Sequence[Edit], author: Author) -> Outcome | Refused:
        """Return what `apply_all` would do to the page as it is now; writes nothing."""
        change = self.checked(target, edits, author) or self._changed(target, self.page(target), edits)
        if isinstance(change, Refused):
            return self._without_poison(target, change)
        written = Written(Page(change.entries, self.limit(target)), change, ())
        return self._outcome(target, written)

    def write(self, target: Target, decide: Decide, author: Author, *, repair: bool = False) -> Outcome | Refused:
        """Run the write cycle with a decision of the caller's (undo, repair, restore)."""
        result = self._writer.write(target, self.limit(target), decide, author=author, repair=repair)
        if isinstance(result, Refused):
            return self._without_poison(target, result)
        return self._outcome(target, result)

    def archive(self, target: Target, texts: Sequence[str], author: Author) -> Outcome | Refused:
        """Keep texts in the archive of a page without putting them on it."""
        steps = tuple(Step("archive", text, None, -1) for text in texts)
        return self.write(target, lambda page: Change(page.entries, steps, "Archived.", is_only_copy=True), author)

    def _outcome(self, target: Target, written: Written) -> Outcome:
        displaced = [step.before or "" for step in written.change.overflow]
        moved = [preview(text) for text in self.safe(target, displaced)]
        return Outcome(
            target=target,
            message=written.change.message,
            entry_count=len(written.page.entries),
            used_chars=len(written.page.text),
            char_limit=written.page.limit,
            ledger_ids=written.ledger_ids,
            note=f"Moved to the archive to make room: {'; '.join(moved)}" if moved else written.warning,
            change=written.change,
        )

    def _without_poison(self, target: Target, refused: Refused) -> Refused:
        """Return a refusal whose previews show no entry that a block rule matches."""
        matches = refused.detail.get("matches")
        if not isinstance(matches, list):
            return refused
        live = self.page(target).entries
        shown = {preview(entry): preview(safe) for entry, safe in zip(live, self.safe(target, live), strict=True)}
        return dataclasses.replace(
            refused, detail={**refused.detail, "matches": [shown.get(str(match), match) for match in matches]}
        )

    def checked(self, target: Target, edits: Sequence[Edit], author: Author) -> Refused | None:
        """Return why these edits may not even be tried: the page is off, or the scanner objects."""
        if not self.enabled(target):
            setting = "memory_enabled" if target is Target.MEMORY else "user_profile_enabled"
            remedy = (
                f"`kept config set memory.{setting} true` (run by the user) switches it on; do not retry before that."
            )
            return Refused(Reason.DISABLED, f"The page '{target}' is disabled.", remedy)
        for number, edit in enumerate(edits, start=1):
            refused = self._objection(target, edit, author, is_last=number == len(edits))
            if refused is not None:
                return in_batch(refused, number, len(edits), reason=refused.reason)
        return None

    def _objection(self, target: Target, edit: Edit, author: Author, *, is_last: bool) -> Refused | None:
        if not isinstance(edit, Add | Replace):
            return None
        entry = clean(edit.text)
        if isinstance(entry, Refused):
            return entry
        page = self.page(target)
        if is_last and len(entry) > max(page.limit, len(page.text)):
            return too_long(page, entry)  # no page can hold it, so that megabytes need no scan
        return objection(entry, author.allow)

    def _oldest_first(self, target: Target, entries: Sequence[str]) -> list[str]:
        """Return `entries`, the one changed longest ago first; those the ledger does not know come before all."""
        try:
            return sorted(entries, key=lambda entry: self.ledger.last_change(target, entry))
        except StorageError:
            return list(entries)

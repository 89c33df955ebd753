"""The write cycle of a page: lock, re-read, drift, decide, ledger, replace, read back."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kept.core.errors import Reason, Refused, StorageError
from kept.core.events import MemoryWritten, Warned
from kept.core.ids import LedgerId
from kept.memory.edits import Author, Change, Target
from kept.memory.files import NAMES, PageFiles
from kept.memory.ledger import Ledger
from kept.memory.page import Page, drifted
from kept.storage.locks import hold_lock

if TYPE_CHECKING:
    from kept.core.ports import Clock, EventSink  # the page of ports draws in all the values they speak of

log = logging.getLogger(__name__)

_LEDGER_REMEDY = "see `kept doctor` for the state of memories/ledger.db"

Decide: TypeAlias = Callable[[Page], Change | Refused]
"""Looks at the page under its lock and says what it shall become; pure but for reading the ledger."""


@dataclass(frozen=True, slots=True)
class Written:
    """A page after its write, with the ledger rows that tell of it (none when the ledger is out of order)."""

    page: Page
    change: Change
    ledger_ids: tuple[LedgerId, ...]
    warning: str = ""


class PageWriter:
    """Changes pages so that no accepted edit is ever lost or torn."""

    def __init__(
        self,
        files: PageFiles,
        *,
        ledger: Callable[[], Ledger],
        clock: "Clock",
        sink: "EventSink",
        timeout_seconds: float,
    ) -> None:
        self._files = files
        self._ledger = ledger
        self._clock = clock
        self._sink = sink
        self._timeout_seconds = timeout_seconds

    def write(
        self, target: Target, limit: int, decide: Decide, *, author: Author, repair: bool = False
    ) -> Written | Refused:
        """Run one cycle; nothing is changed on a refusal or an error. `repair` skips the drift check."""
        self._files.prepare()
        with hold_lock(self._files.sidecar(target), timeout_seconds=self._timeout_seconds):
            if repair:
                ledger, trouble, entries = self._as_the_ledger_knows(target)
                page = Page(entries, limit)
            else:
                page = Page(self._files.entries(target), limit)
                if (refused := self._drift(target, page)) is not None:
                    return refused
                ledger, trouble = self._settled_ledger(target, page.entries)
            change = decide(page)
            if isinstance(change, Refused):
                return change
            if not change.steps and change.entries == page.entries and not repair:
                return Written(page, change, ())
            ids, trouble = self._enter(ledger, target, change, before=page, author=author) if ledger else ([], trouble)
            if trouble and change.is_only_copy:
                raise StorageError(f"nothing was changed: the archive cannot be written: {trouble}", _LEDGER_REMEDY)
            after = Page(change.entries, limit)
            if change.entries != page.entries or repair:
                self._files.write(target, after)
        self._tell(target, change, ids, author)
        return Written(after, change, tuple(ids), self._told(trouble))

    def _settled_ledger(self, target: Target, entries: tuple[str, ...]) -> tuple[Ledger | None, str]:
        try:
            ledger = self._ledger()
            ledger.settle(target, entries, now=self._clock.now().timestamp(), stamp=self._files.stamp(target))
        except StorageError as error:
            return None, error.message
        return ledger, ""

    def _as_the_ledger_knows(self, target: Target) -> tuple[Ledger | None, str, tuple[str, ...]]:
        """Return the last page that the ledger knows, because the file itself is not to be trusted."""
        try:
            ledger = self._ledger()
            return ledger, "", ledger.replayed(target)
        except StorageError as error:
            return None, error.message, ()

    def _enter(
        self, ledger: Ledger, target: Target, change: Change, *, before: Page, author: Author
    ) -> tuple[list[LedgerId], str]:
        try:
            now = self._clock.now().timestamp()
            stamp = self._files.stamp(target)
            return ledger.enter(target, change, before.entries, author=author, now=now, stamp=stamp), ""
        except StorageError as error:
            return [], error.message

    def _told(self, trouble: str) -> str:
        """Say that the ledger misses this edit: the page is canonical, so the edit itself went on."""
        if not trouble:
            return ""
        message = f"the edit is not in the ledger and cannot be undone: {trouble}"
        log.warning("ledger_unavailable %s", trouble)
        self._sink(Warned(message, _LEDGER_REMEDY))
        return message

    def _drift(self, target: Target, page: Page) -> Refused | None:
        trouble = drifted(page.entries, page.limit, self._known_long_ones(target, page))
        if trouble is None:
            return None
        copy = self._files.back_up(target, self._files.raw(target), int(self._clock.now().timestamp()))
        return Refused(
            Reason.DRIFT,
            f"{NAMES[target]} was changed outside kept: {trouble}. Its bytes are saved as {copy.name}.",
            f"`kept memory repair --target {target}` (run by the user) resolves it; no edit is accepted before that.",
        )

    def _known_long_ones(self, target: Target, page: Page) -> set[str]:
        """Return the entries over the limit that the ledger has seen: only the limit can have changed since."""
        long = [entry for entry in page.entries if len(entry) > page.limit]
        try:
            return {entry for entry in long if self._ledger().knows(target, entry)}
        except StorageError:
            return set()

    def _tell(self, target: Target, change: Change, ids: list[LedgerId], author: Author) -> None:
        for number, (step, origin) in enumerate(change.with_origins(author)):
            ledger_id = ids[number] if ids else None
            self._sink(
                MemoryWritten(
                    ledger_id, step.action, target, step.before, step.after, origin, session_id=author.session_id
                )
            )

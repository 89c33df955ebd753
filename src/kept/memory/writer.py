"""The write cycle of a page: lock, re-read, check for drift, decide, append to the ledger, replace."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kept.core.errors import Reason, Refused, StorageError
from kept.core.events import MemoryWritten, Warned
from kept.core.ids import LedgerId
from kept.memory.edits import Author, Change, Target, replay, steps_between
from kept.memory.page import Page, StoredPage, find_drift, page_hash

if TYPE_CHECKING:  # importing the ports would load every value they mention
    from kept.core.ports import Clock, EventSink
    from kept.memory.ports import Ledger, Pages

log = logging.getLogger(__name__)

_LEDGER_REMEDY = "see `kept doctor` for the state of memories/ledger.db"

Decide: TypeAlias = Callable[[Page], Change | Refused]
"""Receives the page under its lock and returns what it becomes."""


@dataclass(frozen=True, slots=True)
class WrittenPage:
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
        self._pages.prepare()
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
        """Warn that the ledger misses this edit; the page is canonical, so the edit itself succeeded."""
        if not trouble:
            return ""
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
    ledger.append(target, change, known, author=Author(origin="outside"), now=now)

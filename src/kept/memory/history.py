"""Looking back: the log of edits, what is undone, entries with their story, the archive, a page as it was."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from kept.core.clock import from_epoch, iso
from kept.core.errors import NotFound, Unreadable
from kept.core.ids import LedgerId
from kept.core.text import JSON
from kept.memory.edits import Entered, Target, replayed
from kept.memory.page import page_hash
from kept.memory.store import MemoryStore


@dataclass(frozen=True, slots=True)
class Story:
    """What the ledger knows of a live entry."""

    created: float
    changed: float
    origin: str
    session_id: str | None


class History:
    """The past of the pages. Writes nothing."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def rows(self, target: Target | None = None) -> list[Entered]:
        """Return the rows that count, oldest first: a last write whose page never came is left out."""
        if not self._store.has_ledger:
            return []
        rows = self._store.ledger.rows(target)
        lost = {row.write_id for page in Target for row in self._never_came(page, rows)}
        return [row for row in rows if row.write_id not in lost]

    def _never_came(self, target: Target, rows: Sequence[Entered]) -> list[Entered]:
        newest = next((row for row in reversed(rows) if row.target is target), None)
        files = self._store.files
        try:
            page = page_hash(files.entries(target))
        except Unreadable:  # the past can be seen all the more where the page cannot
            return []
        return [newest] if newest is not None and newest.never_came(page, files.stamp(target)) else []

    def row(self, ledger_id: int) -> Entered:
        """Return one row, or raise NotFound."""
        found = next((row for row in self.rows() if row.id == ledger_id), None)
        if found is None:
            raise NotFound(f"the ledger has no edit {ledger_id}", "`kept memory log` lists the edits")
        return found

    def gap(self, target: Target) -> str | None:
        """Return where the ledger and the page disagree, None when they agree; raises Unreadable."""
        entries = self._store.files.entries(target)
        rows = self.rows(target)
        if not rows and not entries:
            return None
        if rows and rows[-1].page_after == page_hash(entries):
            return None
        after = f"after edit {rows[-1].id}" if rows else "from the beginning"
        return f"the page '{target}' was changed outside the ledger {after}; the next edit records it"

    def at(self, target: Target, moment: float) -> tuple[str, ...]:
        """Return the entries of a page as they were at a moment."""
        return replayed(takewhile(lambda row: row.time <= moment, self.rows(target)))

    def stories(self, target: Target) -> dict[str, Story]:
        """Return the story of each entry that the ledger has ever written, by its text."""
        stories: dict[str, Story] = {}
        for row in self.rows(target):
            if row.step.after is None:
                continue
            earlier = stories.get(row.step.before or "") or stories.get(row.step.after)
            created = earlier.created if earlier and row.step.action == "replace" else row.time
            stories[row.step.after] = Story(created, row.time, row.origin, row.session_id)
        return stories

    def archive(self, query: str = "", target: Target | None = None) -> list[Entered]:
        """Return removed, replaced and displaced texts that hold every word of `query`, newest first."""
        words = query.casefold().split()
        live = {page: self._live(page) for page in Target}
        found: dict[tuple[Target, str], Entered] = {}
        for row in reversed(self.rows(target)):
            text = row.step.before
            if text and text not in live[row.target] and all(word in text.casefold() for word in words):
                found.setdefault((row.target, text), row)
        return list(found.values())

    def _live(self, target: Target) -> set[str]:
        try:
            return set(self._store.files.entries(target))
        except Unreadable:  # what cannot be read may be searched for
            return set()


def edit_json(row: Entered, undone: set[LedgerId]) -> dict[str, JSON]:
    """Return a row as the log prints it."""
    return {
        "id": row.id,
        "time": iso(from_epoch(row.time)),
        "target": row.target.value,
        "action": row.step.action,
        "before": row.step.before,
        "after": row.step.after,
        "origin": row.origin,
        "session_id": row.session_id,
        "user_id": row.user_id,
        "group_id": row.group_id,
        "position": row.step.position,
        "reason": row.reason,
        "allowed": sorted(row.allowed),
        "undoes": row.undoes,
        "undone": row.id in undone,
    }

"""Merge of a page with the same page of a backup: three-way, the base is the last state that both ledgers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import Refused
from wellkept.memory.page import ENTRY_DELIMITER, Author, Change, EditRecord, Page, Step, Target, replay, steps_between
from wellkept.memory.store import check_text

if TYPE_CHECKING:
    from wellkept.memory.store import MemoryStore, Outcome

ORIGIN = "restore"


class PageState(Struct, frozen=True):
    """A page with the rows of its ledger, oldest first."""

    entries: tuple[str, ...]
    rows: Sequence[EditRecord]


class PageMerge(Struct, frozen=True):
    """What a merge does to a page."""

    entries: tuple[str, ...]
    """The merged page."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    archived: tuple[str, ...] = ()
    """Texts of the backup that go to the archive: history that is not known here, and what does not fit."""
    conflicts: tuple[tuple[str, str], ...] = ()
    """Entries that were changed on both sides: ours and that of the backup; both stay."""
    held: tuple[str, ...] = ()
    """Entries of the backup that the scanner refuses; they go to the archive."""

    @property
    def changes_nothing(self) -> bool:
        """Whether page and archive stay as they are."""
        return not (self.added or self.removed or self.archived)


def merge_page(own: PageState, theirs: PageState, *, limit: int) -> PageMerge:
    """Return the page that has the changes of both sides since they were the same.

    An entry that one side removed and the other left alone goes to the archive. An entry that both sides changed
    stays in both forms. An entry that was removed here after it had come from the backup does not return.
    """
    shared = _count_shared(own.rows, theirs.rows)
    base = replay(theirs.rows[:shared])
    own_later, their_later = own.rows[shared:], theirs.rows[shared:]
    gone_here = {row.step.before for row in own_later if row.step.action in {"remove", "replace"}}
    fresh = [entry for entry in theirs.entries if entry not in base and entry not in own.entries]
    fresh = [entry for entry in fresh if entry not in gone_here]
    removed = tuple(entry for entry in base if entry not in theirs.entries and entry in own.entries)
    held = tuple(entry for entry in fresh if _is_refused(entry, theirs.rows))
    wanted = [entry for entry in fresh if entry not in held]
    if own.entries == base and not held and len(ENTRY_DELIMITER.join(theirs.entries)) <= limit:
        merged = theirs.entries
    else:
        merged = _fit([entry for entry in own.entries if entry not in removed], wanted, limit)
    added = tuple(entry for entry in wanted if entry in merged)
    known = {*own.entries, *merged, *(text for row in own.rows for text in (row.step.before, row.step.after))}
    past = [text for row in their_later for text in (row.step.before, row.step.after) if text]
    archived = tuple(dict.fromkeys(text for text in (*fresh, *past) if text not in known))
    conflicts = _find_conflicts(own_later, their_later, own.entries, theirs.entries)
    return PageMerge(merged, added, removed, archived, conflicts, held)


def _count_shared(own: Sequence[EditRecord], theirs: Sequence[EditRecord]) -> int:
    """Return how many rows at the beginning are the same; texts may have been forgotten on one side."""
    count = 0
    for mine, other in zip(own, theirs, strict=False):
        if (mine.id, mine.time, mine.step.action, mine.page_after) != (
            other.id,
            other.time,
            other.step.action,
            other.page_after,
        ):
            break
        count += 1
    return count


def _is_refused(entry: str, rows: Sequence[EditRecord]) -> bool:
    """Whether the scanner refuses an entry that no person allowed."""
    allowed = frozenset[str]().union(*(row.allowed for row in rows if row.step.after == entry))
    return check_text(entry, allowed) is not None


def _fit(entries: list[str], more: Sequence[str], limit: int) -> tuple[str, ...]:
    """Return the entries with as many of `more` as the page can hold."""
    for entry in more:
        if len(ENTRY_DELIMITER.join((*entries, entry))) <= limit:
            entries = [*entries, entry]
    return tuple(entries)


def _find_conflicts(
    own: Sequence[EditRecord], theirs: Sequence[EditRecord], here: Sequence[str], there: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    mine, others = _replacements(own), _replacements(theirs)
    pairs = ((mine[entry], others[entry]) for entry in mine if entry in others)
    return tuple((one, other) for one, other in pairs if one != other and (one in here or other in there))


def _replacements(rows: Sequence[EditRecord]) -> dict[str, str]:
    """Return the newest wording of each changed entry; empty for one that was removed."""
    found: dict[str, str] = {}
    for row in rows:
        if row.step.action in {"replace", "remove"} and row.step.before:
            became = row.step.after or ""
            for entry, wording in list(found.items()):
                if wording == row.step.before:
                    found[entry] = became
            found.setdefault(row.step.before, became)
    return found


def plan_merge(own: MemoryStore, theirs: MemoryStore, target: Target) -> PageMerge:
    """Return what merging a page of a backup would do; writes nothing."""
    return merge_page(_state(own, target, own.page(target)), _state(theirs, target, theirs.page(target)),
                      limit=own.limit(target))  # fmt: skip


def apply_merge(own: MemoryStore, theirs: MemoryStore, target: Target, author: Author) -> Outcome | Refused:
    """Merge a page of a backup into the page here, under its lock; repeating it changes nothing."""
    other = _state(theirs, target, theirs.page(target))

    def decide(page: Page) -> Change:
        merge = merge_page(_state(own, target, page), other, limit=page.limit)
        if merge.changes_nothing:
            return Change(page.entries, ())
        steps = steps_between(page.entries, merge.entries)
        archive = tuple(Step("archive", text, None, -1) for text in merge.archived)
        return Change(merge.entries, (*steps, *archive), "Merged.", is_only_copy=bool(archive))

    return own.write(target, decide, replace(author, sources=theirs.list_unverified(target)))


def _state(store: MemoryStore, target: Target, page: Page) -> PageState:
    return PageState(page.entries, store.ledger.rows(target))

"""Entries from elsewhere, merged into the pages of a home: those of an import, and those of another home."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import Reason, Refused
from wellkept.memory.history import History
from wellkept.memory.page import (
    CONTROL,
    DELIMITER_LINE,
    ENTRY_DELIMITER,
    Author,
    Change,
    EditRecord,
    Page,
    Step,
    Target,
    clean,
    preview,
    replay,
    steps_between,
    undone_ids,
)
from wellkept.memory.store import MemoryStore, check_text

if TYPE_CHECKING:
    from wellkept.memory.store import MemoryStore, Outcome


ORIGIN = "restore"


class PageState(Struct, frozen=True):
    """A page with the rows of its ledger, oldest first."""

    entries: tuple[str, ...]
    rows: Sequence[EditRecord]
    archived: tuple[str, ...] = ()
    """What left the page to make room."""


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
    moved: tuple[str, ...] = ()
    """What had left the page of the backup to make room, and is not here yet."""

    @property
    def changes_nothing(self) -> bool:
        """Whether page and archive stay as they are."""
        return not (self.added or self.removed or self.archived or self.moved)


def merge_page(own: PageState, theirs: PageState, *, limit: int) -> PageMerge:
    """Return the page with the changes that both sides made since their histories parted.

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
    here = {*own.entries, *merged, *(text for row in own.rows for text in (row.step.before, row.step.after))}
    past = [text for row in their_later for text in (row.step.before, row.step.after) if text]
    archived = tuple(dict.fromkeys(text for text in (*fresh, *past) if text not in here))
    conflicts = _find_conflicts(own_later, their_later, own.entries, theirs.entries)
    known = {*merged, *own.archived, *gone_here}
    moved = tuple(text for text in theirs.archived if text not in known and not _is_refused(text, theirs.rows))
    return PageMerge(merged, added, removed, archived, conflicts, held, moved)


def _count_shared(own: Sequence[EditRecord], theirs: Sequence[EditRecord]) -> int:
    """Return how many first rows are the same on both sides, apart from texts that one side has forgotten."""
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
    return tuple((ours, other) for ours, other in pairs if ours != other and (ours in here or other in there))


def _replacements(rows: Sequence[EditRecord]) -> dict[str, str]:
    """Return the newest wording of each changed entry; empty for one that was removed."""
    wordings: dict[str, str] = {}
    for row in rows:
        if row.step.action in {"replace", "remove"} and row.step.before and not row.step.is_mark:
            became = row.step.after or ""
            for entry, wording in list(wordings.items()):
                if wording == row.step.before:
                    wordings[entry] = became
            wordings.setdefault(row.step.before, became)
    return wordings


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
        return Change(merge.entries, (*steps, *archive), "Merged.", archived=merge.moved, is_only_copy=bool(archive))

    return own.write(target, decide, replace(author, sources=theirs.list_unverified(target)))


def _state(store: MemoryStore, target: Target, page: Page) -> PageState:
    return PageState(page.entries, store.ledger.rows(target), tuple(store.archived(target)))


class Fate(StrEnum):
    """What happened to a text."""

    ADDED = "added"
    REPLACED = "replaced"
    """It took the place of an entry that the same source wrote earlier."""
    PRESENT = "present"
    """The page or its archive has it already."""
    ARCHIVED = "archived"
    """It does not fit the page, or is not meant for it, and can be found in the archive."""
    HELD = "held"
    """The scanner holds it for a person's approval."""
    BLOCKED = "blocked"
    """The scanner refuses it."""


class Incoming(Struct, frozen=True):
    """A text that is to be merged."""

    text: str
    replaces: str | None = None
    """The entry that the source wrote earlier and has changed since."""
    is_archive: bool = False


class Merged(Struct, frozen=True):
    """The page after a merge, and what happened to each text, in their order."""

    change: Change
    fates: tuple[Fate, ...]


def tidy(text: str) -> str | None:
    """Return a text as an entry can hold it, without control characters and delimiter lines; None if it is empty."""
    entry = clean(DELIMITER_LINE.sub("", CONTROL.sub("", text.replace("\r\n", "\n"))))
    return entry if isinstance(entry, str) else None


def check_texts(store: MemoryStore, target: Target, texts: Sequence[str]) -> dict[str, Refused]:
    """Return the texts that the scanner refuses; rules that a person once allowed for a text stay allowed."""
    refusals = {}
    for text in dict.fromkeys(texts):
        refused = check_text(text)
        if refused is not None and refused.reason is Reason.HELD:
            refused = check_text(text, store.allowed_rules(target, text))
        if refused is not None:
            refusals[text] = refused
    return refusals


def merge(
    page: Page,
    incoming: Sequence[Incoming],
    *,
    dropped: Sequence[str] = (),
    refused: Mapping[str, Refused],
    archived: Collection[str],
) -> Merged:
    """Return the page with every text that fits; existing entries are never removed to make room.

    `dropped` are entries that the source wrote earlier and no longer has; `archived` is what the archive holds.
    """
    draft = _Draft(list(page.entries), page.limit, set(archived))
    for entry in dropped:
        draft.remove(entry)
    fates = []
    for candidate in incoming:
        problem = refused.get(candidate.text)
        if problem is not None:
            fates.append(Fate.HELD if problem.reason is Reason.HELD else Fate.BLOCKED)
        else:
            fates.append(draft.take(candidate))
    return Merged(Change(tuple(draft.entries), tuple(draft.steps), "Imported.", is_only_copy=True), tuple(fates))


class _Draft:
    """A page that is being changed."""

    def __init__(self, entries: list[str], limit: int, archived: set[str]) -> None:
        self.entries = entries
        self.steps: list[Step] = []
        self._limit = limit
        self._archived = archived
        self._size = len(ENTRY_DELIMITER.join(entries))

    def take(self, incoming: Incoming) -> Fate:
        """Put a text where it belongs."""
        if incoming.text in self.entries:
            return Fate.PRESENT
        if (
            incoming.replaces in self.entries
            and self._size + len(incoming.text) - len(incoming.replaces or "") <= self._limit
        ):
            index = self.entries.index(incoming.replaces or "")
            self._size += len(incoming.text) - len(incoming.replaces or "")
            self.entries[index] = incoming.text
            self.steps.append(Step("replace", incoming.replaces, incoming.text, index))
            return Fate.REPLACED
        if incoming.replaces is not None:
            self.remove(incoming.replaces)  # the outdated text must go even if the new one is too long for the page
        room = len(ENTRY_DELIMITER) if self.entries else 0
        if not incoming.is_archive and self._size + room + len(incoming.text) <= self._limit:
            self._size += room + len(incoming.text)
            self.entries.append(incoming.text)
            self.steps.append(Step("add", None, incoming.text, len(self.entries) - 1))
            return Fate.ADDED
        if incoming.text in self._archived:
            return Fate.PRESENT
        self._archived.add(incoming.text)
        self.steps.append(Step("archive", incoming.text, None, -1))
        return Fate.ARCHIVED

    def remove(self, entry: str) -> None:
        """Remove an entry if it is there."""
        if entry in self.entries:
            index = self.entries.index(entry)
            del self.entries[index]
            self.steps.append(Step("remove", entry, None, index))
            self._size = len(ENTRY_DELIMITER.join(self.entries))


class UndoneGroup(Struct, frozen=True):
    """What undoing a group did on the pages of one store."""

    undone: int
    kept: tuple[str, ...]
    """Previews of the entries that were changed since, and stay."""


def _list_undoable(store: MemoryStore, group_id: str) -> dict[Target, list[EditRecord]]:
    """Return the rows of a group that are not undone, by page."""
    rows = History(store).rows()  # without the write of an undo that was killed before it reached the page
    undone = undone_ids(rows)
    open_rows = [row for row in rows if row.group_id == group_id and row.id not in undone and not row.is_damaged]
    return {
        target: of_page for target in store.targets if (of_page := [row for row in open_rows if row.target is target])
    }


def undo_group(store: MemoryStore, group_id: str) -> UndoneGroup | Refused:
    """Undo each edit of a group on its own, unless its entry was changed since."""
    undone, kept = 0, list[str]()
    for target, rows in _list_undoable(store, group_id).items():
        left: list[str] = []
        outcome = store.write(target, partial(_reverse_each, rows, left=left), Author(origin="undo"))
        if isinstance(outcome, Refused):
            return outcome
        undone += len(rows) - len(left)
        kept += left
    return UndoneGroup(undone, tuple(kept))


def count_reversible(store: MemoryStore, group_id: str) -> UndoneGroup:
    """Return what `undo_group` would do."""
    undone, kept = 0, list[str]()
    for target, rows in _list_undoable(store, group_id).items():
        left: list[str] = []
        _reverse_each(rows, store.page(target), left=left)
        undone += len(rows) - len(left)
        kept += left
    return UndoneGroup(undone, tuple(kept))


def _reverse_each(rows: Sequence[EditRecord], page: Page, *, left: list[str]) -> Change:
    entries, steps, undoes = page.entries, list[Step](), []
    left.clear()
    for row in reversed(rows):
        if row.step.is_forgotten:
            left += [preview(text) for text in [row.step.after] if text]  # what it replaced cannot come back
            continue
        step = row.step.inverse()
        following = step.apply(entries)
        if following is None or (step.action != "archive" and not page.fits(following)):
            left.append(preview(row.step.after or row.step.before or ""))
            continue
        entries = following
        steps.append(step)
        undoes.append(row.id)
    return Change(entries, tuple(steps), "The import was undone.", undoes=tuple(undoes))


def merge_into(
    store: MemoryStore, target: Target, decide: Callable[[Page], Merged], author: Author
) -> Merged | Refused:
    """Merge into the page under its lock; refused if the page was damaged from outside."""
    merges: list[Merged] = []

    def change(page: Page) -> Change:
        merges.append(decide(page))
        return merges[-1].change

    outcome = store.write(target, change, author)
    return outcome if isinstance(outcome, Refused) else merges[-1]

"""The history of pages: what the ledger says about each entry, earlier states, and undoing and restoring edits."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile

from msgspec import Struct, field

from wellkept.core.clock import iso_moment
from wellkept.core.errors import NotFound, Reason, Refused, Unreadable, UsageError
from wellkept.core.ids import LedgerId, SourceName
from wellkept.core.text import JSON
from wellkept.memory.page import (
    Add,
    Author,
    Change,
    EditRecord,
    Page,
    Step,
    Target,
    find_moves,
    find_pinned,
    find_unverified,
    page_hash,
    preview,
    replay,
    undone_ids,
)
from wellkept.memory.store import MemoryStore, Outcome

_PAST_EVERY_ID = 2**63
"""SQLite takes no larger numbers."""


class EntryMetadata(Struct, frozen=True):
    """Metadata of a live entry, from the ledger."""

    created: float
    changed: float
    origin: str
    session_id: str | None
    source: SourceName | None = None
    """The untrusted source that the author had read before writing."""
    is_pinned: bool = False
    """Whether a person wants it to stay on its page whatever its age."""
    is_verified: bool = True
    """Whether no source is known, or a person wrote or confirmed the entry."""

    def as_json(self) -> dict[str, JSON]:
        """Return it as `kept memory show --long --json` prints it."""
        return {
            "created": iso_moment(self.created),
            "changed": iso_moment(self.changed),
            "origin": self.origin,
            "session_id": self.session_id,
            **({"pinned": True} if self.is_pinned else {}),
            **({"source": self.source, "verified": self.is_verified} if self.source is not None else {}),
        }


class History:
    """Reads the ledger of a store. Writes nothing."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def rows(self, target: Target | None = None) -> list[EditRecord]:
        """Return the rows, oldest first, without a last write that never reached its page."""
        rows = self._store.ledger.rows(target)
        lost = {write_id for page in self._store.targets for write_id in self._unfinished_writes(page, rows)}
        return [row for row in rows if row.write_id not in lost]

    def _unfinished_writes(self, target: Target, rows: Sequence[EditRecord]) -> list[int]:
        newest = next((row for row in reversed(rows) if row.target is target), None)
        if newest is None:
            return []
        try:
            stored = self._store.pages.read(target)
            current = page_hash(stored.entries)
        except Unreadable:  # an unreadable page must not hide its past
            return []
        return [newest.write_id] if newest.was_never_applied(current, stored.stamp) else []

    def row(self, ledger_id: int, target: Target | None = None) -> EditRecord:
        """Return one row, or raise NotFound; raises UsageError when it belongs to another page than `target`."""
        record = next((row for row in self.rows() if row.id == ledger_id), None)
        if record is None:
            self._refuse_other_project(ledger_id)
            raise NotFound(f"the ledger has no edit {ledger_id}", "`kept memory log` lists the edits")
        if target not in (None, record.target):
            raise UsageError(
                f"edit {ledger_id} is on the page '{record.target}'", f"leave --target out, or name {record.target}"
            )
        return record

    def _refuse_other_project(self, ledger_id: int) -> None:
        """Raise UsageError if the edit is on the page of a project that this store is not bound to."""
        if not 0 < ledger_id < _PAST_EVERY_ID:
            return
        for row in self._store.ledger.rows(after=ledger_id - 1, limit=1, everywhere=True):
            if row.id == ledger_id and row.project not in (None, self._store.project):
                raise UsageError(
                    f"edit {ledger_id} is on the page of the project {row.project!r}",
                    "run it in the folder of that project",
                )

    def gap(self, target: Target) -> str | None:
        """Return where the ledger and the page disagree, None when they agree; raises Unreadable."""
        entries = self._store.page(target).entries
        rows = self.rows(target)
        if not rows and not entries:
            return None
        if rows and rows[-1].page_after == page_hash(entries):
            return None
        after = f"after edit {rows[-1].id}" if rows else "from the beginning"
        return f"the page '{target}' was changed outside the ledger {after}; the next edit records it"

    def at(self, target: Target, moment: float) -> tuple[str, ...]:
        """Return the entries of a page as they were at a moment."""
        return replay(takewhile(lambda row: row.time <= moment, self.rows(target)))

    def metadata(self, target: Target) -> dict[str, EntryMetadata]:
        """Return the metadata of every entry that the ledger has ever written, by its text."""
        by_entry: dict[str, EntryMetadata] = {}
        rows = self.rows(target)
        unverified, pinned = find_unverified(rows), find_pinned(rows)
        for row in rows:
            if row.step.after is None or row.step.is_mark:
                continue
            before = row.step.before or row.step.after  # forgotten texts are empty, and not versions of each other
            earlier = by_entry.get(before) or by_entry.get(row.step.after)
            created = earlier.created if earlier and row.step.action == "replace" else row.time
            source = row.source or (earlier.source if earlier else None)
            is_verified = row.step.after not in unverified
            by_entry[row.step.after] = EntryMetadata(
                created, row.time, row.origin, row.session_id, source, row.step.after in pinned, is_verified
            )
        return by_entry

    def archive(self, query: str = "", target: Target | None = None) -> list[EditRecord]:
        """Return removed, replaced and displaced texts that contain every word of `query`, newest first."""
        words = query.casefold().split()
        live = {page: self._live_entries(page) for page in self._store.targets}
        newest: dict[tuple[Target, str], EditRecord] = {}
        rows = self.rows(target)
        undone = undone_ids(rows)
        taken_back = {row.id for row in rows if row.origin == "import"} & undone
        for row in reversed(rows):
            # what an undone import had brought is not part of anybody's memory
            text = None if {row.id, row.undoes} & taken_back else row.step.before
            if text and text not in live[row.target] and all(word in text.casefold() for word in words):
                newest.setdefault((row.target, text), row)
        return list(newest.values())

    def _live_entries(self, target: Target) -> set[str]:
        try:
            return set(self._store.page(target).entries)
        except Unreadable:  # then nothing is live, and everything can be found
            return set()


class EditLog(Struct, frozen=True):
    """Edits, newest first, with the ids of those that are undone."""

    records: tuple[EditRecord, ...]
    undone: frozenset[LedgerId]
    gaps: tuple[str, ...]
    """Descriptions of the differences between pages and ledger."""
    is_filtered: bool
    """Whether the filters removed any edits."""

    def as_json(self) -> list[JSON]:
        """Return the edits as `kept memory log --json` prints them."""
        return [record.as_json(is_undone=record.id in self.undone) for record in self.records]


def read_log(
    store: MemoryStore, *, target: Target | None = None, since: float = 0.0, group_id: str | None = None
) -> EditLog:
    """Return the edits of a page, after a moment, or of one group."""
    history = History(store)
    every = history.rows()
    records = tuple(
        row
        for row in reversed(every)
        if target in (None, row.target) and row.time >= since and group_id in (None, row.group_id)
    )
    gaps = tuple(gap for page in store.targets if (gap := _gap(history, page)))
    return EditLog(records, frozenset(undone_ids(every)), gaps, is_filtered=len(records) < len(every))


def _gap(history: History, page: Target) -> str | None:
    """Return the gap of a page; a page that cannot be read is one."""
    try:
        return history.gap(page)
    except Unreadable as error:
        return f"{error.message}; {error.remedy}"


class PageEntries(Struct, frozen=True):
    """The entries of one page or of all: an export, or the pages at an earlier time."""

    pages: Mapping[Target, tuple[str, ...]]
    sources: Mapping[str, SourceName] = field(default_factory=dict)
    """Where unverified entries came from, by entry."""
    archived: Mapping[Target, tuple[str, ...]] = field(default_factory=dict)
    """What left the pages to make room."""

    def as_json(self) -> dict[str, JSON]:
        """Return the entries by page, in the form that `kept memory import` reads."""
        by_page: dict[str, JSON] = {
            page.value: {
                "entries": list(entries),
                **({"archived": list(archived)} if (archived := self.archived.get(page, ())) else {}),
            }
            for page, entries in self.pages.items()
        }
        return {**by_page, "sources": dict(self.sources)} if self.sources else by_page


def read_pages_at(store: MemoryStore, moment: float, *, target: Target | None = None) -> PageEntries:
    """Return the pages as they were at a moment."""
    history = History(store)
    return PageEntries({page: history.at(page, moment) for page in targets(store, target)})


class ArchiveHits(Struct, frozen=True):
    """Archived texts, newest first; each record holds its text in `step.before`."""

    records: tuple[EditRecord, ...]

    def as_json(self) -> list[JSON]:
        """Return the hits as `kept memory search --json` prints them."""
        return [{**record.as_json(), "text": record.step.before} for record in self.records]


def search_archive(store: MemoryStore, query: str, *, target: Target | None = None) -> ArchiveHits:
    """Return archived texts that contain every word of `query`."""
    return ArchiveHits(tuple(History(store).archive(query, target)))


class PageView(Struct, frozen=True):
    """A page as it is stored now, or why it cannot be read."""

    target: Target
    page: Page | None
    is_enabled: bool = True
    metadata: Mapping[str, EntryMetadata] | None = None
    """By entry; empty unless requested."""
    error: Unreadable | None = None
    archived: tuple[str, ...] = ()
    """What left the page to make room."""

    def as_json(self) -> dict[str, JSON]:
        """Return the page as `kept memory show --json` prints it."""
        if self.page is None:
            assert self.error is not None
            return {"error": {"message": self.error.message, "remedy": self.error.remedy}}
        shape: dict[str, JSON] = {
            "entries": list(self.page.entries), "chars": len(self.page.text), "limit": self.page.limit,
        }  # fmt: skip
        if self.archived:
            shape["archived"] = list(self.archived)
        if self.metadata is not None:
            metadata = [self.metadata.get(entry) for entry in self.page.entries]
            shape["stories"] = [
                None if entry_metadata is None else entry_metadata.as_json() for entry_metadata in metadata
            ]
        return shape


def view_page(store: MemoryStore, target: Target, *, with_metadata: bool = False) -> PageView:
    """Return a page with its limit and, if requested, the metadata of its entries."""
    try:
        page = store.page(target)
    except Unreadable as error:
        return PageView(target, None, store.is_enabled(target), error=error)
    metadata = History(store).metadata(target) if with_metadata else None
    try:
        archived = tuple(store.archived(target))
    except Unreadable:  # reported by `kept doctor`
        archived = ()
    return PageView(target, page, store.is_enabled(target), metadata, archived=archived)


def targets(store: MemoryStore, target: Target | None) -> list[Target]:
    """Return the named page, or all pages; the page of the project only if it has been written.

    Raises UsageError for the page of a project where no project is known.
    """
    if target is Target.PROJECT and store.project is None:
        raise UsageError("there is no project here", "run it in the folder of a project")
    if target is not None:
        return [target]
    return [page for page in store.targets if page is not Target.PROJECT or store.pages.read(page).raw]


class Undone(Struct, frozen=True):
    """What an undo did, one outcome per page."""

    outcomes: tuple[Outcome, ...]
    group_id: str
    """Undoing this group brings the edits back."""

    @property
    def ledger_ids(self) -> list[LedgerId]:
        """Return the ids of the undo's own rows."""
        return [number for outcome in self.outcomes for number in outcome.ledger_ids]

    @property
    def redo_command(self) -> str:
        """Return the command that redoes the edits; `undo` without an id would undo one more edit."""
        ids = self.ledger_ids
        if len(ids) == 1:
            return f"kept memory undo {ids[0]}"
        return f"kept memory undo --review {self.group_id}" if ids else ""

    def as_json(self) -> dict[str, JSON]:
        """Return the result as `kept memory undo --json` prints it."""
        return {"success": True, "undone": [outcome.as_json() for outcome in self.outcomes]}


def undo(
    store: MemoryStore, *, ledger_id: int | None = None, group_id: str | None = None, target: Target | None = None
) -> Undone | Refused:
    """Undo one row, one group, or the newest group that is not undone yet.

    Edits by hand are undone only by their id: kept promised to undo its own, and after a loss of the ledger the whole
    page looks like one edit by hand. Undoing an undo brings the edit back. Refused, with the reason, when the page has
    changed since, or a text of an edit was forgotten.
    """
    for page in targets(store, target):  # edits by hand get rows, so that the log lists them with an id
        store.write(page, lambda live: Change(live.entries, ()), Author(origin="undo"))
    rows = choose_edits(store, ledger_id, group_id, target)
    if isinstance(rows, Refused):
        return rows
    rest = _describe_rest_of_group(store, rows[0]) if ledger_id is not None else ""
    author = Author(origin="undo")
    by_page = {page: of_page for page in store.targets if (of_page := [row for row in rows if row.target is page])}
    # try every page before writing one, so that a group over both pages is undone as a whole or not at all
    moves = find_moves(History(store).rows())
    for page, of_page in by_page.items():
        change = _reverse(of_page, store.page(page), moves=moves)
        if isinstance(change, Refused):
            return change
    outcomes = []
    for page, of_page in by_page.items():
        result = store.write(page, partial(_reverse, of_page, moves=moves, rest=rest), author)
        if isinstance(result, Refused):
            return result
        outcomes.append(result)
    return Undone(tuple(outcomes), author.group_id)


def restore(store: MemoryStore, ledger_id: int, *, target: Target | None = None) -> Outcome | Refused:
    """Add back the text that an edit removed; scanner rules that a person allowed for it stay allowed."""
    row = History(store).row(ledger_id, target)
    if row.step.is_forgotten:
        return _refuse_forgotten(row, "restored")
    if row.step.before is None:
        raise UsageError(f"edit {row.id} removed nothing", "`kept memory search WORD` lists what can be restored")
    allow = store.allowed_rules(row.target, row.step.before)
    author = Author(reason=f"restored from edit {row.id}", allow=allow)
    return store.apply(row.target, Add(row.step.before), author)


def choose_edits(
    store: MemoryStore, ledger_id: int | None, group_id: str | None, target: Target | None
) -> list[EditRecord] | Refused:
    """Return the edits that an undo would reverse."""
    history = History(store)
    rows = history.rows()
    undone = undone_ids(rows)
    if ledger_id is not None:
        row = history.row(ledger_id)
        if row.id in undone:
            return Refused(Reason.MOVED_ON, f"Edit {row.id} is undone already.", "Undo the undo's id to bring it back.")
        return [row, *(other for other in rows if _was_moved_by(other, row) and other.id not in undone)]
    if group_id is not None:
        group = [row for row in rows if row.group_id == group_id and row.id not in undone]
        if not group:
            raise NotFound(f"there is nothing to undo in {group_id!r}", "`kept memory log` lists the edits")
        return group
    open_rows = [
        row
        for row in rows
        if row.undoes is None
        and row.id not in undone
        and (row.step.action != "archive" or row.is_damaged)
        and row.origin != "outside"
        and target in (None, row.target)
    ]
    if not open_rows:
        if any(store.page(page).entries for page in targets(store, target)):
            return Refused(
                Reason.NO_MATCH,
                "There is no edit of kept left to undo; what is on the page was there before, or was written by hand.",
                "`kept memory log` lists edits by hand, and `kept memory undo ID` undoes one.",
            )
        return Refused(Reason.NO_MATCH, "There is no edit left to undo.", "`kept memory log` lists the edits.")
    return [row for row in open_rows if row.group_id == open_rows[-1].group_id]


def _was_moved_by(row: EditRecord, edit: EditRecord) -> bool:
    """Whether a row moved an entry to the archive to make room for what this edit wrote."""
    return row.origin == "overflow" and row.write_id == edit.write_id and edit.origin != "overflow"


def _describe_rest_of_group(store: MemoryStore, taken: EditRecord) -> str:
    """Return which edits of the same group stay, and the command that undoes them too."""
    rows = History(store).rows()
    undone = undone_ids(rows) | {taken.id}
    group = [row for row in rows if row.group_id == taken.group_id and row.id not in undone]
    others = [row.id for row in group if not _was_moved_by(row, taken)]
    if not others:
        return ""
    command = f"kept memory undo --review {taken.group_id}"
    return f" alone; {_edits(others)} of the same batch stay (to undo them too: {command})"


def _reverse(
    rows: Sequence[EditRecord], page: Page, *, moves: Mapping[LedgerId, str], rest: str = ""
) -> Change | Refused:
    """Return the change that undoes `rows`; `moves` has the text that each of them moved to or from the archive."""
    entries, steps, undoes = page.entries, list[Step](), []
    is_archived: dict[str, bool] = {}
    for row in reversed(rows):
        if row.is_damaged:
            return Refused(
                Reason.MOVED_ON,
                f"Edit {row.id} cannot be undone, because its row in the ledger is damaged.",
                "`kept memory repair` rebuilds or marks it; `kept memory undo ID` undoes another edit.",
            )
        if row.step.is_forgotten:
            return _refuse_forgotten(row, "undone")
        step = row.step.inverse()
        following = step.apply(entries)
        if following is None:
            return _refuse_conflict(row, step, entries)
        position = _actual_place(step, entries, following)
        entries = following
        steps.append(Step(step.action, step.before, step.after, position))
        undoes.append(row.id)
        moved = moves.get(row.id)
        if moved is not None:
            is_archived[moved] = step.before == moved
    if not page.fits(entries):
        return Refused(
            Reason.OVER_BUDGET,
            f"Undoing would make the page longer than its limit of {page.limit:,} characters.",
            "Remove an entry first, then undo again.",
        )
    message = f"Undone: {_edits([row.id for row in rows])}{rest}."
    return Change(
        entries,
        tuple(steps),
        message,
        undoes=tuple(undoes),
        archived=tuple(text for text, archived in is_archived.items() if archived and text not in entries),
        withdrawn=tuple(text for text, archived in is_archived.items() if not archived),
    )


def _actual_place(step: Step, before: tuple[str, ...], after: tuple[str, ...]) -> int:
    if step.action == "add" and step.after is not None:
        return after.index(step.after)
    return before.index(step.before) if step.before is not None else step.position


def _refuse_forgotten(row: EditRecord, action: str) -> Refused:
    return Refused(
        Reason.MOVED_ON,
        f"Edit {row.id} cannot be {action}, because its text was forgotten, which is permanent.",
        "`kept memory log` lists the edits; `kept memory undo ID` undoes another one.",
    )


def _refuse_conflict(row: EditRecord, step: Step, entries: tuple[str, ...]) -> Refused:
    if step.before is not None and step.before not in entries:
        why = f"the entry it wrote is not on the page any more: {preview(step.before)!r}"
    else:
        why = f"the entry it would bring back is there already: {preview(step.after or '')!r}"
    return Refused(
        Reason.MOVED_ON,
        f"Edit {row.id} cannot be undone, because {why}.",
        "See `kept memory log`, undo the later edit first, or edit the page by hand.",
    )


def _edits(numbers: Sequence[int]) -> str:
    return f"edit{'s' if len(numbers) > 1 else ''} {', '.join(str(number) for number in numbers)}"

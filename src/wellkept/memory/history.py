"""The history of the pages: the log of edits, the archive, entry metadata, and a page at an earlier time."""

from collections.abc import Mapping, Sequence
from itertools import takewhile

from msgspec import Struct, field

from wellkept.core.clock import iso_moment
from wellkept.core.errors import NotFound, Unreadable, UsageError
from wellkept.core.ids import LedgerId, SourceName
from wellkept.core.text import JSON
from wellkept.memory.edits import EditRecord, Target, find_unverified, replay, undone_ids
from wellkept.memory.page import Page, page_hash
from wellkept.memory.store import MemoryStore

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
    is_verified: bool = True
    """Whether no source is known, or a person wrote or confirmed the entry."""

    def as_json(self) -> dict[str, JSON]:
        """Return it as `kept memory show --long --json` prints it."""
        return {
            "created": iso_moment(self.created),
            "changed": iso_moment(self.changed),
            "origin": self.origin,
            "session_id": self.session_id,
            **({"source": self.source, "verified": self.is_verified} if self.source is not None else {}),
        }


class History:
    """Reads the ledger of a store. Writes nothing."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def rows(self, target: Target | None = None) -> list[EditRecord]:
        """Return the rows that count, oldest first: a last write that never reached its page is left out."""
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
        found = next((row for row in self.rows() if row.id == ledger_id), None)
        if found is None:
            self._refuse_other_project(ledger_id)
            raise NotFound(f"the ledger has no edit {ledger_id}", "`kept memory log` lists the edits")
        if target not in (None, found.target):
            raise UsageError(
                f"edit {ledger_id} is on the page '{found.target}'", f"leave --target out, or name {found.target}"
            )
        return found

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
        found: dict[str, EntryMetadata] = {}
        rows = self.rows(target)
        unverified = find_unverified(rows)
        for row in rows:
            if row.step.after is None:
                continue
            before = row.step.before or row.step.after  # forgotten texts are empty, and not versions of each other
            earlier = found.get(before) or found.get(row.step.after)
            created = earlier.created if earlier and row.step.action == "replace" else row.time
            source = row.source or (earlier.source if earlier else None)
            is_verified = row.step.after not in unverified
            found[row.step.after] = EntryMetadata(created, row.time, row.origin, row.session_id, source, is_verified)
        return found

    def archive(self, query: str = "", target: Target | None = None) -> list[EditRecord]:
        """Return removed, replaced and displaced texts that contain every word of `query`, newest first."""
        words = query.casefold().split()
        live = {page: self._live_entries(page) for page in self._store.targets}
        found: dict[tuple[Target, str], EditRecord] = {}
        rows = self.rows(target)
        gone = undone_ids(rows)
        taken_back = {row.id for row in rows if row.origin == "import"} & gone
        for row in reversed(rows):
            # what an undone import had brought is not part of anybody's memory
            text = None if {row.id, row.undoes} & taken_back else row.step.before
            if text and text not in live[row.target] and all(word in text.casefold() for word in words):
                found.setdefault((row.target, text), row)
        return list(found.values())

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

    def as_json(self) -> dict[str, JSON]:
        """Return the entries by page, in the form that `kept memory import` reads."""
        found: dict[str, JSON] = {page.value: {"entries": list(entries)} for page, entries in self.pages.items()}
        return {**found, "sources": dict(self.sources)} if self.sources else found


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

    def as_json(self) -> dict[str, JSON]:
        """Return the page as `kept memory show --json` prints it."""
        if self.page is None:
            assert self.error is not None
            return {"error": {"message": self.error.message, "remedy": self.error.remedy}}
        found: dict[str, JSON] = {
            "entries": list(self.page.entries), "chars": len(self.page.text), "limit": self.page.limit,
        }  # fmt: skip
        if self.metadata is not None:
            known = [self.metadata.get(entry) for entry in self.page.entries]
            found["stories"] = [None if each is None else each.as_json() for each in known]
        return found


def view_page(store: MemoryStore, target: Target, *, with_metadata: bool = False) -> PageView:
    """Return a page with its limit and, if requested, the metadata of its entries."""
    try:
        page = store.page(target)
    except Unreadable as error:
        return PageView(target, None, store.is_enabled(target), error=error)
    metadata = History(store).metadata(target) if with_metadata else None
    return PageView(target, page, store.is_enabled(target), metadata)


def targets(store: MemoryStore, target: Target | None) -> list[Target]:
    """Return the named page, or all when none is named; that of the project only once it was written.

    Raises UsageError for the page of a project where no project is known.
    """
    if target is Target.PROJECT and store.project is None:
        raise UsageError("there is no project here", "run it in the folder of a project")
    if target is not None:
        return [target]
    return [page for page in store.targets if page is not Target.PROJECT or store.pages.read(page).raw]

"""Curated memory: the pages and their entries, edits and their history, approval, repair, import and export.

The logic is in the memory tier, which the `memory` tool uses too; an operation adds the caller and its scopes.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.caller import Caller, Scope
from wellkept.core.clock import from_epoch, iso_moment
from wellkept.core.errors import Reason, Refused
from wellkept.core.provenance import COMMAND_SOURCE, covers
from wellkept.core.text import JSON, split_words
from wellkept.core.values import JsonStruct
from wellkept.memory.page import (
    ENTRY_DELIMITER,
    PERSON,
    Add,
    Author,
    Edit,
    EditRecord,
    LedgerRepair,
    Page,
    Target,
    parse,
    replay,
    subject_of,
    undone_ids,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from wellkept.memory.approval import Pending, Rejected
    from wellkept.memory.history import ArchiveHits, EditLog, PageEntries, PageView, Undone
    from wellkept.memory.rewrite import Imported, Proposal, Repaired, Reset
    from wellkept.memory.store import MemoryStore, Outcome
    from wellkept.sessions.receipts import Receipt

_QUARTER = 900.0
"""In every time zone days begin at a multiple of 15 minutes, so edits of one quarter hour are on one day."""
OF_PERSON = PERSON | {"undo", "outside"}
"""The origins of edits that an agent cannot undo by a command or a request."""


class PageViews(Struct, frozen=True):
    """Pages as they are stored now, and how many writes wait for approval."""

    views: tuple[PageView, ...]
    masked: Mapping[Target, tuple[str, ...]]
    """The entries of each readable page, in order, as a model may see them: threats are replaced by a marker."""
    waiting: int
    archived: Mapping[Target, tuple[str, ...]] = field(default_factory=dict)
    """What left each page to make room, as a model may see it."""

    def as_json(self) -> dict[str, JSON]:
        """Return the pages by name."""
        return {view.target.value: view.as_json() for view in self.views}


def show_pages(caller: Caller, target: Target | None = None, *, with_metadata: bool = False) -> PageViews:
    """Return one page or all; a page that cannot be read is returned with its error."""
    from wellkept.memory.history import targets, view_page

    store = caller.space.memory
    views = tuple(view_page(store, page, with_metadata=with_metadata) for page in targets(store, target))
    masked = {
        view.target: tuple(store.mask(view.target, view.page.entries, is_page=True))
        for view in views
        if view.page is not None
    }
    # most homes have no pending writes: do not load what reads them
    has_pending = caller.app.server is not None or caller.space.home.pending.is_dir()
    archived = {one.target: tuple(store.mask(one.target, one.archived)) for one in views if one.archived}
    return PageViews(views, masked, len(caller.space.approvals.waiting()) if has_pending else 0, archived)


class Snapshot(Struct, frozen=True):
    """The blocks that a session would freeze into its prompt, by page; None where there is no block."""

    blocks: Mapping[Target, str | None]

    def as_json(self) -> dict[str, JSON]:
        """Return the blocks by page."""
        return {page.value: block for page, block in self.blocks.items()}


def render_snapshot(caller: Caller, target: Target | None = None, *, project: str | None = None) -> Snapshot:
    """Return the blocks exactly as a session would freeze them.

    `project` is the working folder of that session; without it, the one that this process works in.
    """
    from wellkept.memory.history import targets

    store = caller.space.memory if project is None else caller.space.memory_in(project)
    store.load()
    return Snapshot({page: store.render_snapshot(page) for page in targets(store, target)})


def list_pages(caller: Caller, target: Target | None = None) -> list[Target]:
    """Return the named page, or all that exist here; raises UsageError for a project's page without a project."""
    from wellkept.memory.history import targets

    return targets(caller.space.memory, target)


def edit_entry(
    caller: Caller, edit: Edit, target: Target = Target.MEMORY, *, allow: frozenset[str] = frozenset()
) -> Outcome | Refused:
    """Add, replace or remove one entry; `allow` names scanner rules that the person permits.

    For a caller who is no person, the entry is an agent's: unverified, and held if it could do harm.
    """
    if allow:
        caller.require_person("`kept memory add`, with `--allow` or `--yes`")
    if caller.why_no_person:
        return _write_as_agent(caller, edit, target)
    author = Author(session_id=caller.session_id, allow=allow)
    return _name_contradicted(caller, _writable(caller).apply_all(target, (edit,), author))


def find_contradicted(caller: Caller, text: str, target: Target = Target.MEMORY) -> list[str]:
    """Return the entries of a page that a text may take the place of."""
    from wellkept.memory import store as pages

    return pages.find_contradicted(caller.space.memory.page(target).entries, text.strip())


def _name_contradicted(caller: Caller, outcome: Outcome | Refused) -> Outcome | Refused:
    """Return the outcome with the entries that what it added may contradict, as a model may see them."""
    from msgspec.structs import replace

    from wellkept.core.errors import Refused
    from wellkept.memory.store import find_contradicted as find

    if isinstance(outcome, Refused):
        return outcome
    entries = outcome.change.entries
    added = [step.after for step in outcome.change.steps if step.action == "add" and step.after in entries]
    old = [entry for text in added if text for entry in find(entries, text)]
    return replace(outcome, contradicts=tuple(caller.space.memory.mask(outcome.target, old))) if old else outcome


def pin_entry(
    caller: Caller, which: str, target: Target = Target.MEMORY, *, is_pinned: bool = True
) -> Outcome | Refused:
    """Keep an entry on its page whatever its age, or no longer.

    `which` is a part of the entry, or its number on the page, counted from 1.
    """
    from wellkept.memory.page import PINNED, UNPINNED

    store = _decide(caller, "pin TEXT" if is_pinned else "unpin TEXT")
    entries = store.page(target).entries
    place = int(which) if which.isdecimal() and len(which) < 5 else 0
    needle = entries[place - 1] if 0 < place <= len(entries) else which
    return store.pin(target, needle, Author(session_id=caller.session_id, reason=PINNED if is_pinned else UNPINNED))


def _write_as_agent(caller: Caller, edit: Edit, target: Target) -> Outcome | Refused:
    from wellkept.memory.approval import Held, Staged, WriteRequest, Written, write_memory

    author = Author(origin="agent", session_id=caller.session_id, sources={subject_of(edit): COMMAND_SOURCE})
    match write_memory(_writable(caller), caller.space.approvals, WriteRequest(target, (edit,)), author):
        case Written(outcome):
            return _name_contradicted(caller, outcome)
        case Held() | Staged() as waits:
            answer = waits.as_json()
            error, next_step = str(answer.get("error", answer.get("message"))), answer.get("remedy", answer.get("note"))
            return Refused(Reason.STAGED, error, str(next_step), {"pending_id": waits.pending.id})
        case Refused() as refused:
            return refused


def read_log(
    caller: Caller, *, target: Target | None = None, since: float = 0.0, group_id: str | None = None
) -> EditLog:
    """Return the edits, newest first."""
    from wellkept.memory.history import read_log as read

    return read(caller.space.memory, target=target, since=since, group_id=group_id)


class MaskedLog(Struct, frozen=True):
    """Edits as a model may see them: a text with a threat is replaced by a marker."""

    rows: tuple[Mapping[str, JSON], ...]

    def as_json(self) -> list[JSON]:
        """Return one object per edit, newest first."""
        return list(self.rows)


def read_masked_log(caller: Caller, *, limit: int) -> MaskedLog:
    """Return the newest edits of both pages for a model to read."""
    store = caller.space.memory
    log = read_log(caller)
    rows: list[Mapping[str, JSON]] = []
    for record in log.records[:limit]:
        shown: dict[str, JSON] = {
            name: next(iter(store.mask(record.target, [text])), None)
            for name, text in (("before", record.step.before), ("after", record.step.after))
            if text
        }
        about: dict[str, JSON] = {"id": record.id, "time": iso_moment(record.time), "page": record.target.value}
        how: dict[str, JSON] = {
            "action": record.step.action, "origin": record.origin, "session_id": record.session_id,
        }  # fmt: skip
        rows.append({**about, **how, **shown, "undone": record.id in log.undone})
    return MaskedLog(tuple(rows))


def list_session_edits(caller: Caller, session_id: str, *, limit: int = 20) -> list[EditRecord]:
    """Return what a session wrote to the pages, the newest first."""
    from wellkept.memory.history import History

    rows = reversed(History(caller.space.memory).rows())
    return list(islice((row for row in rows if row.session_id == session_id), limit))


def read_edit(caller: Caller, ledger_id: int, target: Target | None = None) -> EditRecord:
    """Return one edit; raises NotFound for an unknown id, UsageError if it is on another page."""
    from wellkept.memory.history import History

    return History(caller.space.memory).row(ledger_id, target)


def undo(
    caller: Caller, *, ledger_id: int | None = None, group_id: str | None = None, target: Target | None = None
) -> Undone | Refused:
    """Undo one edit, one group, or the newest group that is not undone yet; only a person undoes what a person did."""
    from wellkept.memory.history import choose_edits
    from wellkept.memory.history import undo as undo_edits

    store = _writable(caller)
    if caller.why_no_person:
        edits = choose_edits(store, ledger_id, group_id, target)
        if not isinstance(edits, Refused) and any(edit.origin in OF_PERSON for edit in edits):
            _decide(caller, "undo")
    return undo_edits(store, ledger_id=ledger_id, group_id=group_id, target=target)


def read_pages_at(caller: Caller, moment: float, target: Target | None = None) -> PageEntries:
    """Return the pages as they were at a moment."""
    from wellkept.memory.history import read_pages_at as read

    return read(caller.space.memory, moment, target=target)


class PageStep(JsonStruct, frozen=True):
    """A page after one edit of its ledger, beside the page as it is now."""

    target: Target
    number: int = field(name="step")
    """From 0, the empty page before the first edit, to `total`."""
    total: int = field(name="steps")
    record: EditRecord | None = field(name="edit")
    """The edit that led here."""
    entries: tuple[str, ...]
    now: tuple[str, ...]
    days: Mapping[str, Mapping[str, int]]
    """Edits by local day and origin."""


def read_step(caller: Caller, target: Target, number: int | None = None) -> PageStep:
    """Return a page as it was after the given step of its ledger, by default the newest."""
    from wellkept.memory.history import History

    store = caller.space.memory
    rows = [row for row in History(store).rows(target) if row.step.action != "archive"]
    chosen = len(rows) if number is None else max(0, min(number, len(rows)))
    counts = Counter((row.time // _QUARTER, row.origin) for row in rows)
    days: dict[str, dict[str, int]] = {}
    for (quarter, origin), count in counts.items():
        origins = days.setdefault(f"{from_epoch(quarter * _QUARTER).astimezone():%Y-%m-%d}", {})
        origins[origin] = origins.get(origin, 0) + count
    return PageStep(
        target,
        chosen,
        len(rows),
        rows[chosen - 1] if chosen else None,
        replay(rows[:chosen]),
        store.page(target).entries,
        days,
    )


def restore_step(caller: Caller, target: Target, number: int) -> Outcome | Refused:
    """Restore a page to its state after a step, as a new edit that can be undone."""
    from wellkept.memory.rewrite import edit_page

    caller.require_person("`kept memory edit`")
    caller.require(Scope.WRITE)
    step = read_step(caller, target, number)
    store = caller.space.memory
    author = Author(reason=f"restored the page of step {step.number}")
    return edit_page(store, target, step.entries, before=store.page(target), keep_held=True, author=author)


def search_archive(caller: Caller, query: str, target: Target | None = None) -> ArchiveHits:
    """Return removed, replaced or displaced texts that contain every word of `query`."""
    from wellkept.memory.history import search_archive as search

    return search(caller.space.memory, query, target=target)


def restore(caller: Caller, ledger_id: int, target: Target | None = None) -> Outcome | Refused:
    """Put an archived text back on its page."""
    from wellkept.memory.history import restore as restore_text

    return restore_text(_decide(caller, f"restore {ledger_id}"), ledger_id, target=target)


def list_pending(caller: Caller, target: Target | None = None) -> list[Pending]:
    """Return the writes that wait for approval, oldest first."""
    return caller.space.approvals.waiting(target)


def choose_pending(caller: Caller, which: str, target: Target | None = None) -> list[str] | Refused:
    """Return the ids that `which` selects: itself, or all pending writes for `all`."""
    return caller.space.approvals.choose(which, target)


def approve(caller: Caller, pending_id: str) -> Outcome | Refused:
    """Check a pending write again and apply it."""
    _decide(caller, f"approve {pending_id}")
    return caller.space.approvals.approve(pending_id)


def reject(caller: Caller, pending_id: str) -> Rejected | Refused:
    """Reject a pending write; its text goes to the archive."""
    _decide(caller, f"reject {pending_id}")
    return caller.space.approvals.reject(pending_id)


def decide_pending(caller: Caller, pending_id: str, *, approves: bool) -> str:
    """Approve or reject a pending write, and return the result as a line for a chat."""
    from wellkept.memory.approval import Rejected

    result = approve(caller, pending_id) if approves else reject(caller, pending_id)
    if isinstance(result, Refused):
        return f"{result.error} {result.remedy}".strip()
    return f"Rejected: {result.pending.summary}" if isinstance(result, Rejected) else result.message


class Confirmed(Struct, frozen=True):
    """Entries that a person has confirmed."""

    entries: tuple[tuple[Target, str], ...]

    def as_json(self) -> dict[str, JSON]:
        """Return the entries with their pages."""
        return {"success": True, "confirmed": [{"target": page.value, "entry": entry} for page, entry in self.entries]}


def confirm_entries(
    caller: Caller, text: str | None, *, origin: str | None = None, target: Target | None = None
) -> Confirmed | Refused:
    """Clear the mark of unverified entries: of the one that contains `text`, or of all from a source."""
    store = _decide(caller, "confirm TEXT")
    marked = [
        (page, entry)
        for page in list_pages(caller, target)
        for entry, source in store.list_unverified(page).items()
        if entry in store.page(page).entries and (covers(origin, source) if origin else (text or "") in entry)
    ]
    if not marked or (text is not None and len(marked) > 1):
        error = "several unverified entries match" if marked else "no unverified entry matches"
        return Refused(Reason.AMBIGUOUS if marked else Reason.NO_MATCH, error, "`kept memory show --long` lists them")
    for page, entry in marked:
        outcome = store.apply(page, Add(entry), Author(session_id=caller.session_id, reason="confirmed"))
        if isinstance(outcome, Refused):
            return outcome
    return Confirmed(tuple(marked))


def propose_repair(caller: Caller, target: Target) -> Proposal:
    """Return what a repair of the page would write; reads only."""
    from wellkept.memory.rewrite import propose_repair as propose

    return propose(caller.space.memory, target)


def repair_page(caller: Caller, target: Target, proposal: Proposal) -> Repaired | Refused:
    """Write a proposed page; the raw bytes are backed up first."""
    from wellkept.memory.rewrite import repair_page as repair

    return repair(_writable(caller), target, proposal)


def repair_ledger(caller: Caller) -> LedgerRepair:
    """Rebuild or mark damaged rows of the ledger."""
    from wellkept.memory.rewrite import repair_ledger as repair

    return repair(_writable(caller))


def read_page(caller: Caller, target: Target) -> Page:
    """Return one page; raises Unreadable if it cannot be read."""
    return caller.space.memory.page(target)


def replace_page(
    caller: Caller, target: Target, text: str, *, before: Page, keep_held: bool = False
) -> Outcome | Refused:
    """Replace the whole page `before` by `text`; refused when the page has changed since."""
    from wellkept.memory.rewrite import edit_page

    return edit_page(_decide(caller, "edit"), target, parse(text), before=before, keep_held=keep_held)


def count_entries(caller: Caller, target: Target | None = None) -> int:
    """Return how many entries are on one page or all."""
    return sum(len(caller.space.memory.page(page).entries) for page in list_pages(caller, target))


def reset_pages(caller: Caller, target: Target | None = None) -> Reset | Refused:
    """Empty one page or all; every entry stays in the archive."""
    from wellkept.memory.rewrite import reset_pages as reset

    return reset(_decide(caller, "reset"), target=target)


def export_pages(caller: Caller, target: Target | None = None) -> PageEntries:
    """Return the entries in the form that `import_pages` reads."""
    from wellkept.memory.rewrite import export_pages as export

    return export(caller.space.memory, target=target)


def import_pages(
    caller: Caller, text: str, target: Target | None = None, *, keep_held: bool = False
) -> dict[Target, Imported]:
    """Add the entries of an export or of a page file; what does not fit goes to the archive."""
    from wellkept.memory.rewrite import import_pages as import_text

    return import_text(_decide(caller, "import FILE"), text, target=target, keep_held=keep_held)


def _decide(caller: Caller, words: str) -> MemoryStore:
    """Return the pages for a change that only a person may make, with `kept memory` and these words."""
    caller.require_person(f"`kept memory {words}`")
    return _writable(caller)


def _writable(caller: Caller) -> MemoryStore:
    caller.require(Scope.WRITE)
    return caller.space.memory


MOST_RECEIPTS = 500
"""How many of the newest session starts are counted; more would not change the picture."""
_ALIKE = 0.6
"""Share of common words from which two entries count as near duplicates."""
_LEAST_COMMON = 3
"""Entries with fewer common words are alike by chance."""


class Entry(JsonStruct, frozen=True):
    """One entry of a page; times are None if the entry is not in the ledger."""

    target: Target = field(name="_target")
    text: str
    origin: str
    created: float | None
    changed: float | None
    session_id: str | None
    shown: int
    """How often an agent was given it at the start of a session, as far as receipts go back."""
    last_shown: float | None
    is_masked: bool = field(name="masked")
    """Whether models see a marker instead, because a scanner rule matches."""

    def as_json(self) -> dict[str, JSON]:
        """Return the entry with its metadata."""
        moments = {name: iso_moment(getattr(self, name)) for name in ("created", "changed", "last_shown")}
        return {**super().as_json(), **moments}


class EntryPage(JsonStruct, frozen=True):
    """A page with its entries, or why it cannot be read."""

    target: Target
    entries: tuple[Entry, ...]
    chars: int
    limit: int
    tokens: int
    """About how many tokens its block takes at the start of a session."""
    is_enabled: bool = field(default=True, name="enabled")
    error: str = ""
    remedy: str = field(default="", name="_remedy")

    def as_json(self) -> dict[str, JSON]:
        """Return the page entry by entry."""
        return {**super().as_json(), "error": self.error or None}


class EntryPages(Struct, frozen=True):
    """All pages, entry by entry."""

    pages: tuple[EntryPage, ...]

    def as_json(self) -> list[JSON]:
        """Return one object per page."""
        return [page.as_json() for page in self.pages]


def list_entries(caller: Caller) -> EntryPages:
    """Return the pages entry by entry, with origin, age, and how often agents were shown each."""
    from wellkept.sessions.recall import tokens

    found = show_pages(caller, with_metadata=True)
    starts = _read_starts(caller)
    pages = []
    for view in found.views:
        if view.page is None:
            assert view.error is not None
            pages.append(
                EntryPage(view.target, (), 0, 0, 0, error=view.error.message, remedy=view.error.remedy)
            )  # fmt: skip
            continue
        shown_at = [start.created for start in starts if _shows(start, view.target)]
        pages.append(
            EntryPage(
                view.target,
                tuple(_describe(view, found.masked[view.target], shown_at)),
                len(view.page.text),
                view.page.limit,
                tokens(view.page.text),
                view.is_enabled,
            )
        )
    return EntryPages(tuple(pages))


def _describe(view: PageView, masked: Sequence[str], shown_at: Sequence[float]) -> Iterable[Entry]:
    assert view.page is not None
    for text, seen in zip(view.page.entries, masked, strict=True):
        known = (view.metadata or {}).get(text)
        # an entry was shown in every session that started after its last change
        moments = [moment for moment in shown_at if known is None or moment >= known.changed]
        yield Entry(
            view.target,
            text,
            known.origin if known else "",
            known.created if known else None,
            known.changed if known else None,
            known.session_id if known else None,
            len(moments),
            max(moments, default=None),
            seen != text,
        )


def _read_starts(caller: Caller) -> list[Receipt]:
    if not caller.app.has_database:
        return []
    return caller.space.sessions.receipts.recent(limit=MOST_RECEIPTS, kind="start")


def _shows(receipt: Receipt, target: Target) -> bool:
    from wellkept.sessions.receipts import ShownPage

    return any(isinstance(one, ShownPage) and one.page == target.value for one in receipt.content.shown)


class Version(Struct, frozen=True):
    """One edit in the history of an entry."""

    record: EditRecord
    is_undone: bool

    def as_json(self) -> dict[str, JSON]:
        """Return the edit as the log prints it."""
        return self.record.as_json(is_undone=self.is_undone)


class EntryHistory(JsonStruct, frozen=True):
    """Every version of an entry, the newest first, and what it says now."""

    target: Target
    text: str
    current: str | None
    """The present text of the entry; None if it is not on the page."""
    versions: tuple[Version, ...]


def trace_entry(caller: Caller, target: Target, text: str) -> EntryHistory:
    """Return the history of the entry whose text is, or once was, `text`."""
    from wellkept.memory.history import History

    store = caller.space.memory
    rows = History(store).rows(target)
    related = {text}
    # texts are joined by replacements in either direction; two passes reach versions before and after
    for row in [*reversed(rows), *rows]:
        if row.step.action == "replace" and related & {row.step.before, row.step.after}:
            related |= {each for each in (row.step.before, row.step.after) if each}
    gone = undone_ids(rows)
    versions = [
        Version(row, row.id in gone) for row in reversed(rows) if related & {row.step.before, row.step.after}
    ]  # fmt: skip
    live = store.page(target).entries
    latest = [version.record.step.after for version in versions if version.record.step.after in live]
    current = text if text in live else next(iter(latest), None)
    return EntryHistory(target, text, current, tuple(versions))


class EntryCheck(Struct, frozen=True):
    """The result of checking a text before it is added: whether it fits, the scanner's verdict, similar entries."""

    target: Target
    chars: int
    used: int
    limit: int
    refusal: Refused | None
    similar: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the page has room for it."""
        return self.used <= self.limit

    def as_json(self) -> dict[str, JSON]:
        """Return the verdict."""
        return {
            "target": self.target.value,
            "chars": self.chars,
            "used": self.used,
            "limit": self.limit,
            "fits": self.fits,
            "refusal": None if self.refusal is None else self.refusal.as_json(),
            "similar": list(self.similar),
        }


def check_entry(caller: Caller, target: Target, text: str) -> EntryCheck:
    """Return what adding `text` would do; writes nothing."""
    store = caller.space.memory
    page = store.page(target)
    text = text.strip()
    used = len(page.text) + (len(text) + (len(ENTRY_DELIMITER) if page.entries else 0) if text else 0)
    outcome = store.dry_run(target, (Add(text),), Author()) if text else None
    refusal = outcome if isinstance(outcome, Refused) else None
    everywhere = [entry for each in store.targets for entry in store.page(each).entries]
    return EntryCheck(target, len(text), used, page.limit, refusal, tuple(_find_similar(text, everywhere)))


def _find_similar(text: str, entries: Iterable[str]) -> list[str]:
    words = set(split_words(text.casefold()))
    similar = []
    for entry in entries:
        other = set(split_words(entry.casefold()))
        common = len(words & other)
        if entry == text or (common >= _LEAST_COMMON and common / min(len(words), len(other)) >= _ALIKE):
            similar.append(entry)
    return similar


def change_entry(caller: Caller, target: Target, before: str, text: str) -> Outcome | Refused:
    """Replace the entry whose text is exactly `before`; an empty text removes it.

    Refused with MOVED_ON if no entry has that text any more: somebody else's change must not be overwritten.
    """
    from wellkept.memory.rewrite import replace_exactly

    caller.require_person("`kept memory replace` or `kept memory remove`")
    caller.require(Scope.WRITE)
    author = Author(session_id=caller.session_id)
    return replace_exactly(caller.space.memory, target, before, text or None, author)


class Moved(JsonStruct, frozen=True):
    """An entry that was moved to another page; undoing the group moves it back."""

    source: Target = field(name="from")
    target: Target = field(name="to")
    group_id: str

    def as_json(self) -> dict[str, JSON]:
        """Return where it was and where it is."""
        return {"success": True, **super().as_json()}


def move_entry(caller: Caller, source: Target, target: Target, text: str) -> Moved | Refused:
    """Move an entry to another page, as one group; refused without any change if it does not fit there."""
    from wellkept.memory.rewrite import replace_exactly

    caller.require_person("`kept memory add` and `kept memory remove`")
    caller.require(Scope.WRITE)
    store = caller.space.memory
    if text not in store.page(source).entries:
        return Refused(Reason.MOVED_ON, "The entry is not on that page any more.", "Look at the page again.")
    author = Author(session_id=caller.session_id, allow=store.allowed_rules(source, text))
    added = store.apply(target, Add(text), author)
    if isinstance(added, Refused):
        return added
    removed = replace_exactly(store, source, text, None, author)
    return removed if isinstance(removed, Refused) else Moved(source, target, author.group_id)


class ArchivedEntries(JsonStruct, frozen=True):
    """Entries that were moved to the archive; undoing the group restores all of them."""

    count: int = field(name="archived")
    group_id: str

    def as_json(self) -> dict[str, JSON]:
        """Return how many, and the group."""
        return {"success": True, **super().as_json()}


def archive_entries(caller: Caller, chosen: Sequence[tuple[Target, str]]) -> ArchivedEntries | Refused:
    """Move entries from their pages to the archive, as one group."""
    from wellkept.memory.rewrite import replace_exactly

    caller.require_person("`kept memory remove`")
    caller.require(Scope.WRITE)
    store = caller.space.memory
    missing = [text for target, text in chosen if text not in store.page(target).entries]
    if missing:
        return Refused(Reason.MOVED_ON, "One of these entries was changed meanwhile.", "Look at the pages again.")
    author = Author(session_id=caller.session_id, reason="archived as stale")
    for target, text in chosen:
        done = replace_exactly(store, target, text, None, author)
        if isinstance(done, Refused):
            return done
    return ArchivedEntries(len(chosen), author.group_id)

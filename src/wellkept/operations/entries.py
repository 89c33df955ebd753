"""The entries of the pages one by one: origin, age, where they were shown, earlier versions, and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.caller import Scope
from wellkept.core.clock import iso_moment
from wellkept.core.errors import Reason, Refused
from wellkept.core.text import split_words
from wellkept.core.values import JsonStruct
from wellkept.memory.page import Add, Author, Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wellkept.app.caller import Caller
    from wellkept.core.text import JSON
    from wellkept.memory.history import PageView
    from wellkept.memory.page import EditRecord
    from wellkept.memory.store import Outcome
    from wellkept.sessions.receipts import Receipt

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
    from wellkept.operations.pages import show_pages
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
        shown_at = [one.created for one in starts if _shows(one, view.target)]
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
    from wellkept.memory.page import undone_ids

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
    latest = [one.record.step.after for one in versions if one.record.step.after in live]
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
    from wellkept.memory.page import ENTRY_DELIMITER

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
    found = []
    for entry in entries:
        other = set(split_words(entry.casefold()))
        common = len(words & other)
        if entry == text or (common >= _LEAST_COMMON and common / min(len(words), len(other)) >= _ALIKE):
            found.append(entry)
    return found


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

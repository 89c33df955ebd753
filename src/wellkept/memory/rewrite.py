"""Whole pages: edit or reset one, import and export them, repair one that was damaged from outside."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import Reason, Refused, StorageError, Unreadable, UsageError
from wellkept.core.ids import SourceName, new_group_id
from wellkept.core.text import JSON
from wellkept.memory.history import PageEntries, targets
from wellkept.memory.page import (
    CONTROL,
    DELIMITER_LINE,
    ENTRY_DELIMITER,
    Add,
    Author,
    Change,
    LedgerRepair,
    Page,
    Step,
    Target,
    clean,
    parse,
    preview,
    refuse_over_budget,
    steps_between,
)
from wellkept.memory.store import MemoryStore, Outcome, check_text, rules_in, rules_to_approve

_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")
_HEADING = re.compile(r"^\s*#{1,6}\s+")


def edit_page(
    store: MemoryStore,
    target: Target,
    entries: tuple[str, ...],
    *,
    before: Page,
    keep_held: bool = False,
    author: Author | None = None,
) -> Outcome | Refused:
    """Replace the page, if it still equals `before`, with `entries`; new ones are checked like added ones.

    With `keep_held` a person has accepted texts that the scanner holds.
    """
    new = [Add(entry) for entry in entries if entry not in before.entries]
    author = author or Author()
    refused = store.check(target, new, author)
    if keep_held and refused is not None and refused.reason is Reason.HELD:
        rules = rules_to_approve(edit.text for edit in new)
        if isinstance(rules, Refused):
            return rules
        author = replace(author, allow=rules)
        refused = store.check(target, new, author)
    if refused is not None:
        return refused

    def decide(live: Page) -> Change | Refused:
        if live.entries != before.entries:
            return Refused(Reason.MOVED_ON, "The page was changed while you edited it.", "edit it again")
        if not live.fits(entries) and entries != live.entries:
            return Refused(Reason.OVER_BUDGET, f"That is longer than {live.limit:,} characters.", "shorten it")
        return Change(entries, steps_between(live.entries, entries), "Page edited.")

    return store.write(target, decide, author)


def replace_exactly(
    store: MemoryStore, target: Target, before: str, after: str | None, author: Author
) -> Outcome | Refused:
    """Replace the entry `before`, or remove it if `after` is None; refused if no entry has exactly this text."""
    refused = None if after is None else store.check(target, (Add(after),), author)
    entry = None if after is None else clean(after)
    if refused is not None or isinstance(entry, Refused):
        return refused or entry  # type: ignore[return-value] # one of them is a refusal

    def decide(live: Page) -> Change | Refused:
        if before not in live.entries:
            return Refused(
                Reason.MOVED_ON, "This entry was changed meanwhile.", "compare both versions, then edit again"
            )
        index = live.entries.index(before)
        if entry is None or (entry != before and entry in live.entries):
            step = Step("remove", before, None, index)
        elif entry == before:
            return Change(live.entries, (), "The entry already says that; nothing was changed.")
        else:
            step = Step("replace", before, entry, index)
        entries = step.apply(live.entries)
        assert entries is not None
        if not live.fits(entries):
            return refuse_over_budget(live, entries)
        return Change(entries, (step,), "Entry removed." if step.action == "remove" else "Entry replaced.")

    return store.write(target, decide, author)


class Reset(Struct, frozen=True):
    """The pages that were emptied."""

    outcomes: Mapping[Target, Outcome]

    def as_json(self) -> dict[str, JSON]:
        """Return the outcomes by page, as `kept memory reset --json` prints them."""
        return {page.value: outcome.as_json() for page, outcome in self.outcomes.items()}


def reset_pages(store: MemoryStore, *, target: Target | None = None) -> Reset | Refused:
    """Remove every entry of one page or of both; each stays in the archive, or nothing is changed.

    The pages are one group, so that one undo brings all entries back.
    """
    author = Author(reason="reset")

    def decide(live: Page) -> Change:
        message = f"{len(live.entries)} entries archived."
        return Change((), steps_between(live.entries, ()), message, is_only_copy=True)

    outcomes = {}
    for page in targets(store, target):
        result = store.write(page, decide, author)
        if isinstance(result, Refused):
            return result
        outcomes[page] = result
    return Reset(outcomes)


def export_pages(store: MemoryStore, *, target: Target | None = None) -> PageEntries:
    """Return the live entries in the form that `read_pages` accepts."""
    pages = {page: store.page(page).entries for page in targets(store, target)}
    archived = {page: tuple(store.archived(page)) for page in pages}
    unverified = {entry: source for page in pages for entry, source in store.list_unverified(page).items()}
    texts = [entry for kept in (pages, archived) for entries in kept.values() for entry in entries]
    return PageEntries(pages, {entry: unverified[entry] for entry in texts if entry in unverified}, archived)


class Imported(Struct, frozen=True):
    """What happened to each text of an import: added, already present, archived, or refused with the reason."""

    added: tuple[str, ...]
    present: tuple[str, ...]
    archived: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    group_id: str

    def as_json(self) -> dict[str, JSON]:
        """Return the counts as `kept memory import --json` prints them."""
        return {
            "added": len(self.added), "present": len(self.present), "archived": len(self.archived),
            "refused": [list(pair) for pair in self.refused], "group_id": self.group_id,
        }  # fmt: skip


def read_pages(text: str, target: Target, *, part: str = "entries") -> Mapping[Target, tuple[str, ...]]:
    """Return the entries of an export (`{"memory": {"entries": […]}, …}` or lists), or of a page file.

    With the part `archived`, return what had left the pages to make room.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict | list):
        return {target: parse(text) if part == "entries" else ()}
    if not isinstance(data, dict) or not any(page in data for page in Target):
        raise UsageError("the file is neither an export nor a page", "`kept memory export` shows the form")
    pages = {}
    for page in Target:
        if page is Target.PROJECT and page.value not in data:
            continue  # an export from outside a project
        listed = data.get(page.value, [])
        listed = listed if isinstance(listed, dict) else {"entries": listed}
        entries = listed.get(part, [])
        if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
            raise UsageError(
                f"{page.value!r} in the file is not a list of texts", "`kept memory export` shows the form"
            )
        pages[page] = tuple(entries)
    return pages


def import_pages(
    store: MemoryStore, text: str, *, target: Target | None = None, keep_held: bool = False
) -> dict[Target, Imported]:
    """Import an export or a page file; a page file goes to `target`, or to `memory` when none is named.

    With a target only that page of an export is imported.
    """
    pages = read_pages(text, target or Target.MEMORY)
    sources = _read_sources(text)
    archived = read_pages(text, target or Target.MEMORY, part="archived")
    return {
        page: import_page(store, page, entries, keep_held=keep_held, sources=sources, shelved=archived[page])
        for page, entries in pages.items()
        if target in (None, page)
    }


def _read_sources(text: str) -> dict[str, SourceName]:
    """Return the sources of unverified entries of an export, by entry; none is trusted more than the file."""
    from wellkept.core.provenance import accept_claim

    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    listed = data.get("sources") if isinstance(data, dict) else None
    claims = listed.items() if isinstance(listed, dict) else ()
    return {
        entry: accept_claim(SourceName(name), _IMPORTED) or _IMPORTED for entry, name in claims if isinstance(name, str)
    }


_IMPORTED = SourceName("import:pages")


def import_page(
    store: MemoryStore,
    target: Target,
    entries: tuple[str, ...],
    *,
    keep_held: bool = False,
    sources: Mapping[str, SourceName] = MappingProxyType({}),
    shelved: Sequence[str] = (),
) -> Imported:
    """Add each text that fits and is clean, and archive what does not fit; `shelved` goes where it was exported from.

    Rules that a person once allowed for a text stay allowed; `keep_held` accepts texts that the scanner holds.
    """
    author = Author(origin="import", group_id=new_group_id(), sources=sources, source=_IMPORTED)
    added, present, archived, refused = list[str](), list[str](), list[str](), list[tuple[str, str]]()
    for entry in entries:
        if entry in store.page(target).entries:
            present.append(entry)
            continue
        allowed = store.allowed_rules(target, entry)
        outcome = store.apply(target, Add(entry), replace(author, allow=allowed))
        if isinstance(outcome, Refused) and outcome.reason is Reason.HELD and keep_held:
            outcome = store.apply(target, Add(entry), replace(author, allow=allowed | rules_in(outcome)))
        is_too_much = isinstance(outcome, Refused) and outcome.reason is Reason.OVER_BUDGET
        if is_too_much:
            outcome = store.archive(target, [entry], author)
        if isinstance(outcome, Refused):
            refused.append((preview(entry), outcome.error))
        else:
            (archived if is_too_much else added).append(entry)
    for text in _clean_all(shelved):
        outcome = check_text(text, store.allowed_rules(target, text)) or store.keep_archived(target, (text,), author)
        if isinstance(outcome, Refused):
            refused.append((preview(text), outcome.error))
        else:
            archived.append(text)
    return Imported(tuple(added), tuple(present), tuple(archived), tuple(refused), author.group_id)


class Proposal(Struct, frozen=True):
    """What a repair would write, and what it would move to the archive."""

    raw: bytes
    current: str
    entries: tuple[str, ...]
    archived: tuple[str, ...]
    is_needed: bool


class Repaired(Struct, frozen=True):
    """The result of a repair; no outcome when the page needed none."""

    outcome: Outcome | None
    archived: tuple[str, ...] = ()

    def as_json(self) -> dict[str, JSON]:
        """Return the result as `kept memory repair --json` prints it."""
        if self.outcome is None:
            return {"success": True, "needed": False}
        return {**self.outcome.as_json(), "needed": True, "archived": list(self.archived)}


def propose_repair(store: MemoryStore, target: Target) -> Proposal:
    """Return the clean page that a repair would write; reads only."""
    raw = store.pages.read(target).raw
    text, is_readable = _decode(raw)
    limit = store.limit(target)
    headings: list[str] = []
    pieces: list[str] = []
    for part in DELIMITER_LINE.split(text.replace("\r\n", "\n").replace("\r", "\n")):
        is_known = _was_written_by_kept(store, target, part.strip())
        pieces += [part] if is_known else _split(part, limit, headings=headings)
    entries = _clean_all(pieces)
    fitting: list[str] = []
    for entry in entries:
        if len(ENTRY_DELIMITER.join([*fitting, entry])) <= limit:
            fitting.append(entry)
    archived = tuple(entry for entry in (*entries, *_clean_all(headings)) if entry not in fitting)
    current = parse(text) if is_readable else ()
    return Proposal(raw, text, tuple(fitting), archived, is_needed=not is_readable or current != tuple(fitting))


def repair_page(store: MemoryStore, target: Target, proposal: Proposal) -> Repaired | Refused:
    """Write the proposed page and archive the rest; the raw bytes are backed up first."""
    if not proposal.is_needed:
        return Repaired(None)
    store.pages.prepare()
    store.pages.back_up(target, store.pages.read(target).raw, epoch=int(store.clock.now().timestamp()))

    def decide(page: Page) -> Change | Refused:
        if store.pages.read(target).raw != proposal.raw:
            return Refused(Reason.MOVED_ON, "The page was changed since the repair was proposed.", "Repair it again.")
        steps = steps_between(page.entries, proposal.entries)
        archived = (Step("archive", text, None, -1) for text in proposal.archived)
        return Change(proposal.entries, (*steps, *archived), "The page was repaired.")

    outcome = store.write(target, decide, Author(origin="repair"), repair=True)
    return outcome if isinstance(outcome, Refused) else Repaired(outcome, proposal.archived)


def repair_ledger(store: MemoryStore) -> LedgerRepair:
    """Rebuild damaged rows of the ledger where that can be proven, and mark the others; replace a damaged file."""
    with suppress(Unreadable):
        if not store.ledger.damaged():
            return LedgerRepair()
    entries = [entry for page in targets(store, None) for entry in _readable_entries(store, page)]
    return store.ledger.repair(entries)


def _readable_entries(store: MemoryStore, target: Target) -> tuple[str, ...]:
    try:
        return store.page(target).entries
    except StorageError:
        return ()


def _decode(raw: bytes) -> tuple[str, bool]:
    """Return the text, and whether the page can be read as it is."""
    for encoding in ("utf-8-sig", "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"):
        try:
            return raw.decode(encoding), encoding == "utf-8-sig"
        except UnicodeDecodeError:
            continue
    return raw.decode("cp1252", "replace"), False


def _was_written_by_kept(store: MemoryStore, target: Target, text: str) -> bool:
    """Whether kept wrote this entry, so that its paragraphs and bullets belong together."""
    try:
        return store.ledger.contains(target, text, outside=False)
    except StorageError:
        return False


def _split(part: str, limit: int, *, headings: list[str]) -> Sequence[str]:
    """Return an ordinary entry whole, anything else as its bullets and paragraphs; collects the headings."""
    lines = [line for line in part.strip().splitlines() if line.strip()]
    bullets = sum(1 for line in lines if _BULLET.match(line))
    if len(part.strip()) <= limit and bullets < 2 and "\n\n" not in part.strip():
        return [part]
    pieces: list[str] = []
    for paragraph in re.split(r"\n\s*\n", part):
        starts_entry = True
        for line in paragraph.splitlines():
            if _HEADING.match(line):
                starts_entry = True
                headings.append(_HEADING.sub("", line))
                continue
            if _BULLET.match(line):
                pieces.append(_BULLET.sub("", line))
                starts_entry = False
            elif starts_entry or not pieces:
                pieces.append(line)
                starts_entry = False
            else:
                pieces[-1] = f"{pieces[-1]}\n{line.strip()}"
    return pieces


def _clean_all(pieces: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct entries that the pieces make without their control characters."""
    texts = (clean(CONTROL.sub("", piece)) for piece in pieces)
    return tuple(dict.fromkeys(text for text in texts if isinstance(text, str)))

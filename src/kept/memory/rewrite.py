"""A whole page at once: written anew by a person, or emptied."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kept.core.errors import Reason, Refused, StorageError, UsageError
from kept.core.ids import new_group_id
from kept.memory.edits import Add, Author, Change, Step, Target, steps_between
from kept.memory.page import CONTROL, DELIMITER_LINE, ENTRY_DELIMITER, Page, clean, parse, preview
from kept.memory.store import MemoryStore, Outcome
from kept.memory.threats import held_rules, named_rules


def rewrite(
    store: MemoryStore, target: Target, entries: tuple[str, ...], *, before: Page, keep_held: bool = False
) -> Outcome | Refused:
    """Replace the page `before`, as it was handed out, by `entries`; each new one is checked like an added one.

    With `keep_held` a person has said yes to what the scanner only holds.
    """
    new = [Add(entry) for entry in entries if entry not in before.entries]
    author = Author()
    refused = store.checked(target, new, author)
    if keep_held and refused is not None and refused.reason is Reason.HELD:
        passing = held_rules(edit.text for edit in new)
        if isinstance(passing, Refused):
            return passing
        author = Author(allow=passing)
        refused = store.checked(target, new, author)
    if refused is not None:
        return refused

    def decide(live: Page) -> Change | Refused:
        if live.entries != before.entries:
            return Refused(Reason.MOVED_ON, "The page was changed while you edited it.", "edit it again")
        if not live.fits(entries) and entries != live.entries:
            return Refused(Reason.OVER_BUDGET, f"That is longer than {live.limit:,} characters.", "shorten it")
        return Change(entries, steps_between(live.entries, entries), "Page edited.")

    return store.write(target, decide, author)


def empty(store: MemoryStore, target: Target, author: Author) -> Outcome | Refused:
    """Take every entry off a page; each stays in the archive, or nothing is changed.

    Pages that one author empties are one group: one undo brings them all back.
    """

    def decide(live: Page) -> Change:
        message = f"{len(live.entries)} entries archived."
        return Change((), steps_between(live.entries, ()), message, is_only_copy=True)

    return store.write(target, decide, author)


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of each text: on the page, already there, in the archive, or refused with the reason."""

    added: tuple[str, ...]
    present: tuple[str, ...]
    archived: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    group_id: str


def read_pages(text: str, target: Target) -> Mapping[Target, tuple[str, ...]]:
    """Return the entries in an export (`{"memory": {"entries": […]}, …}` or lists), or in a page file."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {target: parse(text)}
    if not isinstance(data, dict | list):
        return {target: parse(text)}
    if not isinstance(data, dict) or not any(page in data for page in Target):
        raise UsageError("the file holds neither an export nor a page", "`kept memory export` shows the form")
    pages = {}
    for page in Target:
        entries = data.get(page.value, [])
        if isinstance(entries, dict):
            entries = entries.get("entries", [])
        if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
            raise UsageError(f"{page.value!r} in the file is no list of texts", "`kept memory export` shows the form")
        pages[page] = tuple(entries)
    return pages


def import_page(store: MemoryStore, target: Target, entries: tuple[str, ...], *, keep_held: bool = False) -> Imported:
    """Add each text that fits and is clean; what does not fit goes to the archive.

    Rules that a person once let pass for a text pass again; with `keep_held` they let pass what is only held.
    """
    author = Author(origin="import", group_id=new_group_id())
    added, present, archived, refused = list[str](), list[str](), list[str](), list[tuple[str, str]]()
    for entry in entries:
        if entry in store.page(target).entries:
            present.append(entry)
            continue
        known = store.allowed(target, entry)
        outcome = store.apply(target, Add(entry), replace(author, allow=known))
        if isinstance(outcome, Refused) and outcome.reason is Reason.HELD and keep_held:
            outcome = store.apply(target, Add(entry), replace(author, allow=known | named_rules(outcome)))
        is_too_much = isinstance(outcome, Refused) and outcome.reason is Reason.OVER_BUDGET
        if is_too_much:
            outcome = store.archive(target, [entry], author)
        if isinstance(outcome, Refused):
            refused.append((preview(entry), outcome.error))
        else:
            (archived if is_too_much else added).append(entry)
    return Imported(tuple(added), tuple(present), tuple(archived), tuple(refused), author.group_id)


_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")
_HEADING = re.compile(r"^\s*#{1,6}\s+")


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a repair would write, and what it would move to the archive."""

    raw: bytes
    current: str
    entries: tuple[str, ...]
    archived: tuple[str, ...]
    needed: bool


def propose(store: MemoryStore, target: Target) -> Proposal:
    """Return the clean page that a repair would write; reads only."""
    raw = store.files.raw(target)
    text, readable = _decoded(raw)
    limit = store.limit(target)
    headings: list[str] = []
    pieces: list[str] = []
    for part in DELIMITER_LINE.split(text.replace("\r\n", "\n").replace("\r", "\n")):
        ours = _is_ours(store, target, part.strip())
        pieces += [part] if ours else _split(part, limit, headings=headings)
    entries = _cleaned(pieces)
    fitting: list[str] = []
    for entry in entries:
        if len(ENTRY_DELIMITER.join([*fitting, entry])) <= limit:
            fitting.append(entry)
    archived = tuple(entry for entry in (*entries, *_cleaned(headings)) if entry not in fitting)
    current = parse(text) if readable else ()
    return Proposal(raw, text, tuple(fitting), archived, needed=not readable or current != tuple(fitting))


def repair(store: MemoryStore, target: Target, proposal: Proposal) -> Outcome | Refused:
    """Write the proposed page and archive the rest; the raw bytes are backed up first."""
    store.files.prepare()
    store.files.back_up(target, store.files.raw(target), int(store.clock.now().timestamp()))

    def decide(page: Page) -> Change | Refused:
        if store.files.raw(target) != proposal.raw:
            return Refused(Reason.MOVED_ON, "The page was changed since the repair was proposed.", "Repair it again.")
        steps = steps_between(page.entries, proposal.entries)
        archived = (Step("archive", text, None, -1) for text in proposal.archived)
        return Change(proposal.entries, (*steps, *archived), "The page was repaired.")

    return store.write(target, decide, Author(origin="repair"), repair=True)


def _decoded(raw: bytes) -> tuple[str, bool]:
    for encoding in ("utf-8-sig", "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"):
        try:
            return raw.decode(encoding), encoding == "utf-8-sig"
        except UnicodeDecodeError:
            continue
    return raw.decode("cp1252", "replace"), False


def _is_ours(store: MemoryStore, target: Target, text: str) -> bool:
    """Whether an entry was written by kept as it stands; its paragraphs and bullets are then meant."""
    try:
        return store.has_ledger and store.ledger.wrote(target, text)
    except StorageError:
        return False


def _split(part: str, limit: int, *, headings: list[str]) -> Sequence[str]:
    """Return a part whole when it is an ordinary entry, else its bullets and paragraphs; collect the headings."""
    lines = [line for line in part.strip().splitlines() if line.strip()]
    bullets = sum(1 for line in lines if _BULLET.match(line))
    if len(part.strip()) <= limit and bullets < 2 and "\n\n" not in part.strip():
        return [part]
    pieces: list[str] = []
    for paragraph in re.split(r"\n\s*\n", part):
        fresh = True
        for line in paragraph.splitlines():
            if _HEADING.match(line):
                fresh = True
                headings.append(_HEADING.sub("", line))
                continue
            if _BULLET.match(line):
                pieces.append(_BULLET.sub("", line))
                fresh = False
            elif fresh or not pieces:
                pieces.append(line)
                fresh = False
            else:
                pieces[-1] = f"{pieces[-1]}\n{line.strip()}"
    return pieces


def _cleaned(pieces: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct entries that the pieces make once control characters are taken out."""
    texts = (clean(CONTROL.sub("", piece)) for piece in pieces)
    return tuple(dict.fromkeys(text for text in texts if isinstance(text, str)))

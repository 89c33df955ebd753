"""Repair: a clean page proposed from a drifted or unreadable file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kept.core.errors import Reason, Refused, StorageError
from kept.memory.edits import Step, Target, steps_between
from kept.memory.ledger import Author, Change
from kept.memory.page import CONTROL, DELIMITER_LINE, ENTRY_DELIMITER, Page, clean, parse
from kept.memory.store import MemoryStore, Outcome

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

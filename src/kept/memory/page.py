"""A page: a few entries of text within a budget of characters."""

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from kept.core.errors import Reason, Refused
from kept.core.text import is_encodable
from kept.memory.edits import Add, Change, Edit, Remove, Replace, Step

ENTRY_DELIMITER = "\n§\n"
PREVIEW_CHARS = 80
BOM = "\ufeff"

DELIMITER_LINE = re.compile(r"^[^\S\n]*(?:§[^\S\n]*)+$", re.MULTILINE)
"""A line that is a delimiter, or would be taken for one by a reader or an editor."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that no entry may hold."""
_LINE_END = re.compile(r"\r+\n")


def parse(text: str) -> tuple[str, ...]:
    """Return the entries of a page's text: stripped, without empty ones, the first of equal ones."""
    pieces = _LINE_END.sub("\n", text.removeprefix(BOM)).split(ENTRY_DELIMITER)
    return tuple(dict.fromkeys(piece for piece in map(_stripped, pieces) if piece))


def _stripped(piece: str) -> str:
    """Return a piece without what a reader drops at its ends: an entry may become the first of its file."""
    piece = piece.strip()
    while piece.startswith(BOM):
        piece = piece[1:].lstrip()
    return piece


def has_delimiter_line(text: str) -> bool:
    """Whether a line of `text` is only `§`s, so that it would be taken for a delimiter one day."""
    return DELIMITER_LINE.search(text.replace("\r\n", "\n").replace("\r", "\n")) is not None


def clean(text: str) -> str | Refused:
    """Return `text` as an entry would be stored, or why it cannot be one."""
    entry = _stripped(text.replace("\r\n", "\n").replace("\r", "\n"))
    if not entry:
        return Refused(Reason.EMPTY, "The content is empty.", "Give the fact to keep.")
    if has_delimiter_line(entry):
        return Refused(
            Reason.DELIMITER,
            "A line of the content is only '§', which separates entries.",
            "Remove that line, or add the parts as separate entries.",
        )
    if (control := CONTROL.search(entry)) is not None or not is_encodable(entry):
        what = f"the control character U+{ord(control[0]):04X}" if control else "half of a surrogate pair"
        return Refused(Reason.INVALID, f"The content holds {what}.", "Send it again as plain text without it.")
    return entry


def preview(entry: str) -> str:
    """Return the beginning of an entry, on one line."""
    line = " ".join(entry.split())
    return line if len(line) <= PREVIEW_CHARS else line[: PREVIEW_CHARS - 1] + "…"


@dataclass(frozen=True, slots=True)
class Page:
    """The entries of one page and how many characters they may take together."""

    entries: tuple[str, ...]
    limit: int

    @property
    def text(self) -> str:
        """Return the page as its file holds it."""
        return ENTRY_DELIMITER.join(self.entries)

    @property
    def percent(self) -> int:
        """Return how full the page is, 100 at most."""
        return min(100, int(len(self.text) / self.limit * 100)) if self.limit > 0 else 0

    @property
    def usage(self) -> str:
        """Return `67% — 1,474/2,200 chars`."""
        return f"{self.percent}% — {len(self.text):,}/{self.limit:,} chars"

    def fits(self, entries: Sequence[str]) -> bool:
        """Whether `entries` may replace the present ones: within the limit, or at least fewer characters."""
        size = len(ENTRY_DELIMITER.join(entries))
        return size <= self.limit or size < len(self.text)

    def edited(self, edit: Edit) -> "Edited | Refused":
        """Return the page after `edit` with the steps that led there, whatever its size."""
        match edit:
            case Add(text):
                return self._added(text)
            case Replace(needle, text):
                return self._replaced(needle, text)
            case Remove(needle):
                place = self._place(needle)
                if isinstance(place, Refused):
                    return place
                return self._stepped(Step("remove", self.entries[place], None, place))
            case _:
                assert_never(edit)

    def _added(self, text: str) -> "Edited | Refused":
        entry = clean(text)
        if isinstance(entry, Refused):
            return entry
        if entry in self.entries:
            return Edited(self, (), "Entry already exists (no duplicate added).")
        return self._stepped(Step("add", None, entry, len(self.entries)))

    def _replaced(self, needle: str, text: str) -> "Edited | Refused":
        entry = clean(text)
        if isinstance(entry, Refused):
            return entry
        place = self._place(needle)
        if isinstance(place, Refused):
            return place
        old = self.entries[place]
        if entry == old:
            return Edited(self, (), "The entry already says that; nothing was changed.")
        if entry in self.entries:
            merged = self._stepped(Step("remove", old, None, place))
            return replace(merged, message="The result equals another entry: the old one was removed.")
        return self._stepped(Step("replace", old, entry, place))

    def _place(self, needle: str) -> int | Refused:
        wanted = needle.replace("\r\n", "\n")
        if not wanted.strip():
            return Refused(Reason.EMPTY, "`old_text` is empty.", "Quote a part of the one entry that is meant.")
        # identical duplicates are one entry to the reader, so only distinct hits are ambiguous
        hits = dict.fromkeys(entry for entry in self.entries if wanted in entry) or dict.fromkeys(
            entry for entry in self.entries if wanted.strip() in entry
        )
        if not hits:
            return Refused(
                Reason.NO_MATCH,
                "No entry holds that text.",
                "Quote a part of an entry exactly as it stands on the page now.",
            )
        if len(hits) > 1:
            return Refused(
                Reason.AMBIGUOUS,
                f"{len(hits)} different entries hold that text.",
                "Quote a longer part that only the one entry has.",
                {"matches": [preview(entry) for entry in hits]},
            )
        return self.entries.index(next(iter(hits)))

    def _stepped(self, step: Step) -> "Edited":
        entries = step.applied(self.entries)
        assert entries is not None
        messages = {
            "add": "Entry added.",
            "replace": "Entry replaced.",
            "remove": "Entry removed.",
            "archive": "",
        }
        return Edited(replace(self, entries=entries), (step,), messages[step.action])


@dataclass(frozen=True, slots=True)
class Edited:
    """A page after an edit, the steps that led there, and what to tell about it."""

    page: Page
    steps: tuple[Step, ...]
    message: str


def drifted(entries: Sequence[str], limit: int, known: Collection[str]) -> str | None:
    """Return what is wrong with a page that was just read, None when it can be written back safely.

    Cosmetic differences (white space, blank entries, duplicates, line ends) are no drift: reading
    has normalised them. `known` holds the entries that the ledger wrote itself.
    """
    for number, entry in enumerate(entries, start=1):
        if has_delimiter_line(entry):
            return f"entry {number} has a line of '§' that is no clean delimiter"
        if len(entry) > limit and entry not in known:
            return f"entry {number} is longer than the whole page may be ({len(entry):,} of {limit:,} characters)"
    return None


def changed(
    page: Page,
    edits: Sequence[Edit],
    *,
    oldest_first: Callable[[Sequence[str]], list[str]] | None,
) -> Change | Refused:
    """Return the change that `edits` make, or the refusal of the first that cannot be made.

    With `oldest_first` a page that would overflow moves its entries changed longest ago to the
    archive; without it the whole change is refused.
    """
    now, steps, messages = page, tuple[Step, ...](), list[str]()
    for number, edit in enumerate(edits, start=1):
        result = now.edited(edit)
        if isinstance(result, Refused):
            return in_batch(result, number, len(edits), reason=Reason.BATCH)
        now, steps = result.page, (*steps, *result.steps)
        messages.append(result.message)
    change = Change(now.entries, steps, " ".join(dict.fromkeys(messages)) or "Done.")
    if not steps or page.fits(now.entries):
        return change
    if oldest_first is None:
        return over_budget(page, now.entries)
    return _made_room(page, change, oldest_first)


def _made_room(page: Page, change: Change, oldest_first: Callable[[Sequence[str]], list[str]]) -> Change | Refused:
    new = {step.after for step in change.steps}
    entries, moved = change.entries, list[Step]()
    for entry in oldest_first([entry for entry in change.entries if entry not in new]):
        if page.fits(entries):
            break
        place = entries.index(entry)
        moved.append(Step("remove", entry, None, place))
        entries = (*entries[:place], *entries[place + 1 :])
    if not page.fits(entries):
        return over_budget(page, change.entries)
    return replace(change, entries=entries, overflow=tuple(moved), is_only_copy=True)


def over_budget(page: Page, entries: Sequence[str]) -> Refused:
    """Return the refusal of entries that take more room than the page has."""
    size = len(ENTRY_DELIMITER.join(entries))
    return Refused(
        Reason.OVER_BUDGET,
        f"The page would hold {size:,} characters; its limit is {page.limit:,} (now {page.usage}).",
        "Merge entries with replace, or remove stale entries, then retry.",
    )


def too_long(page: Page, entry: str) -> Refused:
    """Return the refusal of one entry that is longer than a whole page may be."""
    return Refused(
        Reason.OVER_BUDGET,
        f"The entry alone has {len(entry):,} characters; the limit of the page is {page.limit:,} (now {page.usage}).",
        "Say it shorter, or keep only the facts that last.",
    )


def in_batch(refused: Refused, number: int, total: int, *, reason: Reason) -> Refused:
    """Return the refusal of one step as that of its whole batch; a single edit is refused as it is."""
    if total == 1:
        return refused
    return Refused(
        reason,
        f"Step {number} of {total} was refused, so nothing was changed: {refused.error}",
        refused.remedy,
        {**refused.detail, "step": number},
    )


def page_hash(entries: Sequence[str]) -> str:
    """Return the sha256 of a page's bytes as we write them."""
    return hashlib.sha256(Page(tuple(entries), 0).text.encode("utf-8", "surrogatepass")).hexdigest()

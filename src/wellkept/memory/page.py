"""A page: a few entries of text within a character limit, the results of edits, and what the scanner finds in it."""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, assert_never
from unicodedata import normalize

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import Reason, Refused, Unreadable
from wellkept.core.regular_files import load_bytes
from wellkept.core.text import is_encodable, resource_path
from wellkept.memory.edits import Add, Change, Edit, Remove, Replace, Step, Target

if TYPE_CHECKING:
    from wellkept.security.scan import Verdict  # loading the scanner takes longer than reading a page

ENTRY_DELIMITER = "\n§\n"
PREVIEW_CHARS = 80
BOM = "\ufeff"

DELIMITER_LINE = re.compile(r"^[^\S\n]*(?:§[^\S\n]*)+$", re.MULTILINE)
"""A line that is a delimiter, or that a reader could mistake for one."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that no entry may contain."""
_LINE_END = re.compile(r"\r+\n")


def parse(text: str) -> tuple[str, ...]:
    """Return the entries of a page's text: stripped, without empty ones and without duplicates."""
    pieces = _LINE_END.sub("\n", text.removeprefix(BOM)).split(ENTRY_DELIMITER)
    return tuple(dict.fromkeys(piece for piece in map(_strip, pieces) if piece))


def _strip(piece: str) -> str:
    """Strip white space and byte-order marks.

    Any entry can become the first of its file, where a reader would take a leading mark for the file's own.
    """
    piece = piece.strip()
    while piece.startswith(BOM):
        piece = piece[1:].lstrip()
    return piece


def has_delimiter_line(text: str) -> bool:
    """Whether a line of `text` consists of `§` only, so that it would split the entry at the next load."""
    return "§" in text and DELIMITER_LINE.search(text.replace("\r\n", "\n").replace("\r", "\n")) is not None


def clean(text: str) -> str | Refused:
    """Return `text` as it would be stored, or why it cannot be an entry."""
    # one form of each letter: "é" and "e" with an accent look the same, so they are one entry
    entry = _strip(normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n")))
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
        return Refused(Reason.INVALID, f"The content contains {what}.", "Send it again as plain text without it.")
    return entry


def subject_of(edit: Edit) -> str:
    """Return the entry that an edit writes, as it would be stored, or the text that names the one it removes."""
    if isinstance(edit, Remove):
        return edit.needle.strip()
    entry = clean(edit.text)
    return "" if isinstance(entry, Refused) else entry


def preview(entry: str) -> str:
    """Return the beginning of an entry, on one line."""
    line = " ".join(entry.split())
    return line if len(line) <= PREVIEW_CHARS else line[: PREVIEW_CHARS - 1] + "…"


class Page(Struct, frozen=True):
    """The entries of one page and its limit in characters, delimiters included."""

    entries: tuple[str, ...]
    limit: int

    @property
    def text(self) -> str:
        """Return the text of the page file."""
        return ENTRY_DELIMITER.join(self.entries)

    @property
    def percent(self) -> int:
        """Return how full the page is in percent, at most 100."""
        return min(100, int(len(self.text) / self.limit * 100)) if self.limit > 0 else 0

    @property
    def usage(self) -> str:
        """Return `67% — 1,474/2,200 chars`."""
        return f"{self.percent}% — {len(self.text):,}/{self.limit:,} chars"

    def fits(self, entries: Sequence[str]) -> bool:
        """Whether `entries` may replace the current ones: within the limit, or shorter than now.

        The second case lets a page that is over a lowered limit shrink step by step.
        """
        size = len(ENTRY_DELIMITER.join(entries))
        return size <= self.limit or size < len(self.text)

    def apply(self, edit: Edit) -> "EditedPage | Refused":
        """Return the page after `edit`, without checking its size, or why the edit cannot be made."""
        match edit:
            case Add(text):
                return self._add(text)
            case Replace(needle, text):
                return self._replace(needle, text)
            case Remove(needle):
                place = self._place(needle)
                if isinstance(place, Refused):
                    return place
                return self._take(Step("remove", self.entries[place], None, place))
            case _:
                assert_never(edit)

    def _add(self, text: str) -> "EditedPage | Refused":
        entry = clean(text)
        if isinstance(entry, Refused):
            return entry
        if entry in self.entries:
            return EditedPage(self, (), "Entry already exists (no duplicate added).")
        return self._take(Step("add", None, entry, len(self.entries)))

    def _replace(self, needle: str, text: str) -> "EditedPage | Refused":
        entry = clean(text)
        if isinstance(entry, Refused):
            return entry
        place = self._place(needle)
        if isinstance(place, Refused):
            return place
        old = self.entries[place]
        if entry == old:
            return EditedPage(self, (), "The entry already says that; nothing was changed.")
        if entry in self.entries:
            merged = self._take(Step("remove", old, None, place))
            return replace(merged, message="The result equals another entry: the old one was removed.")
        return self._take(Step("replace", old, entry, place))

    def _containing(self, wanted: str) -> dict[str, None]:
        """Return the entries that contain a text, whichever form its letters have; pages may be edited by hand."""
        exact = dict.fromkeys(entry for entry in self.entries if wanted in entry)
        form = normalize("NFC", wanted)
        return exact or dict.fromkeys(entry for entry in self.entries if form in normalize("NFC", entry))

    def _place(self, needle: str) -> int | Refused:
        wanted = needle.replace("\r\n", "\n")
        if not wanted.strip():
            return Refused(Reason.EMPTY, "`old_text` is empty.", "Quote a part of the entry you mean.")
        # identical duplicates are one entry to the reader, so only distinct hits are ambiguous
        hits = self._containing(wanted) or self._containing(wanted.strip())
        if not hits:
            return Refused(
                Reason.NO_MATCH,
                "No entry contains that text.",
                "Quote a part of an entry exactly as it is on the page now.",
            )
        if len(hits) > 1:
            return Refused(
                Reason.AMBIGUOUS,
                f"{len(hits)} different entries contain that text.",
                "Quote a longer part that only one entry contains.",
                {"matches": [preview(entry) for entry in hits]},
            )
        return self.entries.index(next(iter(hits)))

    def _take(self, step: Step) -> "EditedPage":
        entries = step.apply(self.entries)
        assert entries is not None
        messages = {
            "add": "Entry added.",
            "replace": "Entry replaced.",
            "remove": "Entry removed.",
            "archive": "",
        }
        return EditedPage(replace(self, entries=entries), (step,), messages[step.action])


class EditedPage(Struct, frozen=True):
    """A page after an edit, the steps that led there, and the message for the answer."""

    page: Page
    steps: tuple[Step, ...]
    message: str


class StoredPage(Struct, frozen=True):
    """A page as the storage holds it."""

    place: str
    """Its location, for messages."""
    target: Target
    raw: bytes
    stamp: int
    """Changes with every write of the page, whoever wrote it; 0 for a page that does not exist."""

    @property
    def entries(self) -> tuple[str, ...]:
        """Return the entries, or raise Unreadable: a page that cannot be decoded is not empty."""
        try:
            return parse(self.raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise Unreadable(
                f"{self.place!r} is not UTF-8 text (byte {error.start})",
                f"`kept memory repair --target {self.target}` proposes a readable page; nothing was changed",
            ) from error


def find_drift(entries: Sequence[str], limit: int, known: Collection[str]) -> str | None:
    """Return why writing a page back would damage it, None when it is safe.

    Drift is a change from outside that does not survive a rewrite. Cosmetic differences (white space, blank
    entries, duplicates, line endings) are not drift: reading normalises them. `known` holds the entries that
    the ledger has seen; they may exceed a limit that was lowered later.
    """
    for number, entry in enumerate(entries, start=1):
        if has_delimiter_line(entry):
            return f"entry {number} has a line of '§' that is not a clean delimiter"
        if len(entry) > limit and entry not in known:
            return f"entry {number} is longer than the limit of the page ({len(entry):,} of {limit:,} characters)"
    return None


def apply_edits(
    page: Page,
    edits: Sequence[Edit],
    *,
    oldest_first: Callable[[Sequence[str]], list[str]] | None,
) -> Change | Refused:
    """Return the change that `edits` make together, or the refusal of the first one that cannot be made.

    The size is checked on the final state only. `oldest_first` sorts entries by their last change: with it, a page
    that would overflow moves those changed longest ago to the archive; without it, the change is refused.
    """
    now, steps, messages = page, tuple[Step, ...](), list[str]()
    for number, edit in enumerate(edits, start=1):
        result = now.apply(edit)
        if isinstance(result, Refused):
            return refuse_batch(result, number, len(edits), reason=Reason.BATCH)
        now, steps = result.page, (*steps, *result.steps)
        messages.append(result.message)
    change = Change(now.entries, steps, " ".join(dict.fromkeys(messages)) or "Done.")
    if not steps or page.fits(now.entries):
        return change
    if oldest_first is None:
        return refuse_over_budget(page, now.entries)
    return _make_room(page, change, oldest_first)


def _make_room(page: Page, change: Change, oldest_first: Callable[[Sequence[str]], list[str]]) -> Change | Refused:
    new = {step.after for step in change.steps}
    entries, moved = change.entries, list[Step]()
    for entry in oldest_first([entry for entry in change.entries if entry not in new]):
        if page.fits(entries):
            break
        place = entries.index(entry)
        moved.append(Step("remove", entry, None, place))
        entries = (*entries[:place], *entries[place + 1 :])
    if not page.fits(entries):
        return refuse_over_budget(page, change.entries)
    return replace(change, entries=entries, overflow=tuple(moved), is_only_copy=True)


def refuse_over_budget(page: Page, entries: Sequence[str]) -> Refused:
    """Return the refusal of entries that exceed the limit of the page."""
    size = len(ENTRY_DELIMITER.join(entries))
    return Refused(
        Reason.OVER_BUDGET,
        f"The page would hold {size:,} characters; its limit is {page.limit:,} (now {page.usage}).",
        "Merge entries with replace, or remove stale entries, then retry.",
    )


def refuse_too_long(page: Page, entry: str) -> Refused:
    """Return the refusal of one entry that alone exceeds the limit of the page."""
    return Refused(
        Reason.OVER_BUDGET,
        f"The entry alone has {len(entry):,} characters; the limit of the page is {page.limit:,} (now {page.usage}).",
        "Say it shorter, or keep only the facts that last.",
    )


def refuse_batch(refused: Refused, number: int, total: int, *, reason: Reason) -> Refused:
    """Return the refusal of a whole batch because of one step; a batch of one is refused as a single edit."""
    if total == 1:
        return refused
    return Refused(
        reason,
        f"Step {number} of {total} was refused, so nothing was changed: {refused.error}",
        refused.remedy,
        {**refused.detail, "step": number},
    )


def page_hash(entries: Sequence[str]) -> str:
    """Return the sha256 of the page file with these entries."""
    return hashlib.sha256(Page(tuple(entries), 0).text.encode("utf-8", "surrogatepass")).hexdigest()


DIGEST_BYTES = 16
_MOST_REMEMBERED = 4_096
"""Texts whose verdicts a process keeps; the pages of a user have a few dozen."""

_verdicts: dict[bytes, "Verdict | None"] = {}
"""What this process found in a text, by its digest; None for nothing."""


@cache
def _rules_version() -> bytes:
    """Return a hash of everything that a verdict depends on: the rules, tables and code of the scanner."""
    content = hashlib.blake2b(digest_size=32)
    for file in sorted(resource_path("wellkept.security").iterdir()):
        if file.is_file():
            content.update(file.name.encode() + b"\0" + load_bytes(file))
    return content.digest()


def digest(text: str) -> bytes:
    """Return the key under which the verdict on a text is stored.

    The hash is keyed by the content of the scanner, so that a change of a rule, a weight or a line of its code
    invalidates every stored digest. Digests are derived data. They are stored only where anyone who could forge one
    could also allow a rule for an entry: in the ledger, never beside a page, which other programs write.
    """
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=_rules_version()).digest()


def find_verdict(text: str, allow: Collection[str] = ()) -> "Verdict":
    """Return what `scan` finds in a text for a page, remembered from the first time on; without rules in `allow`."""
    from wellkept.security.scan import Verdict, scan

    name = digest(text)
    if name not in _verdicts:
        _remember(name, scan(text))
    found = _verdicts.get(name) or Verdict(())
    return replace(found, findings=tuple(one for one in found.findings if one.rule not in allow)) if allow else found


def _remember(name: bytes, verdict: "Verdict") -> None:
    if len(_verdicts) >= _MOST_REMEMBERED:
        _verdicts.clear()
    _verdicts[name] = verdict if verdict.findings else None


def list_unsafe(texts: Iterable[str], stored: Callable[[], Collection[bytes]]) -> "dict[str, Verdict]":
    """Return the verdicts of the texts in which something is found.

    `stored` returns the digests of texts that were found clean before; it is called once at most, and the scanner is
    loaded only for texts that are not among them.
    """
    names = {digest(text): text for text in texts}
    unknown = [name for name in names if name not in _verdicts]
    if unknown:
        clean = stored()
        for name in unknown:
            if name in clean:
                _verdicts[name] = None
    found = {text: _verdicts[name] if name in _verdicts else find_verdict(text) for name, text in names.items()}
    return {text: verdict for text, verdict in found.items() if verdict is not None and verdict.findings}


def list_clean(names: Iterable[bytes]) -> list[bytes]:
    """Return the digests of texts that this process knows to be clean, for a store to keep."""
    return [name for name in names if _verdicts.get(name, ...) is None]


def split_digests(row: Sequence[object] | None) -> frozenset[bytes]:
    """Return the digests that a store kept joined in a row; none of anything else."""
    kept = row[0] if row is not None and isinstance(row[0], bytes) else b""
    return frozenset(kept[at : at + DIGEST_BYTES] for at in range(0, len(kept), DIGEST_BYTES))

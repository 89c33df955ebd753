"""The block of a page as a session freezes it into its prompt."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kept.memory.edits import Target
from kept.memory.page import ENTRY_DELIMITER, Page, preview
from kept.memory.threats import safe_entries

RULE = "═" * 46
HEADERS = {Target.MEMORY: "MEMORY (your personal notes)", Target.USER: "USER PROFILE (who the user is)"}


def render(target: Target, page: Page, allowed: Callable[[str], frozenset[str]]) -> str | None:
    """Return the block, None for an empty page; entries that match a block rule show a marker instead."""
    if not page.entries:
        return None
    shown = ENTRY_DELIMITER.join(safe_entries(page.entries, allowed))
    return f"{RULE}\n{HEADERS[target]} [{page.usage}]\n{RULE}\n{shown}"


MAX_CHARS = 600


def delta_notice(
    frozen: Mapping[Target, Sequence[str]],
    live: Mapping[Target, Sequence[str]],
    *,
    own: Mapping[Target, frozenset[str]],
    allowed: Callable[[Target, str], frozenset[str]],
) -> str | None:
    """Return what others changed since the snapshot, at most 600 characters, None when there is nothing.

    `own` holds the entries that this session itself wrote or removed: it knows of those.
    """
    lines = []
    for target in Target:
        before, after = frozen.get(target, ()), live.get(target, ())
        known = own.get(target, frozenset())
        new = [entry for entry in after if entry not in before and entry not in known]
        gone = [entry for entry in before if entry not in after and entry not in known]
        let_pass = partial(allowed, target)
        lines += [f"- {target}: now also: {entry}" for entry in safe_entries(new, let_pass)]
        lines += [f"- {target}: no longer: {preview(entry)}" for entry in safe_entries(gone, let_pass)]
    if not lines:
        return None
    return _within("Curated memory changed since this conversation began:", lines)


def _within(head: str, lines: Sequence[str]) -> str:
    text = head
    for number, line in enumerate(lines):
        rest = len(lines) - number
        more = f"\n- and {rest} more change{'s' if rest > 1 else ''}"
        room = MAX_CHARS - len(text) - 1 - (len(more) if rest > 1 else 0)
        if len(line) > room:
            cut = line[: max(0, MAX_CHARS - len(text) - 2 - len(more))]
            return (f"{text}\n{cut}…" if len(cut) > 40 else text) + (more if rest > 1 or len(cut) <= 40 else "")
        text = f"{text}\n{line}"
    return text

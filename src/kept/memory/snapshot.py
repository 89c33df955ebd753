"""The block of a page as a session freezes it into its prompt."""

from collections.abc import Callable, Sequence

from kept.memory.edits import Target
from kept.memory.page import ENTRY_DELIMITER, Page
from kept.security.scan import scan

RULE = "═" * 46
HEADERS = {Target.MEMORY: "MEMORY (your personal notes)", Target.USER: "USER PROFILE (who the user is)"}


def render(target: Target, page: Page, allowed: Callable[[str], frozenset[str]]) -> str | None:
    """Return the block, None for an empty page; entries that match a block rule show a marker instead."""
    if not page.entries:
        return None
    shown = ENTRY_DELIMITER.join(safe_entries(page.entries, allowed))
    return f"{RULE}\n{HEADERS[target]} [{page.usage}]\n{RULE}\n{shown}"


def safe_entries(entries: Sequence[str], allowed: Callable[[str], frozenset[str]]) -> list[str]:
    """Return the entries with each one that a block rule matches replaced by a marker naming the rule.

    `allowed` gives the rules that a person has let pass for an entry; it is asked only when needed.
    """
    return [_safe(entry, allowed) for entry in entries]


def _safe(entry: str, allowed: Callable[[str], frozenset[str]]) -> str:
    verdict = scan(entry)
    if not verdict.blocked:
        return entry
    rules = sorted({finding.rule for finding in verdict.findings if finding.severity == "block"} - allowed(entry))
    return f"[BLOCKED: this entry matches {', '.join(rules)}; see it with `kept memory show --raw`]" if rules else entry

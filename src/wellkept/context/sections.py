"""The summary message: its marker, and its sections as Markdown within a token budget."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from wellkept.core.messages import SUMMARY_MARKER, Message, Role, StoredMessage
from wellkept.core.text import resource_text

MARKER = SUMMARY_MARKER
BY_RULE = "(Written by rule, without a model: extracts, not conclusions.)"
_BODY = re.compile(r"^## ", re.MULTILINE)


@cache
def load_prompt(name: str) -> str:
    """Return the text of `prompts/<name>.md`, without its last newline."""
    return resource_text("wellkept.context", "prompts", f"{name}.md").rstrip("\n")


def summary_text(body: str, *, covered: Sequence[StoredMessage], by_rule: bool = False) -> str:
    """Return the text of the summary message that replaces `covered`."""
    lines = [MARKER, load_prompt("preamble")]
    ids = [row.id for row in covered if not is_summary(row.message)]
    if ids:
        lines.append(f"Newly summarised: {len(ids)} messages, #{min(ids)} to #{max(ids)}.")
    if by_rule:
        lines.append(BY_RULE)
    return "\n".join(lines) + f"\n\n{body}"


def is_summary(message: Message) -> bool:
    """Whether `message` is the summary of an earlier compaction."""
    return message.role in {Role.USER, Role.ASSISTANT} and message.text.startswith(MARKER)


def body_of(message: Message) -> str:
    """Return a summary without its marker and preamble."""
    found = _BODY.search(message.text)
    return message.text[found.start() :] if found else message.text.removeprefix(MARKER).strip()


def with_note(system_prompt: str) -> str:
    """Return the system prompt with the compaction note at its end, exactly once."""
    note = load_prompt("note")
    return system_prompt if note in system_prompt else f"{system_prompt}\n\n{note}"


Sections: TypeAlias = dict[str, list[str]]
"""Lines of each section under its name, in the order of NAMES."""

NAMES = (
    "Goal",
    "Constraints & Preferences",
    "Done",
    "In Progress",
    "Blocked",
    "Key Decisions",
    "Relevant Files",
    "Next Steps",
    "Critical Context",
)
_PROGRESS = {"Done", "In Progress", "Blocked"}
_KNOWN = {re.sub(r"\W+", "", name).lower(): name for name in NAMES} | {
    "progress": "Done",
    "constraints": "Constraints & Preferences",
    "preferences": "Constraints & Preferences",
    "constraintsandpreferences": "Constraints & Preferences",
    "decisions": "Key Decisions",
    "files": "Relevant Files",
}
_HEADING = re.compile(r"^\s*(?:#{1,6}\s+(?P<hash>.+?)|\*\*(?P<bold>[^*]+)\*\*)\s*:?\s*$")
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_NOTHING = re.compile(r"^-\s*(?:none|n/?a|nothing|\(none\))\.?\s*(?:\[.*\])?$", re.IGNORECASE)
_IDS = re.compile(r" ?\[#[^\]]*\]$")
_SHORTER_LINES = (120, 60, 30, 12)
LONGEST_LINE = 600


def parse_sections(text: str) -> Sections:
    """Parse the sections of `text`; any style of bullets is accepted."""
    found: Sections = {}
    current: str | None = None
    for line in text.splitlines():
        heading = _HEADING.match(line)
        name = _section_name(heading["hash"] or heading["bold"]) if heading else None
        if name is not None:
            current = name
            found.setdefault(name, [])
        elif current is not None and (content := _as_bullet(line)):
            found[current].append(content)
    return {name: found[name] for name in NAMES if name in found}


def render_sections(sections: Mapping[str, Sequence[str]]) -> str:
    """Render the sections as Markdown with every heading; empty sections say `- none`."""
    out: list[str] = []
    for name in NAMES:
        if name == "Done":
            out.append("## Progress")
        out.append(f"{'###' if name in _PROGRESS else '##'} {name}")
        out.extend(sections.get(name) or ["- none"])
    return "\n".join(out)


def merge_sections(old: Mapping[str, Sequence[str]], new: Mapping[str, Sequence[str]]) -> Sections:
    """Merge two summaries, old lines first, without duplicates; new work in progress replaces the old."""
    out: Sections = {}
    for name in NAMES:
        before = () if name == "In Progress" and new.get(name) else old.get(name, ())
        out[name] = list(dict.fromkeys((*before, *new.get(name, ()))))
    return out


def fit_sections(sections: Mapping[str, Sequence[str]], budget: int, *, count: Callable[[str], int]) -> str:
    """Render the sections within `budget` tokens.

    Lines are dropped from the largest section, oldest first except its first line; when only headings
    would remain, only the essential lines are rendered.
    """
    lines = {name: [(line, count(line)) for line in sections.get(name, ())] for name in NAMES}
    costs = {name: sum(cost for _, cost in held) for name, held in lines.items()}
    frame = count(render_sections({}))
    while frame + sum(costs.values()) > budget:
        widest = max(NAMES, key=lambda name: (len(lines[name]) > 1, costs[name]))
        if not lines[widest]:
            break
        costs[widest] -= lines[widest].pop(1 if len(lines[widest]) > 1 else 0)[1]
    text = render_sections({name: [line for line, _ in held] for name, held in lines.items()})
    if count(text) <= budget:
        return text
    essential = [line for name in ("Goal", "In Progress", "Next Steps") for line in sections.get(name, ())[-1:]]
    text = "\n".join(["## Goal", *essential])
    for length in _SHORTER_LINES:
        if count(text) <= budget:
            break
        text = "\n".join(["## Goal", *(_shorten_line(line, length) for line in essential)])
    return clip(text, budget, count=count)


def _shorten_line(line: str, length: int) -> str:
    """Shorten a line, but keep its ids, which lead to the full text."""
    ids = _IDS.search(line)
    words = line[: ids.start()] if ids else line
    return line if len(words) <= length else f"{words[:length].rstrip()}…{ids[0] if ids else ''}"


def clip(text: str, budget: int, *, count: Callable[[str], int]) -> str:
    """Return the longest prefix of `text` that fits `budget` tokens, found by bisection."""
    if count(text) <= budget:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle] + "…") <= budget else (low, middle - 1)
    return text[:low].rstrip() + "…"


clipped = clip
"""Deprecated name of `clip`, for engines that import it."""


def _section_name(heading: str) -> str | None:
    return _KNOWN.get(re.sub(r"\W+", "", heading).lower())


def _as_bullet(line: str) -> str:
    text = _BULLET.sub("", line).strip()
    if not text or text.startswith("#"):
        return ""
    bullet = f"- {text}"
    if _NOTHING.match(bullet):
        return ""
    return bullet if len(bullet) <= LONGEST_LINE else bullet[: LONGEST_LINE - 1] + "…"

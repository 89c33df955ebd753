"""Entries: the lines of a node, written by a model or by rule, within a budget."""

import re
from collections.abc import Callable, Sequence

from kept.context.citations import Sources, cited, sources
from kept.context.extracts import gist
from kept.context.lossless.tree import Node
from kept.context.marker import body_of, is_summary, prompt
from kept.context.summary import Brief, split
from kept.core.errors import ContextOverflow
from kept.core.messages import Role, StoredMessage

_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+(.+)$")
LONGEST_LINE = 400
FRAME_TOKENS = 100


def leaf_lines(rows: Sequence[StoredMessage], budget: int, brief: Brief) -> list[str]:
    """Return the lines of a leaf over `rows`, or raise the ModelError of a model out of reach."""
    ruled = [line for row in rows for line in _kept_summary(row)] + gist(rows, redact=brief.redact)
    if brief.model is not None:
        room = max(400, brief.model.context_length * 9 // 10 - budget - FRAME_TOKENS - brief.count(prompt("leaf")))
        parts = split([row for row in rows if not is_summary(row.message)], room, brief)
        answered = [_asked("leaf", part, budget, brief, sources(rows)) for part in parts if part]
        lines = [line for answer in answered for line in answer]
        if lines and all(answered):
            return thinned(lines, budget, count=brief.count)
    person = [line for line in ruled if f"- {Role.USER.value}:" in line[:8]]
    rest = thinned([line for line in ruled if line not in set(person)], budget // 2, count=brief.count)
    chosen = {*thinned(person, budget - _total(rest, brief.count), count=brief.count), *rest}
    return [line for line in dict.fromkeys(ruled) if line in chosen]


def condensed_lines(nodes: Sequence[Node], budget: int, brief: Brief) -> list[str]:
    """Return the lines of a node over `nodes`."""
    lines = [line for node in nodes for line in node.text.splitlines() if line.strip()]
    if brief.model is not None:
        known = cited("\n".join(lines))
        text = "\n".join(thinned(lines, brief.model.context_length // 2, count=brief.count))
        answer = _asked("condense", text, budget, brief, sources((), known=known))
        if answer:
            return thinned(answer, budget, count=brief.count)
    return thinned(lines, budget, count=brief.count)


def thinned(lines: Sequence[str], budget: int, *, count: Callable[[str], int]) -> list[str]:
    """Return as many of `lines`, evenly spread and in order, as fit `budget` tokens."""
    sizes = [count(line) for line in lines]
    keep = len(lines)
    while keep > 0:
        chosen = sorted({place * len(lines) // keep for place in range(keep)})
        total = sum(sizes[place] for place in chosen)
        if total <= budget:
            return [lines[place] for place in chosen]
        keep = min(keep - 1, keep * budget // max(1, total))
    return []


def _asked(name: str, text: str, budget: int, brief: Brief, known: Sources) -> list[str]:
    assert brief.model is not None
    request = f"Use at most {budget:,} tokens.\n\n<material>\n{text}\n</material>"
    try:
        answer = brief.redact(brief.model.complete(prompt(name), request, max_output_tokens=budget))
    except ContextOverflow:
        return []
    found = [match[1] for line in answer.splitlines() if (match := _BULLET.match(line))]
    return [known.checked(f"- {line[:LONGEST_LINE]}") for line in found]


def _kept_summary(row: StoredMessage) -> list[str]:
    """Return the lines of a summary that another engine wrote, so that a change of engine loses nothing."""
    if not is_summary(row.message):
        return []
    lines = [line for line in body_of(row.message).splitlines() if line.startswith("- ") and line != "- none"]
    return [line if cited(line) else f"{line} [#{row.id}]" for line in lines]


def _total(lines: Sequence[str], count: Callable[[str], int]) -> int:
    return sum(count(line) for line in lines)

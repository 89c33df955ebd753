"""Summary: the middle of a conversation as sections with the ids they rest on."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kept.context.citations import Sources, cited, sources
from kept.context.fallback import extracted
from kept.context.marker import MARKER, body_of, is_summary, prompt
from kept.context.sections import Sections, fitted, joined, parsed
from kept.context.transcript import Redact, line_of, shortened
from kept.core.errors import ContextOverflow, ModelBusy, ModelError, ModelRefused
from kept.core.messages import StoredMessage
from kept.core.ports import Completes

MOST_PARTS = 64
ATTEMPTS = 4
SMALLEST_ROOM = 400
LEAST_SECTIONS = 3
_THINKING = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Errand:
    """What the writing of a summary is given."""

    count: Callable[[str], int]
    """Tokens of a text."""
    redact: Redact
    today: str
    model: Completes | None = None
    focus_topic: str = ""
    memory_context: str = ""
    """What the providers want remembered of the messages that leave."""
    must_end: bool = False
    """Whether there is no time to wait for a model that is out of reach."""


@dataclass(frozen=True, slots=True)
class Written:
    """A summary that keeps to its budget."""

    body: str
    by_rule: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The model cannot be asked now: key, quota or network; nothing should change."""

    error: ModelError


Writing: TypeAlias = Written | Unreachable


@dataclass(frozen=True, slots=True)
class _Material:
    rows: Sequence[StoredMessage]
    previous: Sections
    sources: Sources
    lines: list[str] = field(default_factory=list)


def written(rows: Sequence[StoredMessage], budget: int, errand: Errand) -> Writing:
    """Return the summary of `rows`, which updates the newest earlier summary among them."""
    previous = _previous(rows)
    spoken = [row for row in rows if not is_summary(row.message)]
    known = cited("\n".join(line for lines in previous.values() for line in lines))
    material = _Material(spoken, previous, sources(spoken, known=known))
    if errand.model is None:
        return by_rule(material, budget, errand)
    try:
        found = _asked(material, budget, errand, errand.model)
    except (ModelBusy, ModelRefused) as error:
        if not errand.must_end:
            return Unreachable(error)
        return by_rule(material, budget, errand, note=f"the summary model is out of reach ({error.message})")
    except ModelError as error:
        return by_rule(material, budget, errand, note=f"the summary model failed ({error.message})")
    if found is None:
        return by_rule(material, budget, errand, note=f"{errand.model.name!r} gave no usable summary")
    return Written(fitted(found, budget, count=errand.count))


def by_rule(material: _Material, budget: int, errand: Errand, *, note: str = "") -> Written:
    """Return the summary that rules extract, joined to the earlier one."""
    sections = joined(material.previous, extracted(material.rows, redact=errand.redact))
    said = f"{note}; the summary was written by rule, the originals stay searchable" if note else ""
    return Written(fitted(sections, budget, count=errand.count), by_rule=True, note=said)


def _previous(rows: Sequence[StoredMessage]) -> Sections:
    found: Sections = {}
    for row in rows:
        if is_summary(row.message):
            body = body_of(row.message)
            # an engine with another layout keeps its text as background, so that nothing is dropped
            sections = parsed(body) or {"Critical Context": [f"- {line}" for line in body.splitlines() if line]}
            found = joined(found, sections)
    return found


def _asked(material: _Material, budget: int, errand: Errand, model: Completes) -> Sections | None:
    system = prompt("summary")
    room = model.context_length * 9 // 10 - errand.count(system) - 2 * budget - _frame_tokens(errand)
    whole = sum(errand.count(line_of(row, redact=errand.redact)) for row in material.rows)
    for attempt in range(ATTEMPTS):
        try:
            return _in_parts(material, budget, errand, model, room=max(SMALLEST_ROOM, min(room, whole) >> attempt))
        except ContextOverflow:
            # the model's window is smaller than it says, so the parts are made smaller than what was sent
            continue
    return None


def _in_parts(material: _Material, budget: int, errand: Errand, model: Completes, *, room: int) -> Sections | None:
    running = material.previous
    parts = split(material.rows, room, errand)
    if len(parts) > MOST_PARTS:
        return None
    for number, part in enumerate(parts, start=1):
        text = _request(part, running, budget, errand, part=f"{number} of {len(parts)}" if len(parts) > 1 else "")
        answer = model.complete(prompt("summary"), text, max_output_tokens=budget)
        sections = _usable(answer, errand, material.sources)
        if sections is None:
            return None
        running = parsed(fitted(sections, budget, count=errand.count))
    return running


def split(rows: Sequence[StoredMessage], room: int, errand: Errand) -> list[str]:
    """Return the transcript of `rows` in as few parts as fit `room` tokens each, none left out."""
    parts: list[list[str]] = [[]]
    held = 0
    for row in rows:
        line = line_of(row, redact=errand.redact)
        cost = errand.count(line)
        if cost > room:
            line = shortened(line, max(80, len(line) * room // (cost * 2)))
            cost = errand.count(line)
        if parts[-1] and held + cost > room:
            parts.append([])
            held = 0
        parts[-1].append(line)
        held += cost
    return ["\n\n".join(part) for part in parts]


def _frame_tokens(errand: Errand) -> int:
    return errand.count(_request("", {}, 0, replace(errand, memory_context=errand.memory_context[:8_000])))


def _request(part_text: str, running: Sections, budget: int, errand: Errand, part: str = "") -> str:
    pieces = [f"Today is {errand.today}. Use at most {budget:,} tokens."]
    if errand.focus_topic:
        pieces.append(f"Give most room to this topic: {errand.focus_topic}")
    if errand.memory_context:
        shown = errand.redact(errand.memory_context[:8_000])
        pieces.append(f"<memory-notes>\n{shown}\n</memory-notes>")
    if running:
        body = fitted(running, max(budget, 1), count=errand.count)
        pieces.append(
            "This is the record so far. Update it: keep what still holds with its ids, move what is done, "
            f"add what is new.\n<record>\n{body}\n</record>"
        )
    label = f"Messages, part {part}:" if part else "Messages:"
    pieces.append(f"{label}\n<messages>\n{part_text}\n</messages>")
    return "\n\n".join(pieces)


def _usable(answer: str, errand: Errand, sources_: Sources) -> Sections | None:
    text = errand.redact(_THINKING.sub("", answer).replace(MARKER, ""))
    sections = parsed(text)
    if len(sections) < LEAST_SECTIONS or not any(sections.values()):
        return None
    return {name: [sources_.checked(line) for line in lines] for name, lines in sections.items()}

"""The summary of a conversation's middle: sections with citations, written by a model or by rule."""

import logging
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wellkept.context.sections import (
    MARKER,
    Sections,
    body_of,
    fit_sections,
    is_summary,
    load_prompt,
    merge_sections,
    parse_sections,
)
from wellkept.context.transcript import (
    Redact,
    Sources,
    extract_sections,
    find_citations,
    index_sources,
    line_of,
    shorten,
)
from wellkept.core.errors import ContextOverflow, GivenUp, KeptError, ModelBusy, ModelError, ModelRefused
from wellkept.core.messages import StoredMessage
from wellkept.core.ports import Completes
from wellkept.core.threads import start_job

MAX_PARTS = 64
"""A transcript of more parts would take too many model calls; it is summarised by rule."""
ATTEMPTS = 4
"""Each attempt after an overflow halves the parts."""
MIN_PART_TOKENS = 400
MIN_SECTIONS = 3
"""An answer with fewer sections is not a summary."""
_THINKING = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)


class Brief(Struct, frozen=True):
    """The inputs of a summary."""

    count: Callable[[str], int]
    """Tokens of a text."""
    redact: Redact
    today: str
    model: Completes | None = None
    focus_topic: str = ""
    memory_context: str = ""
    """Text from the providers to include in the summary."""
    must_end: bool = False
    """Whether a summary is needed now, even when the model is unreachable."""


class Written(Struct, frozen=True):
    """A summary within its budget."""

    body: str
    by_rule: bool = False
    note: str = ""


class Unreachable(Struct, frozen=True):
    """The model cannot be reached (key, quota or network); nothing should change."""

    error: ModelError


Writing: TypeAlias = Written | Unreachable


class _Material(Struct, frozen=True):
    rows: Sequence[StoredMessage]
    previous: Sections
    sources: Sources


def write_summary(rows: Sequence[StoredMessage], budget: int, brief: Brief) -> Writing:
    """Summarise `rows`, updating earlier summaries among them."""
    previous = _previous(rows)
    spoken = [row for row in rows if not is_summary(row.message)]
    known = find_citations("\n".join(line for lines in previous.values() for line in lines))
    material = _Material(spoken, previous, index_sources(spoken, known=known))
    if brief.model is None:
        return summarise_by_rule(material, budget, brief)
    try:
        found = _ask_model(material, budget, brief, brief.model)
    except (ModelBusy, ModelRefused) as error:
        if not brief.must_end:
            return Unreachable(error)
        return summarise_by_rule(material, budget, brief, note=f"the summary model is unreachable ({error.message})")
    except ModelError as error:
        return summarise_by_rule(material, budget, brief, note=f"the summary model failed ({error.message})")
    if found is None:
        return summarise_by_rule(material, budget, brief, note=f"{brief.model.name!r} gave no usable summary")
    return Written(fit_sections(found, budget, count=brief.count))


def summarise_by_rule(material: _Material, budget: int, brief: Brief, *, note: str = "") -> Written:
    """Extract a summary by rule and merge it with the earlier one."""
    sections = merge_sections(material.previous, extract_sections(material.rows, redact=brief.redact))
    said = f"{note}; the summary was written by rule, the originals stay searchable" if note else ""
    return Written(fit_sections(sections, budget, count=brief.count), by_rule=True, note=said)


def _previous(rows: Sequence[StoredMessage]) -> Sections:
    found: Sections = {}
    for row in rows:
        if is_summary(row.message):
            body = body_of(row.message)
            # a summary with another layout becomes background text, so that nothing is lost
            sections = parse_sections(body) or {"Critical Context": [f"- {line}" for line in body.splitlines() if line]}
            found = merge_sections(found, sections)
    return found


def _ask_model(material: _Material, budget: int, brief: Brief, model: Completes) -> Sections | None:
    system = load_prompt("summary")
    room = model.context_length * 9 // 10 - brief.count(system) - 2 * budget - _frame_tokens(brief)
    total = sum(brief.count(line_of(row, redact=brief.redact)) for row in material.rows)
    for attempt in range(ATTEMPTS):
        try:
            return _summarise_parts(
                material, budget, brief, model, room=max(MIN_PART_TOKENS, min(room, total) >> attempt)
            )
        except ContextOverflow:
            # the model's window is smaller than declared, so try smaller parts
            continue
    return None


def _summarise_parts(material: _Material, budget: int, brief: Brief, model: Completes, *, room: int) -> Sections | None:
    running = material.previous
    parts = split_transcript(material.rows, room, brief)
    if len(parts) > MAX_PARTS:
        return None
    for number, part in enumerate(parts, start=1):
        text = _request(part, running, budget, brief, part=f"{number} of {len(parts)}" if len(parts) > 1 else "")
        answer = model.complete(load_prompt("summary"), text, max_output_tokens=budget)
        sections = _parse_answer(answer, brief, material.sources)
        if sections is None:
            return None
        running = parse_sections(fit_sections(sections, budget, count=brief.count))
    return running


def split_transcript(rows: Sequence[StoredMessage], room: int, brief: Brief) -> list[str]:
    """Split the transcript of `rows` into as few parts of at most `room` tokens as possible."""
    parts: list[list[str]] = [[]]
    held = 0
    for row in rows:
        line = line_of(row, redact=brief.redact)
        cost = brief.count(line)
        if cost > room:
            line = shorten(line, max(80, len(line) * room // (cost * 2)))
            cost = brief.count(line)
        if parts[-1] and held + cost > room:
            parts.append([])
            held = 0
        parts[-1].append(line)
        held += cost
    return ["\n\n".join(part) for part in parts]


def _frame_tokens(brief: Brief) -> int:
    return brief.count(_request("", {}, 0, replace(brief, memory_context=brief.memory_context[:8_000])))


def _request(part_text: str, running: Sections, budget: int, brief: Brief, part: str = "") -> str:
    pieces = [f"Today is {brief.today}. Use at most {budget:,} tokens."]
    if brief.focus_topic:
        pieces.append(f"Give most room to this topic: {brief.focus_topic}")
    if brief.memory_context:
        shown = brief.redact(brief.memory_context[:8_000])
        pieces.append(f"<memory-notes>\n{shown}\n</memory-notes>")
    if running:
        body = fit_sections(running, max(budget, 1), count=brief.count)
        pieces.append(
            "This is the record so far. Update it: keep what still holds with its ids, move what is done, "
            f"add what is new.\n<record>\n{body}\n</record>"
        )
    label = f"Messages, part {part}:" if part else "Messages:"
    pieces.append(f"{label}\n<messages>\n{part_text}\n</messages>")
    return "\n\n".join(pieces)


def _parse_answer(answer: str, brief: Brief, sources: Sources) -> Sections | None:
    text = brief.redact(_THINKING.sub("", answer).replace(MARKER, ""))
    sections = parse_sections(text)
    if len(sections) < MIN_SECTIONS or not any(sections.values()):
        return None
    return {name: [sources.check(line) for line in lines] for name, lines in sections.items()}


log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
"""How often to check whether the caller was cancelled."""


class WithDeadline:
    """A model with a deadline per answer, abandoned as soon as `given_up` returns True.

    A late answer is discarded and never delays the exit.
    """

    def __init__(self, model: Completes, seconds: float, *, given_up: Callable[[], bool]) -> None:
        self.name = model.name
        self.context_length = model.context_length
        self._model = model
        self._seconds = seconds
        self._given_up = given_up

    def complete(self, system: str, prompt: str, *, max_output_tokens: int) -> str:
        """Return the answer; raise ModelBusy at the deadline, GivenUp when the caller was cancelled."""
        self._check()
        ask = partial(self._model.complete, system, prompt, max_output_tokens=max_output_tokens)
        job = start_job(ask, name="kept-summary")
        deadline = time.monotonic() + self._seconds
        while not job.wait(min(POLL_SECONDS, deadline - time.monotonic())):
            self._check()
            if time.monotonic() >= deadline:
                raise ModelBusy(f"{self.name!r} did not answer within {self._seconds:g} s")
        if job.error is not None and not isinstance(job.error, KeptError):
            log.warning("summary model %r failed", self.name, exc_info=job.error)
            raise ModelError(f"{self.name!r} ended without an answer", "see the log for its error") from job.error
        return job.value()

    def _check(self) -> None:
        if self._given_up():
            raise GivenUp("the caller was cancelled")

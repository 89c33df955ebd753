"""The summary of the middle of a conversation: its transcript, its sections with citations, and who writes it."""

import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import ContextOverflow, GivenUp, KeptError, ModelBusy, ModelError, ModelRefused
from wellkept.core.messages import SUMMARY_MARKER, ImagePart, Message, Role, StoredMessage
from wellkept.core.ports import Completes
from wellkept.core.text import resource_text
from wellkept.core.threads import start_job
from wellkept.languages.language import join_expressions

log = logging.getLogger(__name__)

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
    heading = _BODY.search(message.text)
    return message.text[heading.start() :] if heading else message.text.removeprefix(MARKER).strip()


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
    sections: Sections = {}
    current: str | None = None
    for line in text.splitlines():
        heading = _HEADING.match(line)
        name = _KNOWN.get(re.sub(r"\W+", "", heading["hash"] or heading["bold"]).lower()) if heading else None
        if name is not None:
            current = name
            sections.setdefault(name, [])
        elif current is not None and (content := _as_bullet(line)):
            sections[current].append(content)
    return {name: sections[name] for name in NAMES if name in sections}


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


def _as_bullet(line: str) -> str:
    text = _BULLET.sub("", line).strip()
    if not text or text.startswith("#"):
        return ""
    bullet = f"- {text}"
    if _NOTHING.match(bullet):
        return ""
    return bullet if len(bullet) <= LONGEST_LINE else bullet[: LONGEST_LINE - 1] + "…"


Redact = Callable[[str], str]

LONGEST = {Role.USER: 4_000, Role.ASSISTANT: 2_400, Role.TOOL: 800, Role.SYSTEM: 800}
LONGEST_ARGUMENTS = 300
"""Characters of a message and of a call's arguments in a transcript; people's words get the most room."""


def line_of(row: StoredMessage, *, redact: Redact) -> str:
    """Return one message as `#id role: text`, shortened and redacted."""
    message = row.message
    pieces = [shorten(redact(message.text).strip(), LONGEST[message.role])]
    if not isinstance(message.content, str):
        pieces += ["[image]" for part in message.content if isinstance(part, ImagePart)]
    pieces += [f"→ {call.name}({shorten(redact(call.arguments), LONGEST_ARGUMENTS)})" for call in message.tool_calls]
    speaker = f"result of {message.tool_name or 'tool'}" if message.role is Role.TOOL else message.role.value
    return f"#{row.id} {speaker}: " + "\n".join(piece for piece in pieces if piece)


def shorten(text: str, length: int) -> str:
    """Return `text` with its middle cut out when it is longer than `length`."""
    if len(text) <= length:
        return text
    front = length * 2 // 3
    return f"{text[:front]} … [{len(text) - length:,} characters left out] … {text[-(length - front) :]}"


_NEXT_ID = r"\s{0,3}[,;–-]\s{0,3}#?\d{1,18}|\s{1,3}(?:to|and)\s{1,3}#?\d{1,18}|\s{1,3}#\d{1,18}"
_BRACKET = re.compile(rf" ?\[\s{{0,3}}#\d{{1,18}}(?:{_NEXT_ID})*\s{{0,3}}\]")
_ID = re.compile(r"\d+")
_WORD = re.compile(r"\w{3,}")
_LONGEST_INDEXED = 4_000


def find_citations(text: str) -> set[int]:
    """Return every message id that `text` cites."""
    return {int(number) for bracket in _BRACKET.findall(text) for number in _ID.findall(bracket)}


class Sources(Struct, frozen=True):
    """The messages that a line may cite, with an index of their words."""

    allowed: frozenset[int]
    places: Mapping[str, Sequence[int]]
    span: tuple[int, int] | None

    def check(self, line: str) -> str:
        """Return `line` with valid ids at its end: those it cites, or else those whose words it shares."""
        ids = sorted(find_citations(line) & self.allowed)
        bare = _BRACKET.sub("", line).rstrip()
        return f"{bare} [{self._shown(ids or self._nearest(bare))}]" if ids or self.span else bare

    def _nearest(self, line: str) -> list[int]:
        scores: dict[int, float] = defaultdict(float)
        for word in set(_WORD.findall(line.lower())):
            places = self.places.get(word, ())
            for place in places:
                scores[place] += 1 / len(places)
        best = sorted(scores, key=lambda place: (-scores[place], place))[:2]
        return sorted(place for place in best if scores[place] >= scores[best[0]] / 2)

    def _shown(self, ids: Sequence[int]) -> str:
        if ids:
            return ", ".join(f"#{number}" for number in ids)
        return f"#{self.span[0]}, #{self.span[1]}" if self.span else ""


def index_sources(rows: Sequence[StoredMessage], *, known: Collection[int] = ()) -> Sources:
    """Index `rows` as sources, together with ids `known` from an earlier summary."""
    places: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        for word in set(_WORD.findall(row.message.text[:_LONGEST_INDEXED].lower())):
            places[word].append(row.id)
    ids = [int(row.id) for row in rows]
    return Sources(frozenset({*ids, *known}), places, (min(ids), max(ids)) if ids else None)


_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_FILE = re.compile(
    r"(?<![\w/.-])(?:[\w.@~-]+/)*[\w@-]+\.[a-zA-Z][a-zA-Z0-9]{0,7}\b(?!\()"
    r"|(?<![\w/])/(?:[\w.@-]+/)+[\w.@-]+"
)
_JAPANESE = {"preference": "してください|しないで", "decision": "決め", "trouble": "エラー"}
"""What `_compile` joins for a language without a folder of its own."""
LONGEST_QUOTE = 220
MOST_FILES = 40


@cache
def _compile(name: str) -> re.Pattern[str]:
    """Return what tells sentences for one section of a summary, in all languages."""
    return re.compile("|".join((join_expressions("summary", name), _JAPANESE.get(name, "(?!)"))), re.IGNORECASE)


def extract_sections(rows: Sequence[StoredMessage], *, redact: Redact) -> Sections:
    """Extract the sections of a summary from `rows` by rule, each line with its message id."""
    rows = [row for row in rows if not is_summary(row.message)]
    questions = [row for row in rows if row.message.role is Role.USER and row.message.text.strip()]
    answers = [row for row in rows if row.message.role is Role.ASSISTANT and row.message.text.strip()]
    results = [row for row in rows if row.message.role is Role.TOOL]
    return {
        "Goal": [_line(row, _first(row), redact) for row in questions[:1]],
        "Constraints & Preferences": list(_find_sentences(questions, _compile("preference"), redact)),
        "Done": [_line(row, _first(row), redact) for row in answers],
        "In Progress": [_line(row, _first(row), redact) for row in questions[-1:]],
        "Blocked": list(_find_sentences(results, _compile("trouble"), redact))[-12:],
        "Key Decisions": list(_find_sentences([*questions, *answers], _compile("decision"), redact)),
        "Relevant Files": _files(rows, redact),
        "Next Steps": list(_find_sentences(answers[-6:], _compile("next"), redact)),
        "Critical Context": [_line(row, f'the person: "{_first(row)}"', redact) for row in questions],
    }


def gist(rows: Sequence[StoredMessage], *, redact: Redact) -> list[str]:
    """Return one line per message that is not empty."""
    lines = []
    for row in rows:
        name = f"{row.message.tool_name or 'tool'} → " if row.message.role is Role.TOOL else ""
        calls = ", ".join(call.name for call in row.message.tool_calls)
        text = _first(row) or (f"calls {calls}" if calls else "")
        if text and not is_summary(row.message):
            lines.append(_line(row, f"{row.message.role.value}: {name}{text}", redact))
    return lines


def _first(row: StoredMessage) -> str:
    for sentence in _SENTENCE.split(row.message.text[:4_000]):
        if sentence.strip():
            return sentence.strip()
    return ""


def _line(row: StoredMessage, text: str, redact: Redact) -> str:
    flat = " ".join(redact(text).split())
    short = flat if len(flat) <= LONGEST_QUOTE else flat[: LONGEST_QUOTE - 1] + "…"
    return f"- {short} [#{row.id}]"


def _find_sentences(rows: Iterable[StoredMessage], pattern: re.Pattern[str], redact: Redact) -> Iterable[str]:
    for row in sorted(rows, key=lambda one: one.id):
        for sentence in _SENTENCE.split(row.message.text[:8_000]):
            if pattern.search(sentence):
                yield _line(row, sentence.strip(), redact)
                break


def _files(rows: Sequence[StoredMessage], redact: Redact) -> list[str]:
    last_seen: dict[str, StoredMessage] = {}
    for row in rows:
        texts = (row.message.text[:8_000], *(call.arguments[:4_000] for call in row.message.tool_calls))
        for text in texts:
            for found in _FILE.findall(text):
                last_seen.pop(found, None)
                last_seen[found] = row
    return [_line(row, name, redact) for name, row in list(last_seen.items())[-MOST_FILES:]]


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
    cited = find_citations("\n".join(line for lines in previous.values() for line in lines))
    material = _Material(spoken, previous, index_sources(spoken, known=cited))
    if brief.model is None:
        return summarise_by_rule(material, budget, brief)
    try:
        sections = _ask_model(material, budget, brief, brief.model)
    except (ModelBusy, ModelRefused) as error:
        if not brief.must_end:
            return Unreachable(error)
        return summarise_by_rule(material, budget, brief, note=f"the summary model is unreachable ({error.message})")
    except ModelError as error:
        return summarise_by_rule(material, budget, brief, note=f"the summary model failed ({error.message})")
    if sections is None:
        return summarise_by_rule(material, budget, brief, note=f"{brief.model.name!r} gave no usable summary")
    return Written(fit_sections(sections, budget, count=brief.count))


def summarise_by_rule(material: _Material, budget: int, brief: Brief, *, note: str = "") -> Written:
    """Extract a summary by rule and merge it with the earlier one."""
    sections = merge_sections(material.previous, extract_sections(material.rows, redact=brief.redact))
    explanation = f"{note}; the summary was written by rule, the originals stay searchable" if note else ""
    return Written(fit_sections(sections, budget, count=brief.count), by_rule=True, note=explanation)


def _previous(rows: Sequence[StoredMessage]) -> Sections:
    merged: Sections = {}
    for row in rows:
        if is_summary(row.message):
            body = body_of(row.message)
            # a summary with another layout becomes background text, so that nothing is lost
            sections = parse_sections(body) or {"Critical Context": [f"- {line}" for line in body.splitlines() if line]}
            merged = merge_sections(merged, sections)
    return merged


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

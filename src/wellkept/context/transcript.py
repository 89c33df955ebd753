"""The transcript of messages with their ids, extracts from it by rule, and citations of it."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache

from msgspec import Struct

from wellkept.context.sections import Sections, is_summary
from wellkept.core.messages import ImagePart, Role, StoredMessage
from wellkept.languages.language import join_expressions

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
    return {int(one) for bracket in _BRACKET.findall(text) for one in _ID.findall(bracket)}


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
            return ", ".join(f"#{one}" for one in ids)
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
    said = [row for row in rows if row.message.role is Role.USER and row.message.text.strip()]
    answers = [row for row in rows if row.message.role is Role.ASSISTANT and row.message.text.strip()]
    results = [row for row in rows if row.message.role is Role.TOOL]
    return {
        "Goal": [_line(row, _first(row), redact) for row in said[:1]],
        "Constraints & Preferences": list(_find_sentences(said, _compile("preference"), redact)),
        "Done": [_line(row, _first(row), redact) for row in answers],
        "In Progress": [_line(row, _first(row), redact) for row in said[-1:]],
        "Blocked": list(_find_sentences(results, _compile("trouble"), redact))[-12:],
        "Key Decisions": list(_find_sentences([*said, *answers], _compile("decision"), redact)),
        "Relevant Files": _files(rows, redact),
        "Next Steps": list(_find_sentences(answers[-6:], _compile("next"), redact)),
        "Critical Context": [_line(row, f'the person: "{_first(row)}"', redact) for row in said],
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

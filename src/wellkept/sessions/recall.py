"""Passages as a model reads them: windows around a match and bookends, cut to a token budget."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import StorageError
from wellkept.core.ids import MessageId, SourceName
from wellkept.core.messages import Origin, Passage, Role, Session, StoredMessage
from wellkept.core.text import JSON, Written, dumps

if TYPE_CHECKING:
    from wellkept.sessions.search.discovery import Conversations
    from wellkept.sessions.search.occurrences import Marker  # importing it loads the whole search

_LETTER, _BREAK, _DIGIT, _MARK, _TWO_BYTES, _THREE_BYTES, _ASTRAL = 0.20, 0.25, 0.75, 0.35, 0.45, 0.85, 2.5


_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ "
_DIGITS = b"0123456789"
_BREAKS = b"\n\t"
_ASCII = bytes(range(0x80))
_LEADS = (
    (bytes(range(0xC0, 0xE0)), _TWO_BYTES),
    (bytes(range(0xE0, 0xF0)), _THREE_BYTES),
    (bytes(range(0xF0, 0xF8)), _ASTRAL),
)
"""The first bytes of characters beyond ASCII in UTF-8, by their length, with the weights of such characters."""
_FULL = (1_000_000, 16_000, 6_000, 3_000)
_CHARS = ((1_500, 700), (1_000, 400), (700, 260), (500, 180), (400, 120), (300, 80), (240, 60))
_WINDOWS = ((3, 3), (2, 2), (2, 1), (1, 1), (1, 0), (0, 0))
SNIPPET_CHARS = 240
PREVIEW_CHARS = 60
SHORTENED = " […]"


def tokens(text: str) -> int:
    """Return about how many tokens `text` takes, by the classes of its characters."""
    coded = text.encode("utf-8", "surrogatepass")
    # deleting a class and comparing lengths counts it without a loop in Python: every answer is measured
    without_letters = coded.translate(None, _LETTERS)
    without_digits = without_letters.translate(None, _DIGITS)
    marks = without_digits.translate(None, _BREAKS)
    weight = (
        _LETTER * (len(coded) - len(without_letters))
        + _DIGIT * (len(without_letters) - len(without_digits))
        + _BREAK * (len(without_digits) - len(marks))
    )
    if len(coded) > len(text):
        beyond = marks.translate(None, _ASCII)
        weight += _MARK * (len(marks) - len(beyond))
        return round(weight + sum(cost * (len(beyond) - len(beyond.translate(None, leads))) for leads, cost in _LEADS))
    return round(weight + _MARK * len(marks))


class Answered(Struct, frozen=True):
    """An answer to a model with its size, and what a search found for it; None where nothing was searched."""

    value: dict[str, JSON]
    tokens: int
    found: "Conversations | None" = None


class Caps(Struct, frozen=True):
    """The limits of one answer: results, messages and characters."""

    anchor_chars: int
    other_chars: int
    window: int
    bookend: int
    results: int


Render: TypeAlias = Callable[[Caps], dict[str, JSON]]


def fit(render: Render, start: Caps, *, budget: int, is_full: bool = False) -> Answered:
    """Return the fullest answer that fits: first shorten messages, then windows, then drop results.

    Forms that the lengths of the texts in the fullest one show to be too large are not rendered.
    """
    forms = _ladder(start, is_full=is_full)
    answer = Written(render(next(forms)))
    size = tokens(answer.text)
    if size <= budget:
        return Answered(answer, size)
    texts = list(_list_texts(answer))
    # one less for each, because every count is rounded
    frame = size - sum(tokens(dumps(text)) + 1 for text, _ in texts) if texts else 0
    for caps in forms:
        # a lower bound of the size, as long as no message is dropped: no character costs less than a letter
        if (caps.window, caps.bookend, caps.results) == (start.window, start.bookend, start.results):
            limits = (caps.other_chars, caps.anchor_chars)
            least = frame + _LETTER * sum(min(len(text), limits[is_anchor]) for text, is_anchor in texts)
            if least > budget:
                continue
        answer = Written(render(caps))
        size = tokens(answer.text)
        if size <= budget:
            break
    return Answered(answer, size)


def _list_texts(value: JSON) -> Iterator[tuple[str, bool]]:
    """Yield the content of every message in an answer, and whether it is the anchor."""
    if isinstance(value, dict):
        content = value.get("content")
        if isinstance(content, str):
            yield content, bool(value.get("anchor"))
        for item in value.values():
            yield from _list_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item)


def _ladder(start: Caps, *, is_full: bool) -> Iterator[Caps]:
    if is_full:
        for chars in _FULL:
            yield replace(start, anchor_chars=chars, other_chars=chars)
    for anchor, other in _CHARS:
        is_start = anchor == start.anchor_chars and other == start.other_chars
        yield start if is_start else replace(start, anchor_chars=anchor, other_chars=other)
    least = replace(start, anchor_chars=240, other_chars=60)
    for window, bookend in _WINDOWS:
        if window < start.window or bookend < start.bookend:
            yield replace(least, window=min(window, start.window), bookend=min(bookend, start.bookend))
    for results in range(start.results - 1, 0, -1):
        yield replace(least, window=0, bookend=0, results=results)
    yield Caps(60, 30, 0, 0, 1)


_THREE_DIGITS = [f"{number:03}" for number in range(1_000)]
_MINUTES = [f"{number // 60:02}:{number % 60:02}:" for number in range(24 * 60)]
_SECONDS = [f"{number:02}." for number in range(60)]


@lru_cache(4_096)
def _day(days: int) -> str:
    return f"{datetime.fromtimestamp(days * 86_400, UTC):%Y-%m-%dT}"


def when(epoch: float) -> str:
    """Return a moment as a model reads it; show a damaged timestamp as it is.

    As `iso` writes it. An answer has dozens, most of them of a few days, and this takes a quarter of the time.
    """
    try:
        whole = int(epoch)
        milliseconds = round((epoch - whole) * 1e6) // 1_000  # to microseconds first, as `datetime` does
        if epoch < 0 or milliseconds == len(_THREE_DIGITS):
            return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"
        minute, second = whole // 60, whole % 60
        return f"{_day(minute // 1_440)}{_MINUTES[minute % 1_440]}{_SECONDS[second]}{_THREE_DIGITS[milliseconds]}Z"
    except (OverflowError, ValueError, OSError):
        return str(epoch)


def shown(
    message: StoredMessage, *, chars: int, marker: "Marker | None" = None, is_anchor: bool = False
) -> dict[str, JSON]:
    """Return a message in the tool's shape, shortened around the terms."""
    content = message.message.content
    text = content if type(content) is str and content else message.message.display_text
    if is_anchor and message.message.tool_calls and marker is not None:
        text = marker.show(message.message)
    if len(text) > chars:
        from wellkept.sessions.search.occurrences import Marker

        text = (marker or Marker()).around(text, width=chars) + SHORTENED
    value: dict[str, JSON] = {
        "id": message.id,
        "role": str(message.message.role),
        "content": text,
        "timestamp": when(message.timestamp),
    }
    if is_anchor:
        value["anchor"] = True
    value |= describe_source(message)
    return value


def find_unconfirmed(message: StoredMessage) -> SourceName | None:
    """Return where a text came from that is not its author's own statement, None for one that is."""
    if message.source is not None or message.origin is not Origin.PERSON:
        return message.source
    from wellkept.security.assertions import find_unasserted  # its expressions take time to load

    return find_unasserted(message.message.text)


def describe_source(message: StoredMessage) -> dict[str, JSON]:
    """Return where the text of a message came from, as an answer names it; empty for its author's own words."""
    source = find_unconfirmed(message)
    if source is not None:
        return {"from": source}
    if message.message.role is not Role.TOOL:
        return {}
    from wellkept.core.provenance import OWN_TOOLS  # most passages hold no output of tools

    # rows from before there were sources
    name = message.message.tool_name or "unknown"
    return {} if name in OWN_TOOLS else {"from": f"tool:{name}"}


def window_shown(
    messages: Sequence[StoredMessage], *, anchor: MessageId, caps: Caps, marker: "Marker | None", hidden: frozenset[int]
) -> list[JSON]:
    """Return the messages of a window without those in the context; the anchor gets the most space."""
    index = next((index for index, message in enumerate(messages) if message.id == anchor), 0)
    near = messages[max(0, index - caps.window) : index + caps.window + 1]
    return [
        shown(
            message,
            chars=caps.anchor_chars if message.id == anchor else caps.other_chars,
            marker=marker,
            is_anchor=message.id == anchor,
        )
        for message in near
        if message.id not in hidden or message.id == anchor
    ]


def passage_shown(passage: Passage, *, caps: Caps, marker: "Marker", hidden: frozenset[int]) -> dict[str, JSON]:
    """Return a found session in the tool's shape; bookends do not repeat what the window shows."""
    seen = {message.id for message in passage.around} | hidden
    start = [message for message in passage.start if message.id not in seen][: caps.bookend]
    ids = seen | {message.id for message in start}
    end = [message for message in passage.end if message.id not in ids]
    end = end[len(end) - caps.bookend :] if caps.bookend < len(end) else end
    window = window_shown(passage.around, anchor=passage.match.id, caps=caps, marker=marker, hidden=hidden)
    dropped = count_dropped(passage, caps.window)
    return {
        **index_shown(passage.session, passage.match, marker=marker),
        "bookend_start": [shown(message, chars=caps.other_chars) for message in start],
        "messages": window,
        "bookend_end": [shown(message, chars=caps.other_chars) for message in end],
        "messages_before": passage.before + dropped[0],
        "messages_after": passage.after + dropped[1],
    }


def count_dropped(passage: Passage, window: int) -> tuple[int, int]:
    """Return how many messages a smaller window leaves out on each side."""
    index = next(index for index, message in enumerate(passage.around) if message.id == passage.match.id)
    return max(0, index - window), max(0, len(passage.around) - index - 1 - window)


def index_shown(session: Session, match: StoredMessage, *, marker: "Marker") -> dict[str, JSON]:
    """Return a found session in its shortest form: ids, dates and the snippet."""
    text = " ".join(marker.show(match.message).split())
    return {
        "session_id": session.id,
        "title": session.title,
        "when": when(match.timestamp),
        "source": session.source,
        "model": session.model,
        "matched_role": str(match.message.role),
        "match_message_id": match.id,
        "snippet": marker.around(text, width=SNIPPET_CHARS),
        **describe_source(match),
    }


def unavailable(error: StorageError) -> dict[str, JSON]:
    """Return the tool's answer while the database cannot be used."""
    return {
        "success": False,
        "error": f"session store unavailable: {error.message}",
        "remedy": error.remedy or "go on without past sessions; run `kept doctor` to see what is wrong",
    }

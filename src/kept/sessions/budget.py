"""Answers that stay under a number of tokens: long messages shortened, then windows, then results dropped."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from kept.core.text import JSON, dumps

_LETTER, _BREAK, _DIGIT, _MARK, _TWO_BYTES, _THREE_BYTES, _ASTRAL = 0.20, 0.25, 0.75, 0.35, 0.45, 0.85, 2.5


def tokens(text: str) -> int:
    """Return about how many tokens `text` takes, by the classes of its characters."""
    return round(sum(_weight(character) * count for character, count in Counter(text).items()))


def _weight(character: str) -> float:
    code = ord(character)
    if code >= 0x80:
        return _TWO_BYTES if code < 0x800 else _THREE_BYTES if code < 0x10000 else _ASTRAL
    if character.isalpha() or character == " ":
        return _LETTER
    if character.isdigit():
        return _DIGIT
    return _BREAK if character in "\n\t" else _MARK


@dataclass(frozen=True, slots=True)
class Caps:
    """How much of everything an answer may show."""

    anchor_chars: int
    other_chars: int
    window: int
    bookend: int
    results: int


Render: TypeAlias = Callable[[Caps], Mapping[str, JSON]]

_FULL = (1_000_000, 16_000, 6_000, 3_000)
_CHARS = ((1_500, 700), (1_000, 400), (700, 260), (500, 180), (400, 120), (300, 80), (240, 60))
_WINDOWS = ((3, 3), (2, 2), (2, 1), (1, 1), (1, 0), (0, 0))


def fitted(render: Render, start: Caps, *, budget: int, is_full: bool = False) -> Mapping[str, JSON]:
    """Return the fullest answer that fits; the ladder goes from long messages to short ones to fewer results."""
    answer: Mapping[str, JSON] = {}
    for caps in _ladder(start, is_full=is_full):
        answer = render(caps)
        if tokens(dumps(answer)) <= budget:
            return answer
    return answer


def _ladder(start: Caps, *, is_full: bool) -> Iterator[Caps]:
    if is_full:
        for chars in _FULL:
            yield replace(start, anchor_chars=chars, other_chars=chars)
    for anchor, other in _CHARS:
        yield replace(start, anchor_chars=anchor, other_chars=other)
    least = replace(start, anchor_chars=240, other_chars=60)
    for window, bookend in _WINDOWS:
        if window < start.window or bookend < start.bookend:
            yield replace(least, window=min(window, start.window), bookend=min(bookend, start.bookend))
    for results in range(start.results - 1, 0, -1):
        yield replace(least, window=0, bookend=0, results=results)
    yield Caps(60, 30, 0, 0, 1)

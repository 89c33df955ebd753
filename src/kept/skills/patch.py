"""A patch of a text: one passage found, exactly or but for white space, and replaced."""

import difflib
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from kept.core.errors import Reason, Refused

_MOST_CHARS = 50_000
_PREVIEW = 80
_MOST_PREVIEWS = 5


@dataclass(frozen=True, slots=True)
class Patched:
    """The text after the patch, how often it was applied, and how the passage was matched."""

    text: str
    count: int
    matched: str


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int
    new: str


def patched(text: str, old: str, new: str, *, replace_all: bool = False) -> Patched | Refused:
    """Return `text` with `old` replaced by `new`.

    Tried in order: the exact passage; lines alike but for trailing white space; lines alike but for
    indentation, where the new text takes over the indentation found; words alike but for the white
    space between them. The first way that finds anything decides, and it must find one place only.
    """
    refused = _unusable(old, new)
    if refused is not None:
        return refused
    for matched, finder in _WAYS:
        spans = finder(text, old, new)
        if not spans:
            continue
        if len(spans) > 1 and not replace_all:
            return _ambiguous(text, spans)
        return Patched(_applied(text, spans), len(_disjoint(spans)), matched)
    return _missing(text, old)


def _unusable(old: str, new: str) -> Refused | None:
    if not old.strip():
        return Refused(
            Reason.EMPTY, "old_string is empty", "copy the passage to replace from skill_view into old_string"
        )
    if old == new:
        return Refused(Reason.INVALID, "old_string and new_string are the same", "give the changed text as new_string")
    if len(old) > _MOST_CHARS:
        return Refused(
            Reason.OVER_BUDGET, f"old_string has {len(old):,} characters", "patch a shorter passage, or use edit"
        )
    return None


def _exact(text: str, old: str, new: str) -> list[_Span]:
    spans, at = [], text.find(old)
    while at >= 0:
        spans.append(_Span(at, at + len(old), new))
        at = text.find(old, at + 1)
    return spans


def _by_lines(text: str, old: str, normal: Callable[[str], str], replacement: Callable[[str], str]) -> list[_Span]:
    wanted = [normal(line) for line in old.strip("\n").split("\n")]
    lines = text.split("\n")
    alike = [normal(line) for line in lines]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    return [
        _Span(starts[at], starts[at + len(wanted)] - 1, replacement(lines[at]))
        for at in range(len(lines) - len(wanted) + 1)
        if alike[at] == wanted[0] and alike[at : at + len(wanted)] == wanted
    ]


def _but_trailing_space(text: str, old: str, new: str) -> list[_Span]:
    return _by_lines(text, old, str.rstrip, lambda _line: new.strip("\n"))


def _but_indentation(text: str, old: str, new: str) -> list[_Span]:
    if not old.strip("\n").split("\n")[0].strip():
        return []  # without a first word there is no indentation to take over
    own = _indentation(old.strip("\n"))
    return _by_lines(text, old, str.strip, lambda line: _indented(new.strip("\n"), own, _indentation(line)))


def _but_white_space(text: str, old: str, new: str) -> list[_Span]:
    """Look in the text with single spaces, where a plain search takes linear time, and map the places back."""
    words = list(re.finditer(r"\S+", text))
    plain = " ".join(word[0] for word in words)
    starts = list(accumulate((len(word[0]) + 1 for word in words[:-1]), initial=0))

    def place(at: int) -> int:
        word = bisect_right(starts, at) - 1
        return words[word].start() + at - starts[word]

    wanted = " ".join(old.split())
    return [_Span(place(span.start), place(span.end - 1) + 1, new.strip()) for span in _exact(plain, wanted, new)]


_WAYS: tuple[tuple[str, Callable[[str, str, str], list[_Span]]], ...] = (
    ("exact", _exact),
    ("trailing white space", _but_trailing_space),
    ("indentation", _but_indentation),
    ("white space", _but_white_space),
)


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indented(new: str, own: str, found: str) -> str:
    lines = new.split("\n")
    return "\n".join(found + line[len(own) :] if line.startswith(own) and line.strip() else line for line in lines)


def _disjoint(spans: list[_Span]) -> list[_Span]:
    kept: list[_Span] = []
    for span in spans:
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
    return kept


def _applied(text: str, spans: list[_Span]) -> str:
    pieces, at = [], 0
    for span in _disjoint(spans):
        pieces += [text[at : span.start], span.new]
        at = span.end
    return "".join([*pieces, text[at:]])


def _ambiguous(text: str, spans: list[_Span]) -> Refused:
    places = [text.count("\n", 0, span.start) + 1 for span in spans]
    previews = [f"line {line}: {text.splitlines()[line - 1].strip()[:_PREVIEW]}" for line in places[:_MOST_PREVIEWS]]
    return Refused(
        Reason.AMBIGUOUS,
        f"old_string is found {len(spans)} times",
        "add lines before or after it until it is found once, or set replace_all to true",
        {"matches": previews},
    )


def _missing(text: str, old: str) -> Refused:
    first = next(line.strip() for line in old.split("\n") if line.strip())
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    near = difflib.get_close_matches(first[:200], [line[:200] for line in lines[:3_000]], n=3, cutoff=0.5)
    remedy = "look at the file with skill_view and copy the passage exactly"
    return Refused(Reason.NO_MATCH, "old_string is not in the file", remedy, {"closest": near})

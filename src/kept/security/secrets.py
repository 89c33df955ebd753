"""The shapes of credentials, and their removal from text that is stored."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from kept.core.text import JSON
from kept.security.credentials import SHAPES, Shape

_BARE = r"(?i)(?:^|[^a-z])$"
_PLACEHOLDER = re.compile(
    r"(?i)example|changeme|change_me|placeholder|your[_-]|my[_-]|dummy|redacted|x{4}|\*{3}|\.{3}|^\$|^%|getenv|environ|process\.|"
    r"config[.\[]|secrets\.|vault:|^(?:password|passwd|secret|token|test|user|admin)[\d_!]{0,4}$|^abc123|^https?:|^/|^\w+\.\w+[.(]",
)
_ENOUGH_BITS = 3.0
_SHORT = 16
_TAIL = ".:!?"


def redact(text: str) -> str:
    """Return `text` with every credential replaced by `[redacted:<rule>]`."""
    spans = sorted(_spans(text), key=lambda span: (span[0], -span[1]))
    if not spans:
        return text
    parts, place = [], 0
    for start, end, rule in spans:
        if start < place:
            continue
        parts += [text[place:start], f"[redacted:{rule}]"]
        place = end
    return "".join([*parts, text[place:]])


def redact_json(value: JSON) -> JSON:
    """Return `value` with `redact` applied to every string in it, keys included."""
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {redact(key): _redacted_field(key, item) for key, item in value.items()}
        case Sequence():
            return [redact_json(item) for item in value]
        case _:
            return value


def _redacted_field(key: str, value: JSON) -> JSON:
    """Judge a string together with its key: `{"password": "…"}` has the shape of an assignment."""
    if not isinstance(value, str):
        return redact_json(value)
    plain = redact(value)
    if plain == value and "\n" not in value:
        joined = redact(f"{key}: {value}")
        if joined != f"{key}: {value}" and joined.startswith(f"{key}: "):
            return joined.removeprefix(f"{key}: ")
    return plain


def shapes(text: str, vocabulary: str | None = None) -> tuple[tuple[str, bool], ...]:
    """Return the rules whose shape occurs in `text`, and whether the shape alone is proof.

    `vocabulary` holds the lower-cased words of `text`, which tells sooner what cannot be there.
    """
    lowered = _lowered(text)
    words = lowered if vocabulary is None else vocabulary
    found: dict[str, bool] = {}
    for shape, cores in _cored():
        if any(core in words for core in cores) and next(_found(text, lowered, shape), None):
            found[shape.rule] = not shape.vague
    return tuple(found.items())


@cache
def _cored() -> tuple[tuple[Shape, tuple[str, ...]], ...]:
    """Return each shape with the letters that a word must hold for one of its anchors."""
    return tuple((shape, tuple(map(_core, shape.anchors))) for shape in SHAPES)


def _core(anchor: str) -> str:
    return max(re.findall("[a-z0-9]+", anchor.lower()), key=len, default="")


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    lowered = _lowered(text)
    for shape in SHAPES:
        haystack = lowered if shape.vague else text
        # most messages hold no anchor at all, and every stored one comes through here
        for anchor in shape.anchors:
            if anchor in haystack:
                for start, end in _found(text, lowered, shape):
                    yield start, end, shape.rule
                break


def _lowered(text: str) -> str:
    lowered = text.lower()
    # a few letters grow when lower-cased, and places must stay true
    return lowered if len(lowered) == len(text) else text


def _found(text: str, lowered: str, shape: Shape) -> Iterator[tuple[int, int]]:
    """Yield where credentials of one shape are; each anchor is tried once, so time is linear."""
    haystack = lowered if shape.vague else text
    match_at = _compiled(shape.pattern).match
    for anchor in shape.anchors:
        place = haystack.find(anchor)
        while place >= 0:
            match = match_at(text, place)
            if match is not None and _is_meant(text, shape, match):
                yield _secret_span(match)
            place = haystack.find(anchor, place + len(anchor) if match is None else match.end())


def _is_meant(text: str, shape: Shape, match: re.Match[str]) -> bool:
    """Judge what the shape alone does not prove."""
    if not shape.vague:
        return True
    if shape.qualifier is not None:
        before = text[max(0, match.start() - 12) : match.start()]
        alone = _BARE if match[0][:3].lower() != "key" else shape.qualifier
        if not (_compiled(shape.qualifier).search(before) or _compiled(alone).search(before)):
            return False
    start, end = _secret_span(match)
    return _is_secret(text[start:end], rule=shape.rule, said=match.lastgroup == "said")


def _secret_span(match: re.Match[str]) -> tuple[int, int]:
    if match.lastgroup is None:
        return match.span()
    start, _ = match.span(match.lastgroup)
    return start, start + max(1, len(match[match.lastgroup].rstrip(_TAIL)))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _is_secret(value: str, *, rule: str, said: bool) -> bool:
    """Tell a credential from a word, a number, a placeholder or a piece of code."""
    if _PLACEHOLDER.search(value):
        return False
    digits = any(char.isdigit() for char in value)
    letters = any(char.isalpha() for char in value)
    if rule == "url_password":
        return value not in {"password", "pass", "passwd", "secret", "pwd", "postgres", "user", "root", "token"}
    if rule == "password_assignment":
        odd = any(not char.isalnum() for char in value.rstrip(_TAIL)) or value.lower() != value
        return digits and letters and len(value) > 5 and (odd or not said)
    return digits and letters and len(value) >= _SHORT and _bits(value) >= _ENOUGH_BITS


def _bits(value: str) -> float:
    """Return the entropy of the characters of `value`, in bits per character."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())

"""The shapes of credentials, read from secrets.txt, and their redaction in stored text."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache

from msgspec import Struct

from wellkept.core.text import JSON, expression, has_long_word, resource_text

_BARE = r"(?i)(?:^|[^a-z])$"
_ENOUGH_BITS = 3.0
_SHORT = 16
_LONG_WORD = 20
"""No credential that is known by its own shape is shorter; ordinary prose has hardly a word of this length."""
_TAIL = ".:!?"
_FIRST_WORD = expression(r"\w*")
_CODE = expression(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$")
_REACH = 300
_DOUBTLESS = frozenset({"tight", "quoted", "flag", "given"})
"""Groups of a pattern whose form leaves no doubt that the value is meant, even if it has no digit."""


class Shape(Struct, frozen=True, eq=False):
    """The pattern of one kind of credential, and the literals one of which it always contains."""

    rule: str
    vendor: str
    source: str
    anchors: tuple[str, ...]
    pattern: str
    forms: tuple[str, ...]
    near: str
    lead: int
    spans: bool
    vague: bool
    """The value must be checked as well, because prose and code can match; case is ignored."""
    qualifier: str | None
    """What the text just before must end with, so that a bare `key = …` does not match."""
    after: tuple[str, ...]
    """One of these words must occur shortly before: an option means a password only after some commands."""


class ShapeTable(Struct, frozen=True):
    """The content of secrets.txt."""

    shapes: tuple[Shape, ...]
    placeholder: re.Pattern[str]
    ordinary: frozenset[str]
    published: frozenset[str]

    def is_published(self, value: str) -> bool:
        """Whether `value` is a sample of public documentation."""
        return value.rpartition(".")[2] in self.published

    def is_ordinary(self, value: str) -> bool:
        """Whether `value` is a placeholder, a word of a form, or a piece of code."""
        first = _FIRST_WORD.match(value)
        word = first[0].lower() if first is not None else ""
        return word in self.ordinary or _CODE.match(value) is not None or self.placeholder.search(value) is not None


@cache
def shape_table() -> ShapeTable:
    """Return the shapes and the values that are never credentials."""
    shapes: list[Shape] = []
    values: dict[str, list[str]] = {"placeholder": [], "ordinary": [], "published": []}
    for block in resource_text("wellkept.security", "secrets.txt").split("\n\n"):
        rows = [line.partition(" = ")[::2] for line in block.splitlines() if not line.startswith("#")]
        fields = dict(rows)
        if "rule" in fields:
            shapes.append(_shape(fields))
        for name, value in rows:
            if name in values:
                values[name].append(value)
    placeholder = re.compile("|".join(values["placeholder"]), re.IGNORECASE)
    ordinary, published = (frozenset(" ".join(values[name]).split()) for name in ("ordinary", "published"))
    return ShapeTable(tuple(shapes), placeholder, ordinary, published)


def _shape(fields: Mapping[str, str]) -> Shape:
    forms = (form.replace(r"\n", "\n").replace("\\\n", r"\n") for form in fields["forms"].split(" | "))
    return Shape(
        fields["rule"],
        fields["vendor"],
        fields["source"],
        tuple(anchor.replace(r"\s", " ") for anchor in fields["anchors"].split(" | ")),
        fields["pattern"],
        tuple(forms),
        fields["near"],
        lead=int(fields.get("lead", 0)),
        spans="spans" in fields,
        vague="vague" in fields,
        qualifier=fields.get("qualifier"),
        after=tuple(fields["after"].split(" | ")) if "after" in fields else (),
    )


def redact(text: str) -> str:
    """Return `text` with every credential replaced by `[redacted:<rule>]`."""
    spans = _spans(text)
    if not spans:
        return text
    parts, place = [], 0
    for start, end, rule in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start < place:
            continue
        parts += [text[place:start], f"[redacted:{rule}]"]
        place = end
    return "".join([*parts, text[place:]])


def may_hold_credentials(texts: Sequence[str]) -> bool:
    """Whether `redact` may change any of these texts; one look at many takes a third of the time of many looks."""
    plain = [text for text in texts if text.isascii()]
    # one letter of another script makes it slower to look at all of the joined text
    others = [text for text in texts if not text.isascii()] if len(plain) < len(texts) else ()
    return any(_may_hold("\n".join(some)) for some in (plain, others) if some)


def _may_hold(text: str) -> bool:
    lowered = text.lower()
    return len(lowered) != len(text) or bool(_possible(text, lowered, None))


def redact_json(value: JSON) -> JSON:
    """Return `value` with `redact` applied to every string in it, keys included."""
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {redact(key): _redact_field(key, item) for key, item in value.items()}
        case Sequence():
            return [redact_json(item) for item in value]
        case _:
            return value


def _redact_field(key: str, value: JSON) -> JSON:
    """Redact a string together with its key: `{"password": "…"}` has the shape of an assignment."""
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

    `vocabulary` holds the lower-cased words of `text`; it is shorter and rules most shapes out quickly.
    """
    lowered = _lower(text)
    found: dict[str, bool] = {}
    for shape in _possible(text, lowered, vocabulary):
        for match in _find(text, lowered, shape):
            found[shape.rule] = found.get(shape.rule, False) or not shape.vague or match.lastgroup in _DOUBTLESS
            if found[shape.rule]:
                break
    return tuple(found.items())


def _spans(text: str) -> list[tuple[int, int, str]]:
    lowered = _lower(text)
    return [
        (*_secret_span(match), shape.rule)
        for shape in _possible(text, lowered, None)
        for match in _find(text, lowered, shape)
    ]


class _Anchors:
    """The anchors of all shapes, so that the few shapes that a text can contain are found quickly.

    Every stored message passes through here, and most contain no anchor at all.
    """

    def __init__(self, known: Sequence[Shape]) -> None:
        self._spanning = [shape for shape in known if shape.spans]
        self._cores = {anchor.lower(): _core(anchor) for shape in self._spanning for anchor in shape.anchors}
        self._shortest = _drop_longer(self._cores)
        self._always: list[Shape] = []
        """Shapes whose anchor is in the middle of a run of letters and digits."""
        self._by_head: dict[str, list[Shape]] = {}
        for shape in known:
            if shape.lead:
                self._always.append(shape)
            elif not shape.spans:
                for head in dict.fromkeys(map(_head, shape.anchors)):
                    self._by_head.setdefault(head, []).append(shape)

    def in_text(self, lowered: str, vocabulary: str | None) -> list[Shape]:
        """Return the shapes that may contain spaces and have an anchor in the text."""
        if not [anchor for anchor in self._shortest if anchor in lowered]:
            return []
        present = {
            anchor
            for anchor, core in self._cores.items()
            if (vocabulary is None or core in vocabulary) and anchor in lowered
        }
        return [s for s in self._spanning if any(anchor.lower() in present for anchor in s.anchors)] if present else []

    def in_words(self, words: str) -> Iterator[Shape]:
        """Yield the shapes of single words that have an anchor in `words`."""
        starts = set(_RUN_START.findall(words.replace("\\n", " ")))
        heads = starts | {start[:2] for start in starts} | {start[:1] for start in starts}
        shapes = [shape for head in self._by_head.keys() & heads for shape in self._by_head[head]]
        for shape in dict.fromkeys(shapes):
            if any(anchor in words for anchor in shape.anchors):
                yield shape
        for shape in self._always:
            # their anchors are short: a search is faster than a try at every "-" of a table
            if any(anchor in words for anchor in shape.anchors) and _compile(shape.pattern).search(words):
                yield shape


_DIGIT = expression("[0-9]")
_JOINT = expression("[./(]")
_RUN_START = expression("([A-Za-z0-9]{1,3})[A-Za-z0-9]*")


def _head(anchor: str) -> str:
    """Return what a run of letters and digits begins with where the anchor is."""
    start = _RUN_START.search(anchor)
    return start[1] if start is not None else ""


def _drop_longer(anchors: Collection[str]) -> tuple[str, ...]:
    """Return the anchors that contain no other one: a text without these has none of the others."""
    return tuple(one for one in anchors if not any(other in one for other in anchors if other != one))


def _core(anchor: str) -> str:
    return max(re.findall("[a-z0-9]+", anchor.lower()), key=len, default="")


@cache
def _anchors() -> _Anchors:
    return _Anchors(shape_table().shapes)


def _may_be_random(word: str) -> bool:
    """Whether a long word is none of the paths, calls and compounds without digits that programs are full of."""
    return _DIGIT.search(word) is not None or not (word.islower() or _JOINT.search(word))


def _possible(text: str, lowered: str, vocabulary: str | None) -> list[Shape]:
    """Return the shapes that have an anchor in the text."""
    anchors = _anchors()
    found = anchors.in_text(lowered, vocabulary)
    long = [
        word
        for line in text.split("\n")
        if has_long_word(line, _LONG_WORD)  # most have none
        for word in line.split()
        if len(word) >= _LONG_WORD and _may_be_random(word)
    ]
    return [*found, *anchors.in_words(" ".join(long))] if long else found


def _lower(text: str) -> str:
    lowered = text.lower()
    # a few letters become longer in lower case, which would shift the positions
    return lowered if len(lowered) == len(text) else text


def _find(text: str, lowered: str, shape: Shape) -> Iterator[re.Match[str]]:
    """Yield the credentials of one shape; each anchor is tried once, so time is linear."""
    haystack = lowered if shape.vague else text
    match_at = _compile(shape.pattern).match
    for anchor in shape.anchors:
        place = haystack.find(anchor)
        while place >= 0:
            match = match_at(text, max(0, place - shape.lead))
            if match is not None and _is_meant(text, shape, match):
                yield match
                place = haystack.find(anchor, match.end())
            else:  # a rejected match may contain the next anchor: "the key is API_KEY=…"
                place = haystack.find(anchor, place + len(anchor))


def _is_meant(text: str, shape: Shape, match: re.Match[str]) -> bool:
    """Check the context and the value where the shape alone is not proof."""
    start, end = _secret_span(match)
    if shape_table().is_published(text[start:end]):
        return False
    if not shape.vague:
        return True
    if shape.qualifier is not None:
        before = text[max(0, match.start() - 12) : match.start()]
        alone = _BARE if match[0][:3].lower() != "key" else shape.qualifier
        if not (_compile(shape.qualifier).search(before) or _compile(alone).search(before)):
            return False
    place = match.start()
    if shape.after and not any(text.find(word, max(0, place - _REACH), place) >= 0 for word in shape.after):
        return False
    return _is_secret(text[start:end], rule=shape.rule, group=match.lastgroup)


def _secret_span(match: re.Match[str]) -> tuple[int, int]:
    if match.lastgroup is None:
        return match.span()
    start, _ = match.span(match.lastgroup)
    return start, start + max(1, len(match[match.lastgroup].rstrip(_TAIL)))


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _is_secret(value: str, *, rule: str, group: str | None) -> bool:
    """Tell a credential from a word, a number, a placeholder or a piece of code."""
    if shape_table().is_ordinary(value):
        return False
    digits = any(char.isdigit() for char in value)
    letters = any(char.isalpha() for char in value)
    if rule == "url_password":
        return True
    if group in _DOUBTLESS:
        return letters
    if rule == "password_assignment":
        odd = any(not char.isalnum() for char in value.rstrip(_TAIL)) or value.lower() != value
        return digits and letters and len(value) > 5 and (odd or group != "said")
    return digits and letters and len(value) >= _SHORT and _bits(value) >= _ENOUGH_BITS


def _bits(value: str) -> float:
    """Return the entropy of the characters of `value`, in bits per character."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())

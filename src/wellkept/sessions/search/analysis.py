"""Text analysis for the index and for queries: word splitting, scripts without spaces, identifiers, word forms."""

import json
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from math import sqrt
from mmap import ACCESS_READ, mmap
from pathlib import Path
from struct import iter_unpack, unpack_from
from typing import Final, NamedTuple

from wellkept.core.messages import SUMMARY_MARKER, Origin
from wellkept.core.text import WORD, has_long_word, resource_path
from wellkept.languages.language import STOP_WORDS
from wellkept.languages.stems import CANONICAL

WHOLE: Final = "\ue0c1"
"""Joins the parts of a compound that is indexed as a whole; a private-use character, which no cleaned text contains.

The stemmer cuts a doubled last byte, so the last two bytes of these marks in UTF-8 differ.
"""
SPEAKER: Final = "\ue0c2"
"""Marks the name in front of "Name: …", so that messages by a person differ from messages about them."""
STRONG: Final = "\ue0c4"
"""Marks the words of a short message, where a very common word is significant."""

STRONG_WORDS: Final = 12
RECALLS: Final = frozenset({"session_search", "context_grep", "context_expand", "context_describe"})
"""Tools whose answers repeat other messages; indexed, the copies would rank above the originals."""
TOOL_CHARACTERS: Final = 2_000
TALK_CHARACTERS: Final = 200_000
"""Characters that are indexed as they are; of the rest of a longer message, each word is indexed once."""

_PRIVATE = re.compile("[\ue000-\uf8ff\x00]+")
_NOISE = re.compile(r"data:[\w/+.-]+;base64,\S*|[A-Za-z0-9+/_-]{100,}={0,2}|\b[0-9a-fA-F]{32,}\b")
_LEAST_NOISE = 32
"""Characters of the shortest run of noise; one that is marked as base64 may be shorter."""
_JSON_MARKS = re.compile(r"[{}\[\]\"\\,:]+")
_SPEAKER = re.compile(r"\s{0,3}([^\W\d_][\w'’.-]{0,24}(?: [^\W\d_][\w'’.-]{0,24}){0,2}): (?=\S)")
_SPEAKER_CHARACTERS = 82  # the longest match of the expression
_COMPOUND = re.compile(r"\w+(?:[._/\\:@#+-]+\w+)+")
_CAMEL = re.compile(r"[A-Za-z]+[0-9]*(?<=[a-z0-9])[A-Z][A-Za-z0-9]*")
_JOINT = re.compile(r"[._/\\:@#+-](?=\w)")
_LOWER_WORDS = bytes(ord(chr(code).lower()) if chr(code).isalnum() and code < 128 else ord(" ") for code in range(256))
_HUMP = re.compile("[a-z0-9][A-Z]")
_CAMEL_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_COMPOUND_CHARACTERS = 80
_MARKED = re.compile(r"[^\W_]+")
"""The words that the index stores a second time, with a mark; a change would need a new index of every store."""

_UNSPACED_SCRIPTS = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
    "\u2600-\u27bf\U0001f300-\U0001faff"  # emoji
)
UNSPACED = re.compile(f"[{_UNSPACED_SCRIPTS}]+")
_CLUSTER = re.compile(r"[^\u0e31\u0e34-\u0e3a\u0e47-\u0e4e][\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]*")


class IndexedText(NamedTuple):
    """The searchable text of one message: its own words, and those of its tools."""

    message_id: int
    text: str
    tool_text: str = ""
    """Tool names, arguments and output; capped, noise removed."""


def indexed_text(
    message_id: int, role: str, *, content: str, origin: str | None, tool_name: str | None, tool_calls: str | None
) -> IndexedText:
    """Return the searchable text of a row; copies of other messages, and questions to the memory, are left out."""
    if origin == Origin.LOOKUP or (origin == Origin.SYNTHETIC and content.startswith(SUMMARY_MARKER)):
        return IndexedText(message_id, "", "")
    if role == "tool" and tool_name in RECALLS:
        return IndexedText(message_id, "", tool_name)
    if role == "tool":
        return IndexedText(message_id, "", f"{tool_name or ''} {content}")
    calls = ""
    if tool_calls:
        try:
            calls = " ".join(f"{call['name']} {call['arguments']}" for call in json.loads(tool_calls))
        except (ValueError, KeyError, TypeError):
            calls = tool_calls  # the format of another program: index its words anyway
    return IndexedText(message_id, content, calls)


class Prepared(NamedTuple):
    """What an index stores of one message."""

    message_id: int
    words: str
    """The words of the message itself; their number is its length."""
    marks: str
    """Further tokens: whole identifiers, their parts, base forms, the speaker, short-message marks."""
    spelled: str
    """What `spell` returns."""


def clean(text: str) -> str:
    """Return `text` in NFKC, without lone surrogates, NULs and private-use characters."""
    if text.isascii():
        return text.replace("\x00", " ") if "\x00" in text else text
    whole = unicodedata.normalize("NFKC", text.encode("utf-8", "replace").decode())
    return _PRIVATE.sub(" ", whole)


def remove_noise(text: str) -> str:
    """Return `text` without base64 and long hexadecimal runs, which nobody types into a search box."""
    # every stored message comes through here, and few have a word that is long enough
    if len(text) < _LEAST_NOISE or ("base64," not in text and not has_long_word(text, _LEAST_NOISE)):
        return text
    return _NOISE.sub(" ", text)


def split_speaker(text: str) -> tuple[str, str]:
    """Return the name in front of "Name: …" and the rest; the name is empty when there is none."""
    # few messages have a name, and the expression tries the first words of all
    match = _SPEAKER.match(text) if ": " in text[:_SPEAKER_CHARACTERS] else None
    if match is None or match[1][0].islower() or match[1].lower() in STOP_WORDS:
        return "", text
    return match[1], text[match.end() :]


def pieces(run: str) -> tuple[list[str], list[str]]:
    """Return the single characters and the character pairs by which a run without spaces is indexed."""
    characters = _CLUSTER.findall(run)
    return characters, [left + right for left, right in pairwise(characters)]


def compounds(text: str) -> list[str]:
    """Return the identifiers, paths and versions of `text`, each as one word, and the parts of camelCase."""
    identifiers: list[str] = []
    # every stored message comes through here, and most have neither
    if has_joint(text) if text.isascii() else _JOINT.search(text):
        # the expression tries every word to its end and back
        parts = (part for part in text.split() if _JOINT.search(part))
        wholes = (whole for part in parts for whole in _COMPOUND.findall(part) if len(whole) <= _COMPOUND_CHARACTERS)
        identifiers += [WHOLE.join(_MARKED.findall(whole)) for whole in wholes]
    if has_hump(text) if text.isascii() else _HUMP.search(text):
        for camel in _CAMEL.findall(text):
            identifiers += _CAMEL_PARTS.findall(camel)
    return identifiers


def find_words(text: str, expression: re.Pattern[str] = WORD) -> list[str]:
    """Return the words of `text` in lower case."""
    if text.isascii():  # the table takes a tenth of the time of the expression
        return text.encode().translate(_LOWER_WORDS).decode().split()
    return expression.findall(text.lower())


def split(text: str) -> tuple[str, list[str]]:
    """Return the words of `text` for the word index, and its further tokens."""
    marks: list[str] = []
    pairs: list[str] = []
    if not text.isascii() and UNSPACED.search(text):
        for run in UNSPACED.findall(text):
            singles, twos = pieces(run)
            marks += singles
            pairs += twos
            if len(singles) <= STRONG_WORDS:
                marks += [STRONG + single for single in singles]
        text = UNSPACED.sub(" ", text)
    marks += compounds(text)
    words = find_words(text, _MARKED)
    if not _CANONICAL_FORMS.isdisjoint(words):
        marks += {CANONICAL[word] for word in _CANONICAL_FORMS.intersection(words)}
    stems = words
    if not text.isascii() and CYRILLIC.search(text):
        stems = [base(word) for word in words]
        marks += set(stems).difference(words)
    if len(words) <= STRONG_WORDS:
        marks += [STRONG + word for word in set(stems) - STOP_WORDS]
    return (f"{text} {' '.join(pairs)}" if pairs else text), marks


def prepare(row: IndexedText) -> Prepared:
    """Return what an index stores of `row`."""
    talk = remove_noise(clean(_shorten(row.text)))
    name, rest = split_speaker(talk)
    words, marks = split(rest)
    if name:
        marks += [SPEAKER + base(part) for part in _MARKED.findall(name.lower())]
    if row.tool_text:
        tool = tool_text(row.tool_text)
        tool_words, tool_marks = split(tool)
        words = f"{words} {tool_words}"
        marks += tool_marks
        talk = f"{talk} {tool}"
    return Prepared(row.message_id, words, " ".join(marks), _leave_spaced(talk))


def spell(row: IndexedText) -> str:
    """Return the text of `row` in which parts of words are searched: without scripts that have no spaces."""
    talk = remove_noise(clean(_shorten(row.text)))
    return _leave_spaced(f"{talk} {tool_text(row.tool_text)}" if row.tool_text else talk)


def _leave_spaced(text: str) -> str:
    return text if text.isascii() else UNSPACED.sub(" ", text)


def _shorten(text: str) -> str:
    """Return the beginning of a very long text as it is, and of the rest every word once.

    Each of its words can be found then, while a pasted log of megabytes takes little room in the index. Only phrases
    beyond the beginning are not found.
    """
    if len(text) <= TALK_CHARACTERS:
        return text
    # not in the middle of a word
    cut = next((at for at in range(TALK_CHARACTERS, TALK_CHARACTERS - 100, -1) if text[at].isspace()), TALK_CHARACTERS)
    return f"{text[:cut]} {' '.join(dict.fromkeys(text[cut:].split()))}"


def tool_text(text: str) -> str:
    """Return the part of a tool's text that is worth finding: its beginning, without JSON marks and noise."""
    return remove_noise(clean(_JSON_MARKS.sub(" ", text[: 4 * TOOL_CHARACTERS])))[:TOOL_CHARACTERS]


CYRILLIC: Final = re.compile("[\u0400-\u04ff]")
_LEAST: Final = 3
"""A stem keeps at least this many letters; fewer would join unrelated words."""
_REFLEXIVE: Final = ("ся", "сь")
_NOUNS: Final = (
    "иями ьями ями ами иях ях ах иям ьям ям ам ией ием ия ие ии ию ья ье ьи ью ьев ов ев а я о е ы и у ю й ь"
)
_ADJECTIVES: Final = "ыми ими ого его ому ему ая яя ую юю ое ее ые ие ый ий ой ей ых их ым им ом ем ою ею"
_VERBS: Final = "ешь ишь ете ите ут ют ат ят ет ит ем им ти"
_PAST: Final = "ть л ла ло ли в вши"
_PRESENT: Final = "ет ем ете ют ю ешь й йте"
_ENDINGS: Final = frozenset(
    {
        *f"{_NOUNS} {_ADJECTIVES} {_VERBS}".split(),
        *(vowel + ending for vowel in "аяеиыу" for ending in _PAST.split()),
        *(vowel + ending for vowel in "аяуе" for ending in _PRESENT.split()),
    }
)
_LONGEST: Final = max(map(len, _ENDINGS))


def base(word: str) -> str:
    """Return the stem of a lower-case Cyrillic word; a word of another script is returned as it is."""
    return _cyrillic(word) if len(word) > _LEAST and CYRILLIC.match(word) else word


@lru_cache(maxsize=20_000)
def _cyrillic(word: str) -> str:
    word = word.replace("ё", "е")
    if word.endswith(_REFLEXIVE) and len(word) > _LEAST + 2:
        word = word[:-2]
    for size in range(min(_LONGEST, len(word) - _LEAST), 0, -1):
        if word[-size:] in _ENDINGS:
            return word[:-size]
    return word


_CANONICAL_FORMS: Final = frozenset(CANONICAL)
ASKED_FORMS: Final = {form: word for form, word in CANONICAL.items() if form not in {"leaves", "lives"}}
"""The same for the words of a query, where "lives" is more often a verb ("who lives in Ulm?") than a plural."""


@cache
def _group_forms() -> dict[str, list[str]]:
    """Return the forms of each word."""
    by_word: dict[str, list[str]] = {}
    for form, word in CANONICAL.items():
        by_word.setdefault(word, []).append(form)
    return by_word


def forms(word: str) -> list[str]:
    """Return the words that are found under `word`, itself first."""
    return [word, *_group_forms().get(word, ())]


RELATED: Final = resource_path("wellkept.sessions", "search", "related.bin")
"""The table of related words; `benchmarks/related.py` builds it and describes how."""
RELATED_MARK: Final = b"kept related words 1\n"


class RelatedTable(NamedTuple):
    """The table of related words: stems in order, the weight of each, and its nearest stems."""

    stems: list[str]
    weights: memoryview
    rows: memoryview
    row_bytes: int


@cache
def read_related(path: Path) -> RelatedTable:
    """Return the table in a file."""
    with path.open("rb") as file:
        data = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))  # 2 MB, of which a search reads some pages
    assert bytes(data[: len(RELATED_MARK)]) == RELATED_MARK, path
    start = len(RELATED_MARK) + 12
    size, neighbours, length = unpack_from("<III", data, len(RELATED_MARK))
    stems = bytes(data[start : start + length]).decode().split("\n")
    rows = start + length + size
    return RelatedTable(stems, data[start + length : rows], data[rows:], 3 * neighbours)


_WINDOW: Final = 12
"""Words of a message, stop words aside, that are compared with the question at a time: a sentence or two."""
_FULL: Final = 255.0
"""A weight or similarity of 1 in the table."""


def list_related(stem: str, path: Path = RELATED) -> set[str] | None:
    """Return the stems that are nearest to a stem; None for one that the table does not know."""
    table = read_related(path)
    index = bisect_left(table.stems, stem)
    if table.stems[index : index + 1] != [stem]:
        return None
    row = table.rows[index * table.row_bytes : (index + 1) * table.row_bytes]
    return {table.stems[other] for other, likeness in iter_unpack("<HB", row) if likeness}


class RelatedWords:
    """How much of the question a text says in other words: "exhibition" where the question says "museum".

    The table holds English words by their stems; a word that is not in it has no related words.
    """

    def __init__(self, stems: Iterable[str], path: Path = RELATED) -> None:
        table = read_related(path)
        indices = {stem: bisect_left(table.stems, stem) for stem in stems}
        rows = [index for stem, index in indices.items() if table.stems[index : index + 1] == [stem]]
        gains: dict[str, float] = {}
        for index in rows:
            weight = table.weights[index]
            row = table.rows[index * table.row_bytes : (index + 1) * table.row_bytes]
            for other, likeness in iter_unpack("<HB", row):
                gain = weight * table.weights[other] * likeness / _FULL**3
                gains[table.stems[other]] = gains.get(table.stems[other], 0.0) + gain
        norm = sqrt(sum(table.weights[index] ** 2 for index in rows)) / _FULL
        for index in rows:
            stem, own = table.stems[index], (table.weights[index] / _FULL) ** 2
            gains[stem] = max(gains.get(stem, 0.0), own)
        self._gains = {stem: gain / norm for stem, gain in gains.items() if gain}
        self.is_known = bool(self._gains)
        """Whether the table knows any of the words."""

    def share(self, tokens: Sequence[str]) -> float:
        """Return how much of the question the best window of a text says in the same or related words, about 0 to 1.

        `tokens` are without stop words.
        """
        get = self._gains.get
        hits = [(index, gain) for index, token in enumerate(tokens) if (gain := get(token))]
        best = total = 0.0
        first = 0
        for index, gain in hits:
            total += gain
            while hits[first][0] <= index - _WINDOW:
                total -= hits[first][1]
                first += 1
            best = max(best, total)
        return best / sqrt(min(_WINDOW, len(tokens)) + 1) if best else 0.0


_KINDS = bytes(
    ord("." if char in "._/\\:@#+-" else "A" if char.isupper() else "a" if char.isalnum() else " ")
    for char in map(chr, range(256))
)
_NO_WORD = (b" ", b"")


def has_joint(text: str) -> bool:
    """Whether a sign of ASCII `text` may join two words: a letter, a digit or another sign follows it."""
    kinds = text.encode().translate(_KINDS)
    at = kinds.find(b".")
    while at >= 0 and kinds[at + 1 : at + 2] in _NO_WORD:
        at = kinds.find(b".", at + 1)
    return at >= 0


def has_hump(text: str) -> bool:
    """Whether a capital of ASCII `text` follows a small letter or a digit."""
    return b"aA" in text.encode().translate(_KINDS)

"""The words of a text as the store looks them up: lower case, irregular forms brought home, unspaced scripts cut."""

import cmath
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from hashlib import shake_256
from operator import add

from kept.core.text import resource_text

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_NEGATED = re.compile(r"n['’]t$")


def words(text: str) -> list[str]:
    """Return the words of `text` in order."""
    found: list[str] = []
    for match in _WORD.finditer(_UNSPACED.sub(_cut, text)):
        word = match[0].lower()
        if _NEGATED.search(word):
            found.append("not")
        found.append(_home().get(word) or _home().get(word.partition("'")[0].partition("’")[0], _bare(word)))
    return found


def content_words(text: str) -> list[str]:
    """Return the distinct words that carry meaning; all of them when none does."""
    every = list(dict.fromkeys(words(text)))
    return [word for word in every if word not in stop_words()] or every


def asking_words(question: str) -> list[str]:
    """Return the distinct words of a question that carry meaning in its language; all of them when none does.

    "war", "die" or "son" are stop words of one language and nouns of another, so another language than
    English counts only where the question holds at least two of its stop words and more than of English.
    """
    every = list(dict.fromkeys(words(question)))
    hits = {language: len(table.intersection(every)) for language, table in _stop_words_by_language().items()}
    spoken = {"en", *(each for each, count in hits.items() if count >= 2 and count > hits["en"])}
    stops = frozenset[str]().union(*(_stop_words_by_language()[each] for each in spoken))
    return [word for word in every if word not in stops] or every


@cache
def stop_words() -> frozenset[str]:
    """Return words that say nothing about what a text is about, in any language."""
    return frozenset[str]().union(*_stop_words_by_language().values())


@cache
def framing_words() -> frozenset[str]:
    """Return words that shape a question more than they say what it is about."""
    return frozenset(_resource("framing_words.txt").split())


@cache
def _stop_words_by_language() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for line in _resource("stop_words.txt").splitlines():
        language, _, table = line.partition(": ")
        found[language] = found.get(language, frozenset()) | frozenset(table.split())
    return found


@cache
def _home() -> dict[str, str]:
    """Return irregular forms and the word that each is a form of."""
    return {form: line.split()[0] for line in _resource("irregular.txt").splitlines() if line for form in line.split()}


def _bare(word: str) -> str:
    return word.partition("'")[0].partition("’")[0]


def _cut(run: re.Match[str]) -> str:
    text = run[0]
    pairs = [text[place : place + 2] for place in range(len(text) - 1)] or [text]
    return f" {' '.join(pairs)} "


def _resource(name: str) -> str:
    return resource_text("kept.providers.holographic", name)


_SPEAKER = re.compile(r"^\s*([^\W\d_][\w'’.-]{0,30}(?: [^\W\d_][\w'’.-]{0,30})?):\s+\S")
_NAME = re.compile(r"[^\W\d_a-z][\w'’.+#-]*(?:\s+(?:(?:of|de|van|von|the|da|del)\s+)?[^\W\d_a-z][\w'’.+#-]*)*")
_QUOTED = re.compile(r"[\"“„`]([^\"“”„`\n]{2,60})[\"”“`]")
_MENTION = re.compile(r"(?<!\w)@[\w-]{2,40}")
_EDGES = "'’.,-"
_MAX = 12


def speaker_of(text: str) -> str | None:
    """Return the name before the colon where a text reads as `Name: what was said`, in lower case."""
    found = _SPEAKER.match(text)
    return found[1].casefold() if found and found[1][0].isupper() else None


def entity_key(name: str) -> str:
    """Return what makes two spellings of a name one entity."""
    plain = re.sub(r"['’]s$", "", " ".join(name.split()).strip(_EDGES))
    return plain.casefold()


def entities_in(text: str) -> list[str]:
    """Return the names in `text`, each once, in order."""
    found: dict[str, str] = {}
    for name in _candidates(text):
        key = entity_key(name)
        if len(key) > 1 and key not in stop_words():
            found.setdefault(key, re.sub(r"['’]s$", "", name.strip(_EDGES)))
    return list(found.values())[:_MAX]


def _candidates(text: str) -> Iterator[str]:
    for match in _QUOTED.finditer(text):
        yield match[1]
    for match in _MENTION.finditer(text):
        yield match[0]
    for match in _NAME.finditer(text):
        yield from _without_opener(match[0].split(), at_start=_begins_sentence(text, match.start()))


def _without_opener(parts: list[str], *, at_start: bool) -> Iterator[str]:
    """Cut off a stop word at the start of a sentence: its capital is grammar, not a name."""
    while parts and at_start and re.sub(r"['’].*", "", parts[0]).casefold() in stop_words():
        parts = parts[1:]
    if parts:
        yield " ".join(parts)


def _begins_sentence(text: str, place: int) -> bool:
    before = text[:place].rstrip()
    return not before or before[-1] in '.!?:;\n"“(-•'


_PHASORS = [cmath.rect(1.0, 2 * math.pi * step / 256) for step in range(256)]
_SCALE = 127
_SHIFTED_COS = bytes(round(_SCALE * phasor.real) + 128 for phasor in _PHASORS)
"""The cosine of each byte's angle as a byte, so that `bytes.translate` looks a whole vector up at once."""


def atom(name: str, dim: int) -> bytes:
    """Return the vector that `name` always has: its hash, stretched."""
    return shake_256(name.encode("utf-8", "surrogatepass")).digest(dim)


def bound(left: bytes, right: bytes) -> bytes:
    """Return both bound into one vector, which resembles neither."""
    low, high = _masks(len(left))
    a, b = int.from_bytes(left, "little"), int.from_bytes(right, "little")
    return (((a & low) + (b & low)) ^ ((a ^ b) & high)).to_bytes(len(left), "little")


def unbound(whole: bytes, part: bytes) -> bytes:
    """Return what remains of `whole` when `part` is taken out of the binding."""
    low, high = _masks(len(whole))
    a, b = int.from_bytes(whole, "little"), int.from_bytes(part, "little")
    return (((a | high) - (b & low)) ^ ((a ^ ~b) & high)).to_bytes(len(whole), "little")


def similarity(left: bytes, right: bytes) -> float:
    """Return how alike two vectors are."""
    if len(left) != len(right) or not left:
        return 0.0
    total = sum(unbound(left, right).translate(_SHIFTED_COS))
    return (total - 128 * len(left)) / (_SCALE * len(left))


def bundled(vectors: Iterable[bytes], dim: int) -> bytes:
    """Return one vector that resembles each of `vectors`."""
    lanes: list[complex] = [0j] * dim
    for vector in vectors:
        lanes = list(map(add, lanes, map(_PHASORS.__getitem__, vector)))
    turn = 256 / (2 * math.pi)
    return bytes([int(angle * turn + 256.5) & 255 for angle in map(cmath.phase, lanes)])


@lru_cache(maxsize=8192)
def word_vector(word: str, dim: int) -> bytes:
    """Return the vector of a word: itself and its runs of three letters, so that related spellings are alike."""
    framed = f"^{word}$"
    runs = sorted({framed[place : place + 3] for place in range(len(framed) - 2)})
    return bundled((atom(f"word {word}", dim), *(atom(f"run {run}", dim) for run in runs)), dim)


def entity_vector(entity: str, dim: int) -> bytes:
    """Return the vector of an entity in its role, as facts about it hold it."""
    return bound(atom("role entity", dim), word_vector(entity.casefold(), dim))


def fact_vector(words: Sequence[str], entities: Sequence[str], dim: int) -> bytes:
    """Return the vector of a fact: its words, and its entities bound to their role."""
    parts = [*(word_vector(word, dim) for word in words), *(entity_vector(entity, dim) for entity in entities)]
    return bundled(parts or [atom("nothing", dim)], dim)


def query_vector(words: Sequence[str], dim: int) -> bytes:
    """Return the vector of a question."""
    return bundled((word_vector(word, dim) for word in words), dim)


@lru_cache(maxsize=8)
def _masks(dim: int) -> tuple[int, int]:
    """Return the lower seven bits of every lane, and the top bit of every lane; no carry crosses a lane."""
    return int.from_bytes(b"\x7f" * dim, "little"), int.from_bytes(b"\x80" * dim, "little")

"""Features of a text: its words, the entities it names and its holographic vector.

Words are lower case, irregular forms are reduced to their base form, and scripts without spaces are split
into pairs of characters.
"""

import cmath
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from hashlib import shake_256
from operator import add

from wellkept.core.text import resource_text
from wellkept.languages.language import list_languages
from wellkept.languages.language import stop_words as stop_words_of_question

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_DISTINCTIVE_WORDS = (
    "above after again against all because before below between both down during each else ever few further get gets "
    "getting got long more most off once other own same such then through under until while"
)
_DISTINCTIVE = frozenset(_DISTINCTIVE_WORDS.split())
"""Stop words that distinguish short facts ("before the trip", "the same team"): a fact has few other words."""
_QUESTION_STOP_WORDS = frozenset({"know"})
"""Stop words in questions only: "do you know …"."""
_NEGATED = re.compile(r"n['’]t$")

_SPEAKER = re.compile(r"^\s*([^\W\d_][\w'’.-]{0,30}(?: [^\W\d_][\w'’.-]{0,30})?):\s+\S")
_NAME = re.compile(r"[^\W\d_a-z][\w'’.+#-]*(?:\s+(?:(?:of|de|van|von|the|da|del)\s+)?[^\W\d_a-z][\w'’.+#-]*)*")
_QUOTED = re.compile(r"[\"“„`]([^\"“”„`\n]{2,60})[\"”“`]")
_MENTION = re.compile(r"(?<!\w)@[\w-]{2,40}")
_EDGES = "'’.,-"
_MAX_ENTITIES = 12

# A vector is `bytes`; the byte b stands for the angle 2πb/256. Binding adds angles and unbinding subtracts them,
# byte by byte, computed on one large integer. Similarity is the mean cosine of the differences: about 0 for
# unrelated vectors, 1 for equal ones.
_PHASORS = [cmath.rect(1.0, 2 * math.pi * step / 256) for step in range(256)]
_SCALE = 127
_SHIFTED_COS = bytes(round(_SCALE * phasor.real) + 128 for phasor in _PHASORS)
"""The cosine of each byte's angle as a byte, so that one `bytes.translate` maps a whole vector."""


def words(text: str) -> list[str]:
    """Return the words of `text` in order."""
    found: list[str] = []
    for match in _WORD.finditer(_UNSPACED.sub(_split_pairs, text)):
        word = match[0].lower()
        if _NEGATED.search(word):
            found.append("not")
        found.append(_base_forms().get(word) or _base_forms().get(_without_suffix(word), _without_suffix(word)))
    return found


def content_words(text: str) -> list[str]:
    """Return the distinct words that are not stop words; all words if there are no others."""
    every = list(dict.fromkeys(words(text)))
    return [word for word in every if word not in stop_words()] or every


def question_words(question: str) -> list[str]:
    """Return the distinct words of a question that are not stop words of its language; all if there are no others."""
    every = list(dict.fromkeys(words(question)))
    stops = stop_words_of_question(every) - _DISTINCTIVE | _QUESTION_STOP_WORDS
    return [word for word in every if word not in stops] or every


@cache
def stop_words() -> frozenset[str]:
    """Return the stop words of the languages in which facts are recognised; more would drop names such as Mia."""
    return frozenset[str]().union(*(language.stop_words for language in list_languages())) - _DISTINCTIVE


@cache
def framing_words() -> frozenset[str]:
    """Return words that frame a question without naming its topic, such as "kind" or "tell"."""
    return frozenset(_resource("framing_words.txt").split())


@cache
def _base_forms() -> dict[str, str]:
    """Return irregular forms with their base form."""
    return {form: line.split()[0] for line in _resource("irregular.txt").splitlines() if line for form in line.split()}


def _without_suffix(word: str) -> str:
    return word.partition("'")[0].partition("’")[0]


def _split_pairs(run: re.Match[str]) -> str:
    text = run[0]
    pairs = [text[place : place + 2] for place in range(len(text) - 1)] or [text]
    return f" {' '.join(pairs)} "


def _resource(name: str) -> str:
    return resource_text("wellkept.providers.holographic", name)


def speaker_of(text: str) -> str | None:
    """Return the name, in lower case, if the text has the form `Name: what was said`."""
    match = _SPEAKER.match(text)
    return match[1].casefold() if match and match[1][0].isupper() else None


def entity_key(name: str) -> str:
    """Return the key under which spellings of a name are the same entity."""
    plain = re.sub(r"['’]s$", "", " ".join(name.split()).strip(_EDGES))
    return plain.casefold()


def entities_in(text: str) -> list[str]:
    """Return the distinct names in `text`, in order."""
    found: dict[str, str] = {}
    for name in _candidates(text):
        key = entity_key(name)
        if len(key) > 1 and key not in stop_words():
            found.setdefault(key, re.sub(r"['’]s$", "", name.strip(_EDGES)))
    return list(found.values())[:_MAX_ENTITIES]


def _candidates(text: str) -> Iterator[str]:
    for match in _QUOTED.finditer(text):
        yield match[1]
    for match in _MENTION.finditer(text):
        yield match[0]
    for match in _NAME.finditer(text):
        yield from _strip_opener(match[0].split(), at_start=_begins_sentence(text, match.start()))


def _strip_opener(parts: list[str], *, at_start: bool) -> Iterator[str]:
    """Remove stop words at the start of a sentence, which are capitalised without being names."""
    while parts and at_start and re.sub(r"['’].*", "", parts[0]).casefold() in stop_words():
        parts = parts[1:]
    if parts:
        yield " ".join(parts)


def _begins_sentence(text: str, place: int) -> bool:
    before = text[:place].rstrip()
    return not before or before[-1] in '.!?:;\n"“(-•'


def atom(name: str, dim: int) -> bytes:
    """Return the fixed vector of `name`: its hash, extended to `dim` bytes."""
    return shake_256(name.encode("utf-8", "surrogatepass")).digest(dim)


def bind(left: bytes, right: bytes) -> bytes:
    """Bind two vectors into one that is similar to neither."""
    low, high = _masks(len(left))
    a, b = int.from_bytes(left, "little"), int.from_bytes(right, "little")
    return (((a & low) + (b & low)) ^ ((a ^ b) & high)).to_bytes(len(left), "little")


def unbind(whole: bytes, part: bytes) -> bytes:
    """Reverse a binding: return what was bound with `part`."""
    low, high = _masks(len(whole))
    a, b = int.from_bytes(whole, "little"), int.from_bytes(part, "little")
    return (((a | high) - (b & low)) ^ ((a ^ ~b) & high)).to_bytes(len(whole), "little")


def similarity(left: bytes, right: bytes) -> float:
    """Return the similarity of two vectors."""
    if len(left) != len(right) or not left:
        return 0.0
    total = sum(unbind(left, right).translate(_SHIFTED_COS))
    return (total - 128 * len(left)) / (_SCALE * len(left))


def bundle(vectors: Iterable[bytes], dim: int) -> bytes:
    """Combine vectors into one that is similar to each of them."""
    lanes: list[complex] = [0j] * dim
    for vector in vectors:
        lanes = list(map(add, lanes, map(_PHASORS.__getitem__, vector)))
    turn = 256 / (2 * math.pi)
    return bytes([int(angle * turn + 256.5) & 255 for angle in map(cmath.phase, lanes)])


@lru_cache(maxsize=8192)
def word_vector(word: str, dim: int) -> bytes:
    """Return the vector of a word, made of the word and its trigrams, so that related spellings are similar."""
    framed = f"^{word}$"
    runs = sorted({framed[place : place + 3] for place in range(len(framed) - 2)})
    return bundle((atom(f"word {word}", dim), *(atom(f"run {run}", dim) for run in runs)), dim)


def entity_vector(entity: str, dim: int) -> bytes:
    """Return the vector of an entity bound to its role, as it is part of fact vectors."""
    return bind(atom("role entity", dim), word_vector(entity.casefold(), dim))


def fact_vector(words: Sequence[str], entities: Sequence[str], dim: int) -> bytes:
    """Return the vector of a fact: its words, and its entities bound to their role."""
    parts = [*(word_vector(word, dim) for word in words), *(entity_vector(entity, dim) for entity in entities)]
    return bundle(parts or [atom("nothing", dim)], dim)


def query_vector(words: Sequence[str], dim: int) -> bytes:
    """Return the vector of a question."""
    return bundle((word_vector(word, dim) for word in words), dim)


@lru_cache(maxsize=8)
def _masks(dim: int) -> tuple[int, int]:
    """Return masks for the lower seven bits and for the top bit of every byte, so that no carry crosses a byte."""
    return int.from_bytes(b"\x7f" * dim, "little"), int.from_bytes(b"\x80" * dim, "little")

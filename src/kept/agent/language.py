"""The languages of the assistant: words by class, what it says in each, and which one a text is in."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from typing import Any, Final

from kept.core.text import UNSPACED, WORD, resource_text, stop_words_by_language, strip_accents
from kept.core.values import dataclass, field

CODES: Final = ("en", "de", "es", "fr", "zh")
READ_CHARS: Final = 400
"""What a message is for is said within this many characters; the rest of a longer one is content."""
_LONGEST: Final = 8
"""The most words of a phrase, or characters of a Chinese one."""
_FLAGS: Final = re.IGNORECASE | re.DOTALL
_KANA: Final = re.compile("[\u3040-\u30ff\uac00-\ud7af]")
"""Kana and Hangul: a text with them is Japanese or Korean, although it may have Chinese characters too."""
_LETTERS: Final = {"de": "äöüß", "es": "ñ¿¡áíóú", "fr": "çœêèàùâîôû"}
"""Letters that occur in one of the languages only."""
_HAN_SHARE: Final = 0.3
"""The share of Chinese characters from which a text is Chinese; names and code in it are not."""


@dataclass(frozen=True, slots=True)
class Token:
    """A phrase of a message, with the classes it is in; no class for a word that the table does not have."""

    text: str
    classes: frozenset[str] = frozenset()


class Language:
    """One language: its table, read once."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.table: Mapping[str, Any] = tomllib.loads(resource_text("kept.agent", "languages", f"{code}.toml"))

    @cached_property
    def phrases(self) -> Mapping[str, frozenset[str]]:
        """Return the classes of each phrase, which is written as `split` writes a message."""
        found: dict[str, set[str]] = {}
        for name, words in self.table["words"].items():
            for phrase in words.split(","):
                found.setdefault(self._join(split(phrase)), set()).add(name)
        for word in stop_words_by_language().get(self.code, ()):
            found.setdefault(self._join(split(word)), set()).add("function")
        return {phrase: frozenset(classes) for phrase, classes in found.items() if phrase}

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """Return the single words of all phrases, by which the language is recognised."""
        return frozenset(word for phrase in self.phrases for word in phrase.split())

    def read(self, text: str) -> tuple[Token, ...]:
        """Return the phrases of a text: at each place the longest one that the table has, else one word."""
        words = split(text[:READ_CHARS])
        tokens: list[Token] = []
        place = 0
        while place < len(words):
            for length in range(min(_LONGEST, len(words) - place), 0, -1):
                phrase = self._join(words[place : place + length])
                if length == 1 or phrase in self.phrases:
                    tokens.append(Token(phrase, self.phrases.get(phrase, frozenset())))
                    place += length
                    break
        return tuple(tokens)

    def say(self, name: str, **values: object) -> str:
        """Return what the assistant says, with the values filled in."""
        text = str(self.table["replies"][name])
        for key, value in values.items():
            text = text.replace(f"{{{key}}}", str(value))
        return text

    def describe_moment(self, name: str, moment: datetime) -> str:
        """Return the date, or with the name `clock` also the time of day, as a sentence."""
        names = self.table["names"]
        return self.say(
            name,
            weekday=names["weekdays"].split()[moment.weekday()],
            month=names["months"].split()[moment.month - 1],
            day=moment.day,
            year=moment.year,
            clock=f"{moment:%H:%M}",
        )

    def pattern(self, name: str) -> re.Pattern[str]:
        """Return a shape of facts; `re` keeps what it compiled."""
        flags = re.DOTALL if name == "third" else _FLAGS  # capitals tell names
        return re.compile(self.table["facts"][name], flags)

    def _join(self, words: Sequence[str]) -> str:
        return ("" if self.code == "zh" else " ").join(words)


def split(text: str) -> list[str]:
    """Return the words in lower case without accents; each character of an unspaced script is one."""
    plain = strip_accents(text.casefold())
    words: list[str] = []
    for word in WORD.findall(plain):
        place = 0
        for run in UNSPACED.finditer(word):
            words += [word[place : run.start()], *run[0]]
            place = run.end()
        words.append(word[place:])
    return [word for word in words if word]


@cache
def language(code: str) -> Language:
    """Return the language of a code."""
    return Language(code)


def detect(text: str) -> str | None:
    """Return the code of the language that a text is in; None where nothing tells it, or it is another one."""
    beginning = text[:READ_CHARS]
    if _KANA.search(beginning):
        return None
    words = split(beginning)
    han = sum(1 for word in words if UNSPACED.fullmatch(word))
    if words and han >= _HAN_SHARE * len(words):
        return "zh"
    scores = {code: sum(beginning.casefold().count(letter) for letter in _LETTERS.get(code, "")) for code in CODES}
    weights: dict[str, float] = {code: float(score) for code, score in scores.items()}
    for word in words:
        speaking = [code for code in CODES if code != "zh" and word in language(code).vocabulary]
        for code in speaking:
            weights[code] += 1.0 / len(speaking)
    best = max(CODES, key=lambda code: weights[code])
    others = max(weights[code] for code in CODES if code != best)
    return best if weights[best] > others and weights[best] > _LEAST_SHARE * len(words) else None


_LEAST_SHARE: Final = 0.15
"""Fewer known words than this share of a text are names or chance."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A message as its language's table reads it."""

    language: Language
    text: str
    tokens: tuple[Token, ...] = field(default=())
    asks: bool = False

    def has(self, *classes: str) -> bool:
        """Whether a phrase is in one of the classes."""
        return any(not token.classes.isdisjoint(classes) for token in self.tokens)

    def spare(self, *classes: str) -> int:
        """Return how many words are in none of the classes, and are not mere grammar."""
        allowed = {*classes, "function"}
        return sum(1 for token in self.tokens if token.classes.isdisjoint(allowed))

    def begins(self, *classes: str, within: int = 1) -> bool:
        """Whether one of the first phrases is in one of the classes."""
        return any(not token.classes.isdisjoint(classes) for token in self.tokens[:within])


_MARK: Final = re.compile(r"[?\uff1f¿]")


def read(text: str, code: str) -> Reading:
    """Return how a message reads in a language."""
    spoken = language(code)
    tokens = spoken.read(text)
    asks = _MARK.search(text[-READ_CHARS:]) is not None
    if code == "zh":
        asks = asks or any("ask" in token.classes for token in tokens)
    elif tokens:
        lead = next((token for token in tokens if not token.classes & {"lead", "greet"}), tokens[0])
        asks = asks or "ask" in lead.classes
    return Reading(spoken, text, tokens, asks)

"""The languages of the assistant: words by class, its replies, and language detection."""

import math
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from typing import Any, Final

from msgspec import Struct, field

from wellkept.core.text import UNSPACED, WORD, resource_text, stop_words_by_language, strip_accents
from wellkept.sessions.search.query import asks_by_words

CODES: Final = ("en", "de", "es", "fr", "zh")
READ_CHARS: Final = 400
"""The intent of a message is within this many characters; the rest of a longer one is content."""
_LONGEST: Final = 8
"""The most words of a phrase, or characters of a Chinese one."""
_FLAGS: Final = re.IGNORECASE | re.DOTALL
_KANA: Final = re.compile("[\u3040-\u30ff\uac00-\ud7af]")
"""Kana and Hangul: a text with them is Japanese or Korean, although it may have Chinese characters too."""
_LETTERS: Final = {"en": "", "de": "äöüß", "es": "ñ¿¡áíóú", "fr": "çœêèàùâîôû"}
"""Letters that occur in one of the languages only; Chinese is recognised by its script."""
_HAN_SHARE: Final = 0.3
"""The share of Chinese characters from which a text is Chinese; names and code in it are not."""


class Token(Struct, frozen=True):
    """A phrase of a message, with the classes it is in; no class for a word that the table does not have."""

    text: str
    classes: frozenset[str] = frozenset()
    start: int = 0
    """Its place in the message."""


class Language:
    """One language: its table, read once."""

    def __init__(self, code: str) -> None:
        self.code = code
        self._words: dict[str, frozenset[str]] = {}
        self.table: Mapping[str, Any] = tomllib.loads(resource_text("wellkept.agent", "languages", f"{code}.toml"))

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
        """Return the single words of all phrases, without accents."""
        return frozenset(word for phrase in self.phrases for word in phrase.split())

    @cached_property
    def spellings(self) -> frozenset[str]:
        """Return the single words as they are spelled, with accents."""
        texts = " ".join(self.table["words"].values()).casefold()
        return frozenset(WORD.findall(texts)) | stop_words_by_language().get(self.code, frozenset())

    def find_words(self, name: str) -> frozenset[str]:
        """Return the single words, or Chinese characters, of the phrases of a class."""
        if name not in self._words:
            self._words[name] = frozenset(split(self.table["words"][name]))
        return self._words[name]

    @cached_property
    def triples(self) -> Counter[str]:
        """Return how often each letter trigram occurs in the table, which characterises the spelling."""
        texts = " ".join((*self.table["words"].values(), *self.table["replies"].values())).casefold()
        spaced = f" {' '.join(WORD.findall(texts))} "
        return Counter(spaced[place : place + 3] for place in range(len(spaced) - 2))

    def read(self, text: str) -> tuple[Token, ...]:
        """Return the phrases of a text: at each position the longest one in the table, else one word."""
        places = [
            (word, found.start() + (number if UNSPACED.match(found[0]) else 0))
            for found in WORD.finditer(text[:READ_CHARS])
            for number, word in enumerate(split(found[0]))
        ]
        words = [word for word, _ in places]
        tokens: list[Token] = []
        place = 0
        while place < len(words):
            for length in range(min(_LONGEST, len(words) - place), 0, -1):
                phrase = self._join(words[place : place + length])
                if length == 1 or phrase in self.phrases:
                    tokens.append(Token(phrase, self.phrases.get(phrase, frozenset()), places[place][1]))
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
        """Return a pattern of facts; `re` caches compiled patterns."""
        flags = re.DOTALL if name == "third" else _FLAGS  # capitals tell names
        return re.compile(self.table["facts"][name], flags)

    def _join(self, words: Sequence[str]) -> str:
        return ("" if self.code == "zh" else " ").join(words)


def split(text: str) -> list[str]:
    """Return the words in lower case without accents; each character of an unspaced script is one."""
    words: list[str] = []
    raw = WORD.findall(unicodedata.normalize("NFC", text))
    for word in (part for each in raw for part in WORD.findall(strip_accents(each.casefold()))):
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


def detect(text: str, usual: str | None = None) -> str | None:
    """Return the code of the language of a text; None if it is undecidable, or another language.

    `usual` is the language of the conversation so far, which is preferred if the text may be in it.
    """
    beginning = text[:READ_CHARS]
    if _KANA.search(beginning):
        return None
    words = WORD.findall(beginning.casefold())
    han = sum(len(run) for run in UNSPACED.findall(beginning))
    if han and han >= _HAN_SHARE * (han + len(words)):
        return "zh"
    weights = dict.fromkeys(_LETTERS, 0.0)
    known = {code: float(sum(map(beginning.casefold().count, letters))) for code, letters in _LETTERS.items()}
    for word in words:
        spelled = [code for code in _LETTERS if word in language(code).spellings]
        # a word without its accents is weaker evidence, because another language may have it as it is
        speaking = spelled or [code for code in _LETTERS if strip_accents(word) in language(code).vocabulary]
        for code in speaking:
            known[code] += (1.0 if spelled else 0.5) / len(speaking)
        if not speaking:
            weights = {code: weights[code] + share for code, share in _compare_spelling(word).items()}
    weights = {code: weight + known[code] for code, weight in weights.items()}
    best = max(weights, key=lambda code: weights[code])
    if usual in weights and weights[usual] >= _USUAL_SHARE * weights[best] and known[usual]:
        return usual
    is_clear = weights[best] > max(weights[code] for code in weights if code != best) + _LEAST_LEAD
    return best if is_clear and known[best] and weights[best] > _LEAST_SHARE * len(words) else None


def _compare_spelling(word: str) -> dict[str, float]:
    """Return how well the spelling of an unknown word fits each language, as shares of 0.5."""
    triples = [f" {word} "[place : place + 3] for place in range(len(word))]
    fits = {
        code: math.prod(
            (language(code).triples.get(each, 0) + 0.5) / language(code).triples.total() for each in triples
        )
        for code in _LETTERS
    }
    return {code: 0.5 * fit / (sum(fits.values()) or 1.0) for code, fit in fits.items()}


_LEAST_LEAD: Final = 0.1
"""Two languages whose scores are closer than this cannot be told apart."""
_USUAL_SHARE: Final = 0.5
"""The language of the conversation is kept if its score is at least this share of the best one."""
_LEAST_SHARE: Final = 0.15
"""Fewer known words than this share of a text are names or chance."""


class Reading(Struct, frozen=True):
    """A message as its language's table reads it."""

    language: Language
    text: str
    tokens: tuple[Token, ...] = field(default=())
    asks: bool = False
    question: str = ""
    """The question inside a request to tell it, or the whole text."""

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


_INFORMS: Final = frozenset({"tell", "inform", "remind"})
_FRAMES: Final = _INFORMS | {"can", "polite", "me", "you", "that", "greet", "lead", "function"}
"""Classes of the words before an indirect question: "could you please remind me where …"."""
_CONJUNCTIONS: Final = frozenset({"que", "qu"})
"""Words that ask only with an accent, which tokens lack: "recuérdame qué …" asks, "recuérdame que …" does not."""
PARTICLES: Final = frozenset("吗呢么")
"""Chinese words at the end that turn any sentence into a question, so that they ask for nothing in it."""


def _is_polite(token: Token) -> bool:
    """Whether a phrase is merely polite."""
    return "polite" in token.classes <= {"polite", "function"}


def unwrap(text: str, tokens: Sequence[Token], code: str) -> Sequence[Token]:
    """Return the question inside an indirect one: "where I live" in "could you please tell me where I live".

    Polite words and pronouns may come anywhere before it. Any other message is returned as it is: "remind me to buy
    wine" is not a question.
    """
    is_begun = False
    for place, token in enumerate(tokens):
        if is_begun and code == "zh" and "polite" not in token.classes:
            # the question word may come late: a Chinese question has the word order of a statement
            asks = any("ask" in one.classes and one.text not in PARTICLES for one in tokens[place:])
            return tokens[place:] if asks else tokens
        asks = "ask" in token.classes and (token.text not in _CONJUNCTIONS or "qué" in text.casefold())
        if is_begun and asks:
            return tokens[place:]
        if token.classes.isdisjoint(_FRAMES):
            return tokens
        is_begun = is_begun or not token.classes.isdisjoint(_INFORMS)
    return tokens


_MARK: Final = re.compile(r"[?\uff1f¿]")


def read(text: str, code: str) -> Reading:
    """Return how a message reads in a language."""
    spoken, text = language(code), unicodedata.normalize("NFC", text)
    said = spoken.read(text)
    said = tuple(token for token in said if not _is_polite(token)) or said
    tokens = tuple(unwrap(text, said, code))
    lead = next((token for token in tokens if not token.classes & {"lead", "greet"}), None)
    asks = (
        _MARK.search(text[-READ_CHARS:]) is not None
        or (lead is not None and "ask" in lead.classes)
        or (code == "zh" and any("ask" in token.classes for token in tokens))  # the place of the word does not matter
        or spoken.pattern("asks").search(text.strip()) is not None
        or asks_by_words(text[:READ_CHARS])
        or len(tokens) < len(said)
    )
    question = text[tokens[0].start :] if len(tokens) < len(said) else text
    return Reading(spoken, text, tokens, asks, question)

"""A language: the words, dates, expressions and replies of its folder, each file read when it is first needed.

Every folder beside this module is a language: `words.txt` has its words by kind, `dates.txt` its dates, `search.toml`
how its questions read, `facts.toml` how it tells that something changed, `assistant.toml` what the assistant without a
model understands and says, `forms.txt` irregular forms of words. Each file is optional except `words.txt`.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from wellkept.core.text import UNSPACED, WORD, expression, resource_text, strip_accents

ROOTS: Final = [Path(__file__).parent]
"""The places of the folders; a folder in a later one adds a language."""
READ_CHARS: Final = 400
"""The intent of a message is within this many characters; the rest of a longer one is content."""
_LONGEST: Final = 8
"""The most words of a phrase, or characters of one in a script without spaces."""
_FLAGS: Final = re.IGNORECASE | re.DOTALL
_NEVER: Final = "(?!)"
"""The expression that matches nothing, for a language that lacks one."""
_KANA: Final = expression("[\u3040-\u30ff\uac00-\ud7af]")
"""Kana and Hangul: a text with them is Japanese or Korean, although it may have Chinese characters too."""
_HAN_SHARE: Final = 0.3
"""The share of Chinese characters from which a text is Chinese; names and code in it are not."""
_LEAST_LEAD: Final = 0.1
"""Two languages whose scores are closer than this cannot be told apart."""
_USUAL_SHARE: Final = 0.5
"""The language of the conversation is kept if its score is at least this share of the best one."""
_LEAST_TRIPLES: Final = 500
"""Fewer trigrams do not characterise a spelling; tables with replies have thousands."""
_LEAST_SHARE: Final = 0.15
"""Fewer known words than this share of a text are names or chance."""
_MARKERS: Final = 3


class Token(Struct, frozen=True):
    """A phrase of a message, with the classes it is in; no class for a word that the table does not have."""

    text: str
    classes: frozenset[str] = frozenset()
    start: int = 0
    """Its place in the message."""


def group_lines(text: str) -> Mapping[str, tuple[str, ...]]:
    """Return the values of `name: value` lines by name, in their order."""
    lines: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(": ")
        if colon and not line.startswith("#"):
            lines[name] = (*lines.get(name, ()), value)
    return lines


def split_mappings(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the two sides of words such as "j=je"."""
    return [(left, right) for left, _, right in (word.partition("=") for word in words)]


class Language:
    """One language."""

    def __init__(self, folder: Path) -> None:
        self.code = folder.name
        self._folder = folder
        self._classes: dict[str, frozenset[str]] = {}

    def read_file(self, name: str) -> str:
        """Return the text of a file of the folder; empty if the language has none."""
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    @cached_property
    def _words(self) -> Mapping[str, tuple[str, ...]]:
        lines = group_lines(self.read_file("words.txt"))
        return {kind: tuple(" ".join(words).split()) for kind, words in lines.items()}

    def list_words(self, kind: str) -> tuple[str, ...]:
        """Return the words of one kind; `en/words.txt` explains the kinds."""
        return self._words.get(kind, ())

    def list_pairs(self, kind: str) -> list[tuple[str, str]]:
        """Return the words of a kind that maps one word to another, as in "j=je"."""
        return split_mappings(self.list_words(kind))

    @cached_property
    def is_spaced(self) -> bool:
        """Whether spaces separate words."""
        return self.list_words("spaces") != ("none",)

    @cached_property
    def dates(self) -> Mapping[str, tuple[str, ...]]:
        """The lines of `dates.txt` by name; empty for English, which the others are translated to."""
        return group_lines(self.read_file("dates.txt"))

    @cached_property
    def search(self) -> Mapping[str, Any]:
        """The tables of `search.toml`."""
        return self._read_tables("search.toml")

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """The expressions of `facts.toml`."""
        return self._read_tables("facts.toml")

    @cached_property
    def table(self) -> Mapping[str, Any]:
        """The tables of `assistant.toml`."""
        return self._read_tables("assistant.toml")

    def _read_tables(self, name: str) -> Mapping[str, Any]:
        import tomllib  # lazy: most commands need no table

        return tomllib.loads(self.read_file(name))

    @cached_property
    def phrases(self) -> Mapping[str, frozenset[str]]:
        """The classes of each phrase, which is written as `split` writes a message."""
        phrases: dict[str, set[str]] = {}
        for name, words in self._class_words.items():
            for phrase in words.split(","):
                phrases.setdefault(self._join(split(phrase)), set()).add(name)
        for word in self.stop_words:
            phrases.setdefault(self._join(split(word)), set()).add("function")
        return {phrase: frozenset(classes) for phrase, classes in phrases.items() if phrase}

    @cached_property
    def _class_words(self) -> Mapping[str, str]:
        words: Mapping[str, str] = self.table.get("words", {})
        return words

    @cached_property
    def stop_words(self) -> frozenset[str]:
        """The words without content, the ambiguous ones included."""
        return frozenset((*self.list_words("stop"), *self.list_words("ambiguous")))

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """The single words of all phrases, without accents."""
        return frozenset(word for phrase in self.phrases for word in phrase.split())

    @cached_property
    def spellings(self) -> frozenset[str]:
        """The single words as they are spelled, with accents."""
        return frozenset(WORD.findall(" ".join(self._class_words.values()).casefold())) | self.stop_words

    def list_class(self, name: str) -> frozenset[str]:
        """Return the single words, or characters of a script without spaces, of the phrases of a class."""
        if name not in self._classes:
            self._classes[name] = frozenset(split(self._class_words.get(name, "")))
        return self._classes[name]

    @cached_property
    def triples(self) -> Counter[str]:
        """How often each letter trigram occurs in the table, which characterises the spelling."""
        texts = " ".join((*self._class_words.values(), *self.table.get("replies", {}).values())).casefold()
        spaced = f" {' '.join(WORD.findall(texts))} "
        return Counter(spaced[start : start + 3] for start in range(len(spaced) - 2))

    def read(self, text: str) -> tuple[Token, ...]:
        """Return the phrases of a text: at each position the longest one in the table, else one word."""
        words = [
            (part, word.start() + (offset if UNSPACED.match(word[0]) else 0))
            for word in WORD.finditer(text[:READ_CHARS])
            for offset, part in enumerate(split(word[0]))
        ]
        tokens: list[Token] = []
        index = 0
        while index < len(words):
            for length in range(min(_LONGEST, len(words) - index), 0, -1):
                phrase = self._join([word for word, _ in words[index : index + length]])
                if length == 1 or phrase in self.phrases:
                    tokens.append(Token(phrase, self.phrases.get(phrase, frozenset()), words[index][1]))
                    index += length
                    break
        return tuple(tokens)

    def say(self, name: str, **values: object) -> str:
        """Return what the assistant says, with the values filled in; in English where the language lacks the reply."""
        replies = self.table.get("replies", {})
        text = str(replies[name] if name in replies else find_language("en").table["replies"][name])
        for key, value in values.items():
            text = text.replace(f"{{{key}}}", str(value))
        return text

    def describe_moment(self, name: str, moment: datetime) -> str:
        """Return the date, or with the name `clock` also the time of day, as a sentence."""
        names = self.table.get("names") or find_language("en").table["names"]
        return self.say(
            name,
            weekday=names["weekdays"].split()[moment.weekday()],
            month=names["months"].split()[moment.month - 1],
            day=moment.day,
            year=moment.year,
            clock=f"{moment:%H:%M}",
        )

    def pattern(self, name: str) -> re.Pattern[str]:
        """Return a pattern of facts; one that the language lacks matches nothing. `re` caches compiled patterns."""
        flags = re.DOTALL if name == "third" else _FLAGS  # capitals tell names
        return re.compile(self.table.get("facts", {}).get(name, _NEVER), flags)

    def _join(self, words: Sequence[str]) -> str:
        return (" " if self.is_spaced else "").join(words)


def split(text: str) -> list[str]:
    """Return the words in lower case without accents; each character of an unspaced script is one."""
    words: list[str] = []
    written = WORD.findall(unicodedata.normalize("NFC", text))
    for word in (part for whole in written for part in WORD.findall(strip_accents(whole.casefold()))):
        begin = 0
        for run in UNSPACED.finditer(word):
            words += [word[begin : run.start()], *run[0]]
            begin = run.end()
        words.append(word[begin:])
    return [word for word in words if word]


@cache
def find_language(code: str) -> Language:
    """Return the language of a code."""
    return Language(next(folder for root in ROOTS if (folder := root / code).is_dir()))


@cache
def list_languages() -> tuple[Language, ...]:
    """Return all languages: English, whose replies stand in for missing ones, then the others by code."""
    codes = {folder.name for root in ROOTS for folder in root.iterdir() if (folder / "words.txt").is_file()}
    return tuple(find_language(code) for code in sorted(codes, key=lambda code: (code != "en", code)))


@cache
def list_codes() -> tuple[str, ...]:
    """Return the codes of all languages."""
    return tuple(language.code for language in list_languages())


@cache
def join_words(kind: str) -> frozenset[str]:
    """Return the words of one kind in all languages."""
    return frozenset(word for language in list_languages() for word in language.list_words(kind))


def join_expressions(table: str, name: str, *, file: str = "search", is_spaced: bool | None = None) -> str:
    """Return one expression for what all languages, or those with or without spaces, have under a name of a table.

    Without a table the name stands by itself in its file.
    """
    chosen = (language for language in list_languages() if is_spaced in {None, language.is_spaced})
    files = ({"search": one.search, "facts": one.facts, "assistant": one.table}[file] for one in chosen)
    tables = (tables.get(table, {}) if table else tables for tables in files)
    rows = (str(rows[name]) for rows in tables if name in rows)
    return "|".join(rows) or _NEVER


def detect(text: str, usual: str | None = None) -> str | None:
    """Return the code of the language of a text; None if it is undecidable, or a language without a folder.

    `usual` is the language of the conversation so far; it is kept if the text may be in it.
    """
    beginning = text[:READ_CHARS]
    if _KANA.search(beginning):
        return None
    folded = beginning.casefold()
    words = WORD.findall(folded)
    han = sum(len(run) for run in UNSPACED.findall(beginning))
    if han and han >= _HAN_SHARE * (han + len(words)):
        return next(language.code for language in list_languages() if not language.is_spaced)
    languages = {language.code: language for language in list_languages() if language.is_spaced}
    weights = dict.fromkeys(languages, 0.0)
    evidence = {
        code: float(sum(map(folded.count, language.list_words("letters")))) for code, language in languages.items()
    }
    for word in words:
        spelled = [code for code, language in languages.items() if word in language.spellings]
        # a word without its accents is weaker evidence, because another language may have it as it is
        speaking = spelled or [
            code for code, language in languages.items() if strip_accents(word) in language.vocabulary
        ]
        for code in speaking:
            evidence[code] += (1.0 if spelled else 0.5) / len(speaking)
        if not speaking:
            shares = _compare_spelling(word, list(languages.values()))
            weights = {code: weights[code] + share for code, share in shares.items()}
    weights = {code: weight + evidence[code] for code, weight in weights.items()}
    best = max(weights, key=lambda code: weights[code])
    if usual in weights and weights[usual] >= _USUAL_SHARE * weights[best] and evidence[usual]:
        return usual
    is_clear = weights[best] > max(weights[code] for code in weights if code != best) + _LEAST_LEAD
    return best if is_clear and evidence[best] and weights[best] > _LEAST_SHARE * len(words) else None


def _compare_spelling(word: str, languages: Sequence[Language]) -> dict[str, float]:
    """Return how well the spelling of an unknown word fits each language, as shares of 0.5."""
    triples = [f" {word} "[start : start + 3] for start in range(len(word))]
    fits = {
        language.code: math.prod(
            (language.triples.get(triple, 0) + 0.5) / language.triples.total() for triple in triples
        )
        for language in languages
        if language.triples.total() >= _LEAST_TRIPLES
    }
    whole = sum(fits.values()) or 1.0
    return {language.code: 0.5 * fits.get(language.code, 0.0) / whole for language in languages}


STOP_WORDS: Final = frozenset(find_language("en").list_words("stop"))
"""The English stop words; `stop_words` adds those of the language of a question."""


@cache
def list_other_words() -> Mapping[str, tuple[str, ...]]:
    """Return the words of languages without a folder by code and kind, as in "sv" and "sv ambiguous"."""
    lines = group_lines(resource_text("wellkept.languages", "stop_words.txt"))
    return {name: tuple(" ".join(words).split()) for name, words in lines.items()}


def list_pairs(code: str, kind: str) -> list[tuple[str, str]]:
    """Return the words of a kind that maps one text to another; the language need not have a folder."""
    own = next((language for language in list_languages() if language.code == code), None)
    return split_mappings(list_other_words().get(f"{code} {kind}", ())) if own is None else own.list_pairs(kind)


def list_dropped_words() -> frozenset[str]:
    """Return the question words and particles of scripts without spaces, which are dropped from a question."""
    others = (word for name, words in list_other_words().items() if name.endswith(" dropped") for word in words)
    return join_words("dropped").union(others)


@cache
def _list_indicators() -> Mapping[str, tuple[str, ...]]:
    """Return the stop words by which each language is recognised, in the order of its list, without ambiguous ones.

    Where a text fits several languages equally, the first one here is chosen.
    """
    ranked = {}
    for language in list_languages():
        if words := language.list_words("stop"):
            ranked[language.code != "en", language.list_words("rank") or ("9",), language.code] = words
    indicators = {code: ranked[first, rank, code] for first, rank, code in sorted(ranked)}
    others = {code: words for code, words in list_other_words().items() if " " not in code and code not in indicators}
    return indicators | others


@cache
def stop_words_by_language() -> Mapping[str, frozenset[str]]:
    """Return the stop words of each language, by its ISO 639-1 code."""
    own = {language.code: language.stop_words for language in list_languages()}
    others = list_other_words()
    return {
        code: own.get(code) or frozenset((*words, *others.get(f"{code} ambiguous", ())))
        for code, words in _list_indicators().items()
    }


def list_markers(code: str) -> Sequence[str]:
    """Return words by which texts in a language are recognised: common ones that no other language has."""
    return _list_indicators()[code][:_MARKERS]


@cache
def _index_indicators() -> tuple[Mapping[str, Sequence[str]], frozenset[str]]:
    """Return the languages other than English that each stop word indicates, and the words that are not English."""
    codes: dict[str, list[str]] = {}
    for code, words in _list_indicators().items():
        for word in words if code != "en" else ():
            codes.setdefault(word, []).append(code)
    return codes, frozenset(codes) - STOP_WORDS


def stop_words(words: Sequence[str]) -> frozenset[str]:
    """Return the stop words for a question that consists of `words`."""
    codes = find_languages(words)
    return STOP_WORDS.union(*(stop_words_by_language()[code] for code in codes)) if codes else STOP_WORDS


def find_languages(words: Sequence[str]) -> list[str]:
    """Return the languages other than English in which a question of these words may be asked, likeliest first.

    "war", "die" and "sin" are stop words in one language and nouns in another. A language other than English
    therefore counts only if the question contains at least two of its stop words, and more than English ones.
    """
    languages, distinct = _index_indicators()
    if distinct.isdisjoint(words):  # most questions are in English: no other language can then have more of the words
        return []
    hits: dict[str, int] = {}
    for word in words:
        for code in languages.get(word, ()):
            hits[code] = hits.get(code, 0) + 1
    least = max(2, 1 + sum(map(STOP_WORDS.__contains__, words)))
    likely = [code for code in _list_indicators() if hits.get(code, 0) >= least]
    return sorted(likely, key=hits.__getitem__, reverse=True)

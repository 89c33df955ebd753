"""Stop words: those of a question, and the languages that they tell."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from wellkept.core.text import resource_text
from wellkept.languages.language import find_language, group_lines, join_words, list_languages, split_mappings

_MARKERS: Final = 3
STOP_WORDS: Final = frozenset(find_language("en").list_words("stop"))
"""The English stop words; `stop_words` adds those of the language of a question."""


@cache
def list_other_words() -> Mapping[str, tuple[str, ...]]:
    """Return the words of languages without a folder by code and kind, as in "sv" and "sv ambiguous"."""
    lines = group_lines(resource_text("wellkept.languages", "stop_words.txt"))
    return {name: tuple(" ".join(words).split()) for name, words in lines.items()}


def list_pairs(code: str, kind: str) -> list[tuple[str, str]]:
    """Return the words of a kind that maps one text to another, of a language with or without a folder."""
    own = next((language for language in list_languages() if language.code == code), None)
    return split_mappings(list_other_words().get(f"{code} {kind}", ())) if own is None else own.list_pairs(kind)


def list_dropped_words() -> frozenset[str]:
    """Return the question words and particles of scripts without spaces, which are dropped from a question."""
    others = (word for name, words in list_other_words().items() if name.endswith(" dropped") for word in words)
    return join_words("dropped").union(others)


@cache
def _list_telling() -> Mapping[str, tuple[str, ...]]:
    """Return the stop words that tell a language, in the order of its list; ambiguous ones are left out.

    Of languages that are as likely the first one here counts.
    """
    ranked = sorted(
        list_languages(), key=lambda language: (language.code != "en", language.list_words("rank") or ("9",))
    )
    telling = {language.code: words for language in ranked if (words := language.list_words("stop"))}
    others = {code: words for code, words in list_other_words().items() if " " not in code and code not in telling}
    return telling | others


@cache
def stop_words_by_language() -> Mapping[str, frozenset[str]]:
    """Return the stop words of each language, by its ISO 639-1 code."""
    own = {language.code: language.stop_words for language in list_languages()}
    others = list_other_words()
    return {
        code: own.get(code) or frozenset((*words, *others.get(f"{code} ambiguous", ())))
        for code, words in _list_telling().items()
    }


def list_markers(code: str) -> Sequence[str]:
    """Return words by which texts in a language are recognised: common ones that no other language has."""
    return _list_telling()[code][:_MARKERS]


@cache
def _find_telling() -> tuple[Mapping[str, Sequence[str]], frozenset[str]]:
    """Return the languages other than English that each word tells, and the words that English lacks."""
    codes: dict[str, list[str]] = {}
    for code, words in _list_telling().items():
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
    languages, distinct = _find_telling()
    if distinct.isdisjoint(words):  # most questions are in English: no other language can then have more of the words
        return []
    hits: dict[str, int] = {}
    for word in words:
        for code in languages.get(word, ()):
            hits[code] = hits.get(code, 0) + 1
    least = max(2, 1 + sum(map(STOP_WORDS.__contains__, words)))
    likely = [code for code in _list_telling() if hits.get(code, 0) >= least]
    return sorted(likely, key=hits.__getitem__, reverse=True)

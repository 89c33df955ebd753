"""Words of a text and stop words by language, shared by every search in kept."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Final

from kept.core.text import resource_text

WORD: Final = re.compile(r"[^\W_]+")
UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f\uac00-\ud7af]+")
"""Runs of scripts that are searched by pairs of characters: kana, Han, Thai, Hangul."""


def split_words(text: str) -> list[str]:
    """Return the words of `text` in order, in lower case."""
    return WORD.findall(text.lower())


def strip_accents(text: str) -> str:
    """Return `text` without accents and other combining marks."""
    return "".join(mark for mark in unicodedata.normalize("NFKD", text) if not unicodedata.combining(mark))


def split_pairs(run: str) -> list[str]:
    """Return the overlapping pairs of characters of `run`; a single character is its own pair."""
    return [run[place : place + 2] for place in range(max(1, len(run) - 1))]


@cache
def stop_words_by_language() -> dict[str, frozenset[str]]:
    """Return the stop words of each language, by its ISO 639-1 code."""
    found: dict[str, frozenset[str]] = {}
    for line in resource_text("kept.core", "stop_words.txt").splitlines():
        language, colon, words = line.partition(": ")
        if colon and not line.startswith("#"):
            found[language] = found.get(language, frozenset()) | frozenset(words.split())
    return found


STOP_WORDS: Final = stop_words_by_language()["en"]
"""The English stop words; `stop_words` adds those of the language of a question."""


def stop_words(words: Sequence[str]) -> frozenset[str]:
    """Return the stop words for a question that consists of `words`.

    "war", "die" and "sin" are stop words in one language and nouns in another. A language other than English
    therefore counts only if the question contains at least two of its stop words, and more than English ones.
    """
    english = sum(word in STOP_WORDS for word in words)
    chosen = STOP_WORDS
    for language, table in stop_words_by_language().items():
        hits = sum(word in table for word in words)
        if language != "en" and hits >= 2 and hits > english:
            chosen |= table
    return chosen

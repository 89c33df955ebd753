"""The words of a text as the store looks them up: lower case, irregular forms brought home, unspaced scripts cut."""

import re
from functools import cache

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

"""The words of a text as the store looks them up: lower case, irregular forms brought home, unspaced scripts cut."""

import re
from functools import cache

from kept.core.resources import shipped_text

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


@cache
def stop_words() -> frozenset[str]:
    """Return words that say nothing about what a text is about."""
    return frozenset(_resource("stop_words.txt").split())


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
    return shipped_text("kept.providers.holographic", name)

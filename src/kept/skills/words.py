"""The words of a text as search sees them: folded, stemmed, and pairs of characters where there are no spaces."""

import re
import unicodedata
from functools import lru_cache

_TOKEN = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\u0e00-\u0e7f]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SUFFIXES = (
    ("ization", "ize"), ("isation", "ize"), ("ational", "ate"), ("fulness", "ful"), ("iveness", "ive"),
    ("ations", "ate"), ("ation", "ate"), ("ators", "ate"), ("ator", "ate"), ("ising", "ize"), ("ised", "ize"),
    ("ments", ""), ("ment", ""), ("ness", ""), ("ities", ""), ("ity", ""), ("ables", ""), ("able", ""),
    ("ible", ""), ("ances", ""), ("ance", ""), ("ences", ""), ("ence", ""), ("ings", ""), ("ing", ""),
    ("ies", "y"), ("ied", "y"), ("ions", ""), ("ion", ""), ("ers", ""), ("ors", ""), ("er", ""), ("or", ""),
    ("edly", ""), ("ed", ""), ("ly", ""), ("ives", ""), ("ive", ""), ("als", ""), ("al", ""), ("ful", ""),
    ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("es", "e"), ("s", ""), ("e", ""), ("y", ""),
)  # fmt: skip
_STOP_WORDS = """
a about after all also am an and any are as at be been before but by can could do does down each for
from get had has have he her here his how i if in instead into is it its just let like make me more most my
need no not of off on one only or our out over please should since so some such than that the their them then
there these they this to too up us use used user uses using want was we were what when where which
while who why will with would you your
"""
STOP = frozenset(_STOP_WORDS.split())
_SHORTEST_STEM = 3


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Return a form that inflections of one English word share; it need not be a word."""
    if len(word) <= _SHORTEST_STEM or not word.isascii() or not word.isalpha():
        return word
    for _ in range(2):
        for ending, instead in _SUFFIXES:
            if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM and not word.endswith("ss"):
                word = word[: len(word) - len(ending)] + instead
                break
        else:
            break
    word = word.rstrip("e") if len(word) > _SHORTEST_STEM + 1 else word
    if len(word) > _SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "sl":
        word = word[:-1]
    return f"{word[:-1]}y" if word.endswith("i") else word


@lru_cache(maxsize=8_192)
def terms(text: str) -> tuple[str, ...]:
    """Return the stems of `text` in order, stop words left out."""
    folded = unicodedata.normalize("NFKD", _CAMEL.sub(" ", text))
    folded = "".join(char for char in folded if not unicodedata.combining(char)).lower()
    found: list[str] = []
    for word in _TOKEN.findall(folded):
        run = _UNSPACED.search(word)
        if run is not None:
            found.extend(run[0][place : place + 2] for place in range(max(1, len(run[0]) - 1)))
        elif word not in STOP:
            found.append(stem(word))
    return tuple(found)

"""How the words of a question stand in a text: close together, or one after the other as they were asked."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from kept.sessions.inflection import base
from kept.sessions.sqlite.postings import Postings
from kept.sessions.text import WORD, clean, speaker
from kept.sessions.words import forms, stop_words

_CHARACTERS = 8_000
_ASKED_CHARACTERS = 2_000


class Stands(NamedTuple):
    """How the words of a question stand in one text."""

    gap: float
    """How close its terms stand, in weight."""
    quoted: float
    """How much of it stands there word for word, 0 to 1."""
    held: int
    """Its terms that stand there, as bits."""
    small: int
    """Its stop words that stand there."""


class Wording:
    """One question, compared with texts; the words are as the index knows them, in all their forms."""

    def __init__(self, postings: Postings, question: str, terms: Sequence[str]) -> None:
        self._postings = postings
        self._terms = [[postings.stem(form) for form in forms(term)] for term in terms]
        asked = clean(question[:_ASKED_CHARACTERS])
        self._rows = _rows(postings.tokens(asked))
        self._small = _small(postings, asked)

    @property
    def is_more_than_terms(self) -> bool:
        """Whether the question has words or rows of words beside its terms, which a text may hold."""
        return bool(self._rows or self._small)

    def of(self, text: str, weights: Sequence[float]) -> Stands:
        """Return how the words of the question stand in `text`."""
        _, rest = speaker(clean(text[:_CHARACTERS]))
        tokens = self._postings.tokens(rest)
        places = self._places(tokens)
        held = sum(1 << bit for bit, found in enumerate(places) if found)
        return Stands(_closeness(places, weights), self._quoted(tokens), held, len(self._small.intersection(tokens)))

    def _quoted(self, tokens: Sequence[str]) -> float:
        share = len(self._rows & _rows(tokens)) / len(self._rows) if self._rows else 0.0
        return share * share  # a turn of phrase is chance, a whole line is not

    def _places(self, tokens: Sequence[str]) -> list[list[int]]:
        lists: list[list[int]] = [[] for _ in self._terms]
        places = {form: lists[place] for place, stems in enumerate(self._terms) for form in stems}
        for index, token in enumerate(tokens):
            found = places.get(token)
            if found is None:
                found = places.get(base(token))
            if found is not None:
                found.append(index)
        return lists


def _closeness(places: Sequence[Sequence[int]], weights: Sequence[float]) -> float:
    """Return how close together the terms stand that follow each other in the question."""
    gain = 0.0
    for step, share in ((1, 1.0), (2, 0.5)):
        for left in range(len(places) - step):
            distance = _distance(places[left], places[left + step])
            if distance is not None:
                gain += share * min(weights[left], weights[left + step]) / max(1, distance)
    return gain


def _small(postings: Postings, question: str) -> frozenset[str]:
    """Return the stop words of the question; what is left of "don't" and "I'm" is none."""
    words = [word.lower() for word in WORD.findall(question)]
    return frozenset(postings.stem(word) for word in stop_words(words).intersection(words) if len(word) > 1)


def _rows(tokens: Sequence[str]) -> frozenset[tuple[str, str, str]]:
    """Return the words three by three: two in a row are chance, a row of three is not."""
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def _distance(left: Sequence[int], right: Sequence[int]) -> int | None:
    if not left or not right:
        return None
    best = None
    for place in left:
        index = bisect_left(right, place)
        for other in right[max(0, index - 1) : index + 1]:
            if best is None or abs(other - place) < best:
                best = abs(other - place)
    return best

"""How the words of a question stand in a text: close together, or one after the other as they were asked."""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kept.sessions.search.analysis import SPEAKER, WORD, base, clean, forms, speaker, stop_words
from kept.sessions.search.ranking import Line, Weights
from kept.sessions.search.terms import Held
from kept.sessions.sqlite.postings import Postings

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


class Likeness(Protocol):
    """A question's vector, held against those of the messages."""

    def nearest(self, allowed: Collection[int] | None) -> Mapping[int, float]:
        """Return the messages most like the question, among `allowed` where that is given."""
        ...

    def of(self, ids: Iterable[int]) -> Mapping[int, float]:
        """Return how much each of these messages is like the question."""
        ...


Asks: TypeAlias = Callable[[str], Likeness | None]
"""Makes the vector of a question; None where there is none to be had."""


def without_names(query: str, terms: Sequence[Held]) -> str:
    """Return the question without the names of people who speak: a name is like everything that they say."""
    names = [re.escape(held.text) for held in terms if held.speaking and not held.text.startswith(SPEAKER)]
    if not names:
        return query
    rest = re.sub(rf"\b(?:{'|'.join(names)})\b(?:['’]s\b)?", " ", query, flags=re.IGNORECASE)
    return " ".join(rest.split()) if re.search(r"\w", rest) else query


class Alikeness:
    """The likeness of the lines of one session, in their order."""

    def __init__(self, alike: Mapping[int, float], ids: Sequence[int], weights: Weights) -> None:
        self._alike = alike
        self._ids = ids
        self._place = {number: index for index, number in enumerate(ids)}
        self._weights = weights

    def of(self, line: Line, *, names_people: bool) -> float:
        """Return the likeness of a line: its own, and a share of the more alike of its neighbours."""
        use = self._weights
        place = self._place[line.message_id]
        near = max(self._at(place - 1), self._at(place + 1))
        own = self._at(place) + use.meaning_near * near
        return own if line.spoken or not names_people else use.meaning_other * own

    def _at(self, place: int) -> float:
        return self._alike.get(self._ids[place], 0.0) if 0 <= place < len(self._ids) else 0.0


def of_session(lines: Sequence[Line], weights: Weights) -> float:
    """Return the likeness of a session, from those of its lines."""
    best, second, *_ = *sorted((line.likeness for line in lines), reverse=True)[:2], 0.0, 0.0
    return best + weights.runner_up * second

"""The rank of facts for a question: term rarity, coverage, proximity, neighbouring facts, session and dates."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import exp, log

from msgspec import Struct

from wellkept.languages.dates import DATE_NAMES, DAY_SECONDS, Span, find_dates
from wellkept.providers.holographic.features import framing_words, question_words

MAX_WORDS = 24
_FRAMING = 0.35
"""The weight of a word that frames the question without naming its topic."""
_DATE_WORD = 0.35
"""The weight of a word of a date, because the date itself is compared too."""
_WORD = re.compile(r"[^\W_]+")

SATURATION = 1.0
"""The strength of the length normalisation."""
LENGTH = 0.6
"""The share of the length normalisation that depends on the fact's length (BM25's b)."""
RARITY = 0.5
"""The exponent of a term's idf relative to the rarest term of the question, in addition to its idf."""
NAME = 0.5
"""The factor for a term that is the name of a speaker: such names occur everywhere."""
COVERAGE = 0.8
"""The gain of a fact by the share of the question's weight that it contains."""
WHOLE = 0.7
"""The further gain of a fact that contains nearly all of it."""
CLOSENESS = 1.0
"""The gain of terms that are close to each other both in the question and in the fact."""
SPEAKER = 0.25
"""The share of the question's weight that a fact gains if its speaker is named in the question."""
BEFORE, AFTER, NEAR = 0.72, 0.6, 0.3
"""The shares of a term's weight for a fact whose predecessor, successor or second neighbour contains it."""
DOUBLED = 0.4
"""The reduction of that share if the fact contains the term itself."""
SESSION = 0.5
"""The gain from facts of the same session that contain the terms."""
SESSION_SATURATION = 2.0
"""The number of such facts at which their gain is half saturated."""
SESSION_LENGTH = 0.9
"""The share of that saturation that depends on the size of the session."""
DATE = 1.0
"""The share of the question's weight that a fact gains if it was stored on a date that the question names."""
DAYS_BEFORE, DAYS_AFTER = 1.0, 5.0
"""Days in which that gain falls to a third: people report events some days later, rarely earlier."""
FALLOFF = 100.0
"""The length in words beyond which the gains from neighbours and session decrease: a long fact has its own context."""
_FOLLOWING = ((1, 1.0), (2, 0.5))
"""Pairs of question terms that are compared, as (distance in the question, weight)."""
_BETWEEN = ((6, 0.2), (2, 0.5), (0, 1.0))
"""The gain by the number of words between the two in a fact, as (at most, gain)."""

FindNear = Callable[[tuple[str, str], int], Collection[int]]
"""Returns the ids of facts that contain two words with at most so many others between them."""


class Term(Struct, frozen=True):
    """A word of the question with its weight."""

    word: str
    given: float = 1.0
    names_date: bool = False
    """Whether it is a month, a weekday or a number in a date."""


class Reading(Struct, frozen=True):
    """A parsed question: its terms and the dates that it names."""

    terms: tuple[Term, ...]
    dates: tuple[Span, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words of the terms."""
        return tuple(term.word for term in self.terms)


def read(question: str, now: float) -> Reading:
    """Parse a question; relative dates are resolved from `now`."""
    dates = find_dates(question, now)
    date_words = frozenset(word for _, said in dates for word in _WORD.findall(said))
    terms = tuple(_term(word, date_words) for word in question_words(question)[:MAX_WORDS])
    return Reading(terms, tuple(span for span, _ in dates))


def _term(word: str, date_words: frozenset[str]) -> Term:
    if word in date_words:
        return Term(word, _DATE_WORD, names_date=word.isdigit() or word in DATE_NAMES)
    return Term(word, _FRAMING if word in framing_words() else 1.0)


class Extent(Struct, frozen=True):
    """The size of the store."""

    facts: int
    words: int
    sessions: Mapping[str, int]
    """The number of facts of each session."""


class Question(Struct, frozen=True):
    """A question with the weights of its terms in this store; term number n is bit n of a mask."""

    terms: tuple[Term, ...]
    """The terms that occur in some fact."""
    weights: tuple[float, ...]
    full_weight: float
    """The weight of the whole question; terms that occur in no fact count like the rarest term."""
    masks: Mapping[int, int]
    """The terms that each fact contains."""
    sessions: Mapping[str, Sequence[int]]
    """The number of facts of each session that contain each term."""
    reading: Reading

    @property
    def total(self) -> float:
        """Return the weight of the terms that occur in some fact."""
        return sum(self.weights)


class Place(Struct, frozen=True):
    """The features of a fact that the rank uses."""

    id: int
    length: int
    created: float = 0.0
    session_id: str = ""
    speaker: str | None = None
    sides: tuple[int, int, int, int] = (0, 0, 0, 0)
    """The terms in the facts of its session before, after, two before and two after it."""
    in_conversation: bool = False
    """Whether it is part of a conversation, so that neighbours alone may make it a hit."""


def weigh(reading: Reading, postings: Sequence[Mapping[int, str]], *, facts: int, names: frozenset[str]) -> Question:
    """Return the question with weighted terms; `postings` lists for each term its facts and their sessions."""
    held = [(term, found) for term, found in zip(reading.terms, postings, strict=True) if found]
    idf = [log(1.0 + (facts - min(facts, len(found)) + 0.5) / (len(found) + 0.5)) for _, found in held]
    rarest = max(idf, default=1.0)
    weights = tuple(
        term.given * value * (value / rarest) ** RARITY * (NAME if term.word in names else 1.0)
        for (term, _), value in zip(held, idf, strict=True)
    )
    unknown = sum(term.given for term, found in zip(reading.terms, postings, strict=True) if not found)
    masks: Counter[int] = Counter()
    sessions: dict[str, list[int]] = {}
    for number, (_, found) in enumerate(held):
        for fact in found:
            masks[fact] |= 1 << number
        for session, count in Counter(found.values()).items():
            sessions.setdefault(session, [0] * len(held))[number] = count
    full_weight = sum(weights) + unknown * max(weights, default=0.0)
    return Question(tuple(term for term, _ in held), weights, full_weight, masks, sessions, reading)


class Ranking:
    """Scores facts for one question; sums over sets of terms are cached, because few sets occur."""

    def __init__(self, question: Question, extent: Extent, *, names: frozenset[str]) -> None:
        self._question = question
        self._extent = extent
        self._total = question.total
        self._names = names
        self._dated = sum(1 << number for number, term in enumerate(question.terms) if term.names_date)
        self._mean_length = extent.words / max(1, extent.facts)
        self._mean_session = extent.facts / max(1, len(extent.sessions))
        self._sums: dict[int, float] = {}
        self._gains: dict[str, float] = {}

    def weight(self, mask: int) -> float:
        """Return the weight of the terms in `mask`."""
        if mask not in self._sums:
            self._sums[mask] = sum(weight for number, weight in enumerate(self._question.weights) if mask >> number & 1)
        return self._sums[mask]

    def own(self, fact_id: int, length: int) -> float:
        """Return the score of a fact's own terms: raised by coverage, lowered by length."""
        held = self.weight(self._question.masks.get(fact_id, 0))
        share = held / self._question.full_weight
        lift = 1.0 + COVERAGE * share**2 + WHOLE * share**8
        norm = 1.0 - LENGTH + LENGTH * length / self._mean_length
        return held * lift * (1.0 + SATURATION) / (1.0 + SATURATION * norm)

    def share(self, fact_id: int) -> float:
        """Return the share of the question's weight that a fact contains itself."""
        return self.weight(self._question.masks.get(fact_id, 0)) / self._total

    def score(self, place: Place) -> float:
        """Return the score of a fact; 0 if it is no hit."""
        own = self.own(place.id, place.length)
        if own == 0.0 and not place.in_conversation:
            return 0.0
        neighbours = self._neighbour_gain(place)
        if own + neighbours == 0.0:
            return 0.0
        around = neighbours + SESSION * self._session_gain(place.session_id)
        value = own + around * min(1.0, FALLOFF / place.length)
        if place.speaker in self._names:
            value += SPEAKER * self._total
        return value + DATE * self._total * self._date_match(place)

    def _neighbour_gain(self, place: Place) -> float:
        """Return the gain from neighbours: each term counts once, for the nearest, and less if the fact contains it."""
        before, after, *far = place.sides
        own = self._question.masks.get(place.id, 0)
        total, taken = 0.0, 0
        for mask, share in ((before, BEFORE), (after, AFTER), (far[0] | far[1], NEAR)):
            new = mask & ~taken
            total += share * (self.weight(new) - DOUBLED * self.weight(new & own))
            taken |= mask
        return total

    def _date_match(self, place: Place) -> float:
        """Return how well a fact matches a date of the question: stored on that day, or naming the date."""
        if not self._question.reading.dates:
            return 0.0
        named = self.weight(self._question.masks.get(place.id, 0) & self._dated) / (self.weight(self._dated) or 1.0)
        # squared, because a part of a date is a different date
        return max(named * named, *(_nearness(span, place.created) for span in self._question.reading.dates))

    def _session_gain(self, session: str) -> float:
        if not session:
            return 0.0
        if session not in self._gains:
            size = self._extent.sessions.get(session, 1)
            half = SESSION_SATURATION * (1.0 - SESSION_LENGTH + SESSION_LENGTH * size / self._mean_session)
            counts = self._question.sessions.get(session, ())
            self._gains[session] = sum(
                weight * count * (1.0 + SESSION_SATURATION) / (count + half)
                for weight, count in zip(self._question.weights, counts, strict=False)
            )
        return self._gains[session]


def best(scores: Mapping[int, float], limit: int) -> Sequence[int]:
    """Return the ids with the highest scores above 0, the older first among equals."""
    return sorted((fact for fact, score in scores.items() if score > 0), key=lambda fact: (-scores[fact], fact))[:limit]


def _nearness(span: Span, moment: float) -> float:
    """Return 1 inside `span`, and less with every day before or after it."""
    return exp(-span.distance(moment) / DAY_SECONDS / (DAYS_BEFORE if moment < span.start else DAYS_AFTER))


def closeness(question: Question, facts: Sequence[int], find_near: FindNear) -> dict[int, float]:
    """Return the gain of each fact by the proximity of terms that are neighbours in the question."""
    gains = dict.fromkeys(facts, 0.0)
    for left, right, share in _pairs(len(question.terms)):
        both = 1 << left | 1 << right
        holders = {fact for fact in facts if question.masks.get(fact, 0) & both == both}
        weight = share * min(question.weights[left], question.weights[right])
        words = question.terms[left].word, question.terms[right].word
        for fact, gain in _close(words, holders, find_near).items():
            gains[fact] += weight * gain
    return gains


def _close(words: tuple[str, str], holders: set[int], find_near: FindNear) -> dict[int, float]:
    found: dict[int, float] = {}
    for between, gain in _BETWEEN:
        if holders:
            holders = holders.intersection(find_near(words, between))
            found.update(dict.fromkeys(holders, gain))
    return found


def _pairs(count: int) -> Iterator[tuple[int, int, float]]:
    for step, share in _FOLLOWING:
        for left in range(count - step):
            yield left, left + step, share

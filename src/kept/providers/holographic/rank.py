"""The rank of facts for a question: words by rarity, coverage and closeness, what stands around them, and likeness."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

from kept.core.dates import DATE_NAMES, DAY_SECONDS, Span, find_dates
from kept.providers.holographic.features import asking_words, framing_words

MAX_WORDS = 24
_FRAMING = 0.35
"""How much a word counts that shapes the question more than it says what it is about."""
_DATE_WORD = 0.35
"""How much a word of a date counts: the date itself is compared as well."""
_WORD = re.compile(r"[^\W_]+")

SATURATION = 1.0
"""How much a long fact takes away from a match."""
LENGTH = 0.6
"""How fully the length of a fact is held against it."""
RARITY = 0.5
"""Power of a word's rarity beside the rarest word of the question, on top of its idf."""
NAME = 0.5
"""Share that is left of a word which is the name of a speaker: speakers are named everywhere."""
COVERAGE = 0.8
"""Gain of a fact that holds much of the question's weight, beside one that holds little."""
WHOLE = 0.7
"""Further gain of a fact that holds all of it."""
CLOSENESS = 1.0
"""Gain of words that stand side by side in the fact as they do in the question."""
SPEAKER = 0.25
"""Share of the question's weight that a fact gains when a person of the question says it."""
BEFORE, AFTER, NEAR = 0.72, 0.6, 0.3
"""Shares of a word that a fact gains when the one before, the one after, or one two steps away holds it."""
DOUBLED = 0.4
"""How much less that counts where the fact holds the word itself."""
SESSION = 0.5
"""Gain from the facts of the same session that hold the words."""
SESSION_SATURATION = 2.0
"""After how many such facts further ones count half."""
SESSION_LENGTH = 0.9
"""How fully the number of facts in a session is held against their count."""
DATE = 1.0
"""Share of the question's weight that a fact gains when it was told on a date that the question names."""
DAYS_BEFORE, DAYS_AFTER = 1.0, 5.0
"""Days in which that gain falls to a third: people tell what happened some days after it did, seldom before."""
FALLOFF = 100.0
"""Words of a fact from which on the gains of its surroundings fall: a long fact speaks for itself."""
_FOLLOWING = ((1, 1.0), (2, 0.5))
"""Which words of the question are looked at together, by how far they stand apart there, and what that counts."""
_BETWEEN = ((6, 0.2), (2, 0.5), (0, 1.0))
"""How many other words may stand between two, and what that counts."""

SideBySide = Callable[[tuple[str, str], int], Collection[int]]
"""Names the facts in which two words stand with at most so many others between them."""


@dataclass(frozen=True, slots=True)
class Term:
    """A word of the question, and how much it counts beside the others."""

    word: str
    given: float = 1.0
    names_date: bool = False
    """Whether it is a month, a weekday or a number of a date."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The terms of a question and the stretches of time that it names."""

    terms: tuple[Term, ...]
    dates: tuple[Span, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words of the terms."""
        return tuple(term.word for term in self.terms)


def read(question: str, now: float) -> Reading:
    """Return what is asked, seen from the moment `now`."""
    dates = find_dates(question, now)
    date_words = frozenset(word for _, said in dates for word in _WORD.findall(said))
    terms = tuple(_term(word, date_words) for word in asking_words(question)[:MAX_WORDS])
    return Reading(terms, tuple(span for span, _ in dates))


def _term(word: str, date_words: frozenset[str]) -> Term:
    if word in date_words:
        return Term(word, _DATE_WORD, names_date=word.isdigit() or word in DATE_NAMES)
    return Term(word, _FRAMING if word in framing_words() else 1.0)


@dataclass(frozen=True, slots=True)
class Extent:
    """How large the store is."""

    facts: int
    words: int
    sessions: Mapping[str, int]
    """How many facts each session has."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, weighed in this store; word number n is bit n of a mask."""

    terms: tuple[Term, ...]
    """The terms of the question that some fact holds."""
    weights: tuple[float, ...]
    asked: float
    """The weight of the whole question; a word that no fact holds would have been as rare as the rarest."""
    masks: Mapping[int, int]
    """Which of the words each fact holds."""
    sessions: Mapping[str, Sequence[int]]
    """How many facts of each session hold each word."""
    reading: Reading

    @property
    def total(self) -> float:
        """Return the weight of the words that some fact holds."""
        return sum(self.weights)


@dataclass(frozen=True, slots=True)
class Place:
    """A fact as the rank sees it."""

    id: int
    length: int
    created: float = 0.0
    session_id: str = ""
    speaker: str | None = None
    sides: tuple[int, int, int, int] = (0, 0, 0, 0)
    """The words that the facts of its session before, after, two before and two after it hold."""
    leans: bool = False
    """Whether it was said in a conversation, so that it may answer by what stands beside it alone."""


def weighed(reading: Reading, holding: Sequence[Mapping[int, str]], *, facts: int, names: frozenset[str]) -> Question:
    """Return the question made of the terms that some fact holds; `holding` has these facts and their sessions."""
    held = [(term, found) for term, found in zip(reading.terms, holding, strict=True) if found]
    idf = [log(1.0 + (facts - min(facts, len(found)) + 0.5) / (len(found) + 0.5)) for _, found in held]
    rarest = max(idf, default=1.0)
    weights = tuple(
        term.given * value * (value / rarest) ** RARITY * (NAME if term.word in names else 1.0)
        for (term, _), value in zip(held, idf, strict=True)
    )
    unknown = sum(term.given for term, found in zip(reading.terms, holding, strict=True) if not found)
    masks: Counter[int] = Counter()
    sessions: dict[str, list[int]] = {}
    for number, (_, found) in enumerate(held):
        for fact in found:
            masks[fact] |= 1 << number
        for session, count in Counter(found.values()).items():
            sessions.setdefault(session, [0] * len(held))[number] = count
    whole = sum(weights) + unknown * max(weights, default=0.0)
    return Question(tuple(term for term, _ in held), weights, whole, masks, sessions, reading)


class Ranking:
    """Scores facts for one question; what depends on sets of words only is kept, because few sets occur."""

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
        """Return the weight of the words in `mask`."""
        if mask not in self._sums:
            self._sums[mask] = sum(weight for number, weight in enumerate(self._question.weights) if mask >> number & 1)
        return self._sums[mask]

    def own(self, fact_id: int, length: int) -> float:
        """Return what a fact says by its own words: raised by coverage, lowered by length."""
        held = self.weight(self._question.masks.get(fact_id, 0))
        share = held / self._question.asked
        lift = 1.0 + COVERAGE * share**2 + WHOLE * share**8
        norm = 1.0 - LENGTH + LENGTH * length / self._mean_length
        return held * lift * (1.0 + SATURATION) / (1.0 + SATURATION * norm)

    def share(self, fact_id: int) -> float:
        """Return how much of the question a fact holds itself."""
        return self.weight(self._question.masks.get(fact_id, 0)) / self._total

    def score(self, place: Place) -> float:
        """Return how well a fact answers; 0 when nothing speaks for it."""
        own = self.own(place.id, place.length)
        if own == 0.0 and not place.leans:
            return 0.0
        beside = self._beside(place)
        if own + beside == 0.0:
            return 0.0
        around = beside + SESSION * self._session_gain(place.session_id)
        value = own + around * min(1.0, FALLOFF / place.length)
        if place.speaker in self._names:
            value += SPEAKER * self._total
        return value + DATE * self._total * self._date(place)

    def _beside(self, place: Place) -> float:
        """Return what its neighbours add: each word once, by the nearest, and less where the fact holds it itself."""
        before, after, *far = place.sides
        own = self._question.masks.get(place.id, 0)
        total, taken = 0.0, 0
        for mask, share in ((before, BEFORE), (after, AFTER), (far[0] | far[1], NEAR)):
            new = mask & ~taken
            total += share * (self.weight(new) - DOUBLED * self.weight(new & own))
            taken |= mask
        return total

    def _date(self, place: Place) -> float:
        """Return how near a fact is to a date of the question: told on it, or naming it in its words."""
        if not self._question.reading.dates:
            return 0.0
        named = self.weight(self._question.masks.get(place.id, 0) & self._dated) / (self.weight(self._dated) or 1.0)
        # a part of a date is another date
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
    """Return 1 inside `span`, less with every day before or after it."""
    return exp(-span.distance(moment) / DAY_SECONDS / (DAYS_BEFORE if moment < span.start else DAYS_AFTER))


def closeness(question: Question, facts: Sequence[int], side_by_side: SideBySide) -> dict[int, float]:
    """Return how close words that follow each other in the question stand in `facts`, in weight."""
    gains = dict.fromkeys(facts, 0.0)
    for left, right, share in _pairs(len(question.terms)):
        both = 1 << left | 1 << right
        holders = {fact for fact in facts if question.masks.get(fact, 0) & both == both}
        weight = share * min(question.weights[left], question.weights[right])
        words = question.terms[left].word, question.terms[right].word
        for fact, gain in _close(words, holders, side_by_side).items():
            gains[fact] += weight * gain
    return gains


def _close(words: tuple[str, str], holders: set[int], side_by_side: SideBySide) -> dict[int, float]:
    found: dict[int, float] = {}
    for between, gain in _BETWEEN:
        if holders:
            holders = holders.intersection(side_by_side(words, between))
            found.update(dict.fromkeys(holders, gain))
    return found


def _pairs(count: int) -> Iterator[tuple[int, int, float]]:
    for step, share in _FOLLOWING:
        for left in range(count - step):
            yield left, left + step, share

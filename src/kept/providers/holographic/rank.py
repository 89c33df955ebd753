"""The rank of facts for a question: words by rarity, coverage, what was said around them, and likeness."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log

SATURATION = 1.0
"""How much a long fact takes away from a match."""
LENGTH = 0.4
"""How fully the length of a fact is held against it."""
RARITY = 0.5
"""Power of a word's rarity beside the rarest word of the question, on top of its idf."""
NAME = 0.5
"""Share that is left of a word which is the name of a speaker: speakers are named everywhere."""
COVERAGE = 0.6
"""Gain of a fact that holds all of the question's weight."""
SPEAKER = 0.25
"""Share of the question's weight that a fact gains when a person of the question says it."""
BEFORE, AFTER, NEAR = 0.9, 0.6, 0.3
"""Shares of a word that something said gains when it was said just before, just after, or two steps away."""
DOUBLED = 0.5
"""How much less that counts where the fact holds the word itself."""
AREA = 1.0
"""Gain from words said in the same stretch of a conversation."""
AREA_FACTS = 8
AREA_SIDE = 0.5
AREA_SATURATION = 2.0


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, weighed in this store; word number n is bit n of a mask."""

    words: tuple[str, ...]
    """The words of the question that some fact holds."""
    weights: tuple[float, ...]
    names: frozenset[str]
    """Words that are names of speakers."""
    masks: Mapping[int, int]
    """Which of the words each fact holds."""
    average_length: float

    @property
    def total(self) -> float:
        """Return the weight of the whole question."""
        return sum(self.weights)


@dataclass(frozen=True, slots=True)
class Place:
    """A fact as the rank sees it."""

    id: int
    length: int
    speaker: str | None = None
    leans: bool = False
    """Whether it was said in a conversation, so that what stands beside it belongs to it."""


def weighed(
    holding: Mapping[str, Collection[int]], *, count: int, names: frozenset[str], average_length: float
) -> Question:
    """Return the question made of the words that some fact holds."""
    held = {word: ids for word, ids in holding.items() if ids}
    idf = {word: log(1.0 + (count - min(count, len(ids)) + 0.5) / (len(ids) + 0.5)) for word, ids in held.items()}
    rarest = max(idf.values(), default=1.0)
    weights = tuple(
        value * (value / rarest) ** RARITY * (NAME if word in names else 1.0) for word, value in idf.items()
    )
    masks: dict[int, int] = {}
    for number, ids in enumerate(held.values()):
        for fact in ids:
            masks[fact] = masks.get(fact, 0) | 1 << number
    return Question(tuple(held), weights, names, masks, average_length)


class Ranking:
    """Scores facts for one question."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._total = question.total
        self._asked = frozenset(question.words)
        self._sums: dict[int, float] = {}
        self._areas = self._counted_areas()
        self._gains: dict[int, float] = {}

    def weight(self, mask: int) -> float:
        """Return the weight of the words in `mask`."""
        if mask not in self._sums:
            self._sums[mask] = sum(weight for number, weight in enumerate(self._question.weights) if mask >> number & 1)
        return self._sums[mask]

    def own_weight(self, fact_id: int) -> float:
        """Return the weight of the words that a fact holds itself."""
        return self.weight(self._question.masks.get(fact_id, 0))

    def score(self, place: Place) -> float:
        """Return how well a fact answers; 0 when nothing speaks for it."""
        own = self.own_weight(place.id)
        if own == 0.0 and not place.leans:
            return 0.0
        length = 1.0 - LENGTH + LENGTH * place.length / self._question.average_length
        value = own * (1.0 + SATURATION) / (1.0 + SATURATION * length) + COVERAGE * own * own / self._total
        if place.speaker is not None and place.speaker in self._asked:
            value += SPEAKER * self._total
        if place.leans:
            value += self._said_around(place.id) + AREA * self._area_gain(place.id // AREA_FACTS)
        return value

    def _said_around(self, fact: int) -> float:
        """Return what its neighbours add: each word once, by the nearest, and less where the fact holds it itself."""
        held = self._question.masks.get
        before, after = held(fact - 1, 0), held(fact + 1, 0)
        near = held(fact - 2, 0) | held(fact + 2, 0)
        own = held(fact, 0)
        total, taken = 0.0, 0
        for mask, share in ((before, BEFORE), (after, AFTER), (near, NEAR)):
            new = mask & ~taken
            total += share * (self.weight(new & ~own) + DOUBLED * self.weight(new & own))
            taken |= mask
        return total

    def _counted_areas(self) -> dict[int, dict[int, int]]:
        """Return how many facts of each stretch hold each word that is no speaker's name."""
        wanted = [number for number, word in enumerate(self._question.words) if word not in self._question.names]
        counts: dict[int, dict[int, int]] = {number: {} for number in wanted}
        for fact, mask in self._question.masks.items():
            for number in wanted:
                if mask >> number & 1:
                    area = fact // AREA_FACTS
                    counts[number][area] = counts[number].get(area, 0) + 1
        return counts

    def _area_gain(self, area: int) -> float:
        if area not in self._gains:
            gain = 0.0
            for number, counts in self._areas.items():
                near = counts.get(area, 0) + AREA_SIDE * (counts.get(area - 1, 0) + counts.get(area + 1, 0))
                gain += self._question.weights[number] * near / (near + AREA_SATURATION)
            self._gains[area] = gain
        return self._gains[area]


def best(scores: Mapping[int, float], limit: int) -> Sequence[int]:
    """Return the ids with the highest scores above 0, the older first among equals."""
    return sorted((fact for fact, score in scores.items() if score > 0), key=lambda fact: (-scores[fact], fact))[:limit]

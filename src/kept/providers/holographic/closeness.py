"""Closeness: how near to each other the words of a question stand in the facts that hold them."""

from collections.abc import Callable, Collection, Iterator, Sequence

from kept.providers.holographic.rank import Question

_FOLLOWING = ((1, 1.0), (2, 0.5))
"""Which words of the question are looked at together, by how far they stand apart there, and what that counts."""
_BETWEEN = ((6, 0.2), (2, 0.5), (0, 1.0))
"""How many other words may stand between two, and what that counts."""

SideBySide = Callable[[tuple[str, str], int], Collection[int]]
"""Names the facts in which two words stand with at most so many others between them."""


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

"""The messages worth ranking: those that hold most of the question's weight, found without reading everything."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import combinations

from kept.sessions.rank import Ranking
from kept.sessions.sqlite.postings import Postings
from kept.sessions.sqlite.terms import Held

_BLOCK_BITS = 5
"""Messages stored together in blocks of 32 stand in for their session, which is not read yet."""
_NEIGHBOURHOOD = 20


@dataclass(frozen=True, slots=True)
class Budget:
    """How much one search may read."""

    postings: int = 150_000
    """Entries of term lists that are read whole, rarest term first."""
    per_list: int = 2_000
    """Entries of one list, or of one combination of lists, that are considered."""
    blocks: int = 150
    """Blocks of messages dense with the terms of which all messages are considered."""
    looked: int = 2_000
    """Messages whose length is looked up."""
    pool: int = 200
    """Messages whose rows are read."""
    sessions: int = 24
    """Sessions that are ranked line by line."""
    texts: int = 60
    """Messages whose text is read for closeness."""

    def for_limit(self, limit: int) -> "Budget":
        """Return a budget that fills lists of this length."""
        return replace(
            self,
            pool=max(self.pool, 12 * limit),
            sessions=max(self.sessions, limit + limit // 2),
            texts=max(self.texts, limit),
        )


EXHAUSTIVE = Budget(*[10**9] * 7)
"""Reads and ranks everything that matches, to measure the others by."""


def pool(
    postings: Postings, terms: Sequence[Held], ranking: Ranking, *, budget: Budget, allowed: Container[int] | None
) -> list[tuple[float, int]]:
    """Return the most promising messages with a first estimate of their score, best first."""
    masks = _masks(postings, terms, ranking, budget=budget, allowed=allowed)
    sets = [(1 << bit, held.members) for bit, held in enumerate(terms)]
    estimates = []
    lengths = postings.lengths(masks)
    for number, mask in masks.items():
        length = lengths.get(number, 1)
        near = ranking.neighbours(
            mask,
            _mask(number - 1, sets),
            _mask(number + 1, sets),
            around=_mask(number - 2, sets) | _mask(number + 2, sets),
        )
        estimates.append((ranking.base(mask, length) + ranking.falloff(length) * near, number))
    estimates.sort(reverse=True)
    lists = [(held.ids, term.weight) for held, term in zip(terms, ranking.terms, strict=True) if held.ids]
    best = [(near + _density(number, lists, ranking), number) for near, number in estimates[: budget.pool * 3]]
    best.sort(reverse=True)
    return best[: budget.pool]


def _mask(number: int, sets: Sequence[tuple[int, Container[int]]]) -> int:
    mask = 0
    for flag, members in sets:
        if number in members:
            mask |= flag
    return mask


def _density(number: int, lists: Sequence[tuple[list[int] | None, float]], ranking: Ranking) -> float:
    """Return what the messages stored around `number` say, as the session would."""
    use = ranking.weights
    gain = 0.0
    for ids, weight in lists:
        if ids is not None:
            start = bisect_left(ids, number - _NEIGHBOURHOOD)
            count = bisect_left(ids, number + _NEIGHBOURHOOD, start) - start
            gain += weight * count * (1.0 + use.session_saturation) / (count + use.session_saturation)
    return use.session * gain


def _masks(
    postings: Postings, terms: Sequence[Held], ranking: Ranking, *, budget: Budget, allowed: Container[int] | None
) -> dict[int, int]:
    """Return the messages to look at, and which terms each holds, as far as the budget reads."""
    left = budget.postings
    for held in sorted(terms, key=lambda held: held.holding):
        if held.ids is None and held.holding <= left:
            held.ids = postings.ids(held.expression)
        left -= len(held.ids or ())
    chosen = _chosen(postings, terms, ranking, budget=budget)
    if allowed is not None:
        chosen = {number for number in chosen if number in allowed}
    sets = [(1 << bit, held.members) for bit, held in enumerate(terms)]
    masks = {number: _mask(number, sets) for number in chosen}
    for number, flags in _common(postings, terms, budget=budget).items():
        if allowed is None or number in allowed:
            masks[number] = masks.get(number, 0) | flags
    if len(masks) <= budget.looked:
        return masks
    heaviest = nlargest(budget.looked, masks, key=lambda number: (ranking.sum(masks[number]), number))
    return {number: masks[number] for number in heaviest}


def _chosen(postings: Postings, terms: Sequence[Held], ranking: Ranking, *, budget: Budget) -> set[int]:
    """Return the messages of rare terms, those of two terms at once, and those where terms stand densely."""
    read = [(held, term.weight) for held, term in zip(terms, ranking.terms, strict=True) if held.ids]
    chosen: set[int] = set()
    long = []
    for held, weight in read:
        if len(held.members) <= budget.per_list:
            chosen |= held.members
        else:
            long.append((held, weight))
    for (one, _), (other, _) in combinations(read, 2):
        if len(one.members) > budget.per_list or len(other.members) > budget.per_list:
            chosen |= one.members & other.members
    if long:
        chosen.update(_dense(long, ranking, budget=budget))
        for held, _ in long if len(long) <= 2 else ():
            chosen.update(postings.newest_ids(held.strong, 2 * budget.per_list))
    return chosen


def _dense(lists: Sequence[tuple[Held, float]], ranking: Ranking, *, budget: Budget) -> Iterable[int]:
    """Yield the messages of the blocks that say most by the terms with long lists."""
    scores: dict[int, float] = {}
    use = ranking.weights
    for held, weight in lists:
        gains = [weight * n * (1.0 + use.session_saturation) / (n + use.session_saturation) for n in range(33)]
        for block, count in Counter([number >> _BLOCK_BITS for number in held.ids or ()]).items():
            scores[block] = scores.get(block, 0.0) + gains[count]
    for block in nlargest(budget.blocks, scores, key=scores.__getitem__):
        first = block << _BLOCK_BITS
        for held, _ in lists:
            ids = held.ids or []
            start = bisect_left(ids, first)
            yield from ids[start : bisect_left(ids, first + (1 << _BLOCK_BITS), start)]


def _common(postings: Postings, terms: Sequence[Held], *, budget: Budget) -> dict[int, int]:
    """Return messages that hold several of the terms too common to read, or one of them in few words."""
    common = sorted(
        ((bit, held) for bit, held in enumerate(terms) if held.ids is None), key=lambda item: item[1].holding
    )[:5]
    masks: dict[int, int] = {}
    for size in range(len(common), 1, -1):
        for group in combinations(common, size):
            expression = " AND ".join(held.expression for _, held in group)
            flags = sum(1 << bit for bit, _ in group)
            for number in postings.newest_ids(expression, budget.per_list):
                masks[number] = masks.get(number, 0) | flags
        if len(masks) >= budget.pool:
            return masks
    for bit, held in common:
        for number in postings.newest_ids(held.strong, budget.per_list):
            masks[number] = masks.get(number, 0) | 1 << bit
        for number in postings.newest_ids(held.expression, budget.pool):
            masks[number] = masks.get(number, 0) | 1 << bit
    return masks

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

_BLOCK = 32
"""Messages stored together stand in for their session, which is not read yet."""
_NEIGHBOURHOOD = 20
_FEW = 2
_SHORT = 8
"""Length that a short message is taken to have before its own is looked up."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much one search may read."""

    postings: int = 120_000
    """Entries of term lists that are read whole, rarest term first."""
    per_list: int = 2_000
    """Entries of one list, or of one combination of lists, that are considered."""
    blocks: int = 150
    """Blocks of messages dense with the terms of which all messages are considered."""
    looked: int = 1_500
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
    dense = _Dense(terms, ranking, shortest=budget.per_list)
    strong = _strong(postings, terms, budget=budget)
    chosen = _chosen(terms, budget=budget) | strong
    chosen.update(dense.messages(budget.blocks))
    if allowed is not None:
        chosen = {number for number in chosen if number in allowed}
    sets = [(1 << bit, held.members) for bit, held in enumerate(terms)]
    masks = {number: _mask(number, sets) for number in chosen}
    for number, flags in _common(postings, terms, budget=budget).items():
        if allowed is None or number in allowed:
            masks[number] = masks.get(number, 0) | flags
    if len(masks) <= budget.looked:
        return masks

    def promise(number: int) -> float:
        length = _SHORT if number in strong else int(postings.mean_length)
        return ranking.base(masks[number], length) + dense.score(number)

    return {number: masks[number] for number in nlargest(budget.looked, masks, key=promise)}


def _chosen(terms: Sequence[Held], *, budget: Budget) -> set[int]:
    """Return the messages of rare terms, and those that hold two terms; of too many, those that hold three."""
    chosen: set[int] = set()
    read = sorted((held.members for held in terms if held.ids), key=len)
    for members in read:
        if len(members) <= budget.per_list:
            chosen |= members
    pairs = [
        (place, one & other)
        for (_, one), (place, other) in combinations(enumerate(read), 2)
        if len(other) > budget.per_list
    ]
    if sum(len(both) for _, both in pairs) <= budget.looked:
        return chosen.union(*(both for _, both in pairs))
    for place, both in pairs:
        for third in read[place + 1 :]:
            chosen |= both & third
    for _, both in pairs:  # the rarest first, because the lists are in that order
        if len(chosen) >= budget.looked:
            break
        chosen |= both
    return chosen


def _strong(postings: Postings, terms: Sequence[Held], *, budget: Budget) -> set[int]:
    """Return the short messages of one or two terms with long lists; of more terms, pairs say more."""
    long = [held for held in terms if len(held.ids or ()) > budget.per_list]
    if len(long) > _FEW:
        return set()
    return {number for held in long for number in postings.newest_ids(held.strong, 5 * budget.per_list)}


class _Dense:
    """Blocks of messages and how much they say by one or two terms with long lists; of more, pairs say it."""

    def __init__(self, terms: Sequence[Held], ranking: Ranking, *, shortest: int) -> None:
        use = ranking.weights
        pairs = zip(terms, ranking.terms, strict=True)
        long = [(held.ids, term.weight) for held, term in pairs if held.ids and len(held.ids) > shortest]
        if len(long) > _FEW:
            long = []
        self._lists = [ids for ids, _ in long]
        self._scores: dict[int, float] = {}
        for ids, weight in long:
            full = use.session * weight * (1.0 + use.session_saturation)
            gains = [full * count / (count + use.session_saturation) for count in range(_BLOCK + 1)]
            counts = Counter([number // _BLOCK for number in ids])
            if self._scores:
                for block, count in counts.items():
                    self._scores[block] = self._scores.get(block, 0.0) + gains[count]
            else:
                self._scores = {block: gains[count] for block, count in counts.items()}

    def score(self, number: int) -> float:
        """Return what the block of a message says."""
        return self._scores.get(number // _BLOCK, 0.0)

    def messages(self, blocks: int) -> Iterable[int]:
        """Yield the messages of the blocks that say most."""
        for block in nlargest(blocks, self._scores, key=self._scores.__getitem__):
            for ids in self._lists:
                start = bisect_left(ids, block * _BLOCK)
                yield from ids[start : bisect_left(ids, (block + 1) * _BLOCK, start)]


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

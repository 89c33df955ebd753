"""The messages worth ranking: those that hold most of the question's weight, found without reading everything."""

from bisect import bisect_left
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import combinations

from kept.sessions.rank import Line, Ranking
from kept.sessions.sqlite.postings import Postings
from kept.sessions.sqlite.terms import Held

_NEIGHBOURHOOD = 20


@dataclass(frozen=True, slots=True)
class Budget:
    """How much one search may read."""

    postings: int = 60_000
    """Entries of term lists that are read whole, rarest term first."""
    per_list: int = 2_500
    """Newest entries that are read of a combination of common terms."""
    looked: int = 3_000
    """Messages whose length is looked up."""
    pool: int = 600
    """Messages whose rows are read."""
    sessions: int = 64
    """Sessions that are ranked line by line."""
    texts: int = 80
    """Messages whose text is read for closeness."""


EXHAUSTIVE = Budget(*[10**9] * 6)
"""Reads and ranks everything that matches, to measure the others by."""


def pool(
    postings: Postings, terms: Sequence[Held], ranking: Ranking, *, budget: Budget, allowed: Container[int] | None
) -> list[tuple[float, int]]:
    """Return the most promising messages with a first estimate of their score, best first."""
    masks = _masks(postings, terms, budget=budget)
    if allowed is not None:
        masks = {number: mask for number, mask in masks.items() if number in allowed}
    chosen = _heaviest(masks, ranking, budget.looked)
    lengths = postings.lengths(chosen)
    lists = [(held.ids, term.weight) for held, term in zip(terms, ranking.terms, strict=True) if held.ids]
    estimates = []
    for number in chosen:
        line = Line(
            number,
            masks[number],
            lengths.get(number, 1),
            before=masks.get(number - 1, 0),
            after=masks.get(number + 1, 0),
            around=masks.get(number - 2, 0) | masks.get(number + 2, 0),
        )
        near = ranking.base(line.mask, line.length) + ranking.falloff(line.length) * ranking.neighbours(line)
        estimates.append((near, number))
    estimates.sort(reverse=True)
    best = estimates[: max(budget.pool * 3, 1)]
    with_density = [(near + _density(number, lists, ranking), number) for near, number in best]
    with_density.sort(reverse=True)
    return with_density[: budget.pool]


def _density(number: int, lists: Sequence[tuple[list[int] | None, float]], ranking: Ranking) -> float:
    """Return what the messages stored around `number` say: a stand-in for its session, which is not read yet."""
    use = ranking.weights
    gain = 0.0
    for ids, weight in lists:
        if ids is None:
            continue
        start = bisect_left(ids, number - _NEIGHBOURHOOD)
        count = bisect_left(ids, number + _NEIGHBOURHOOD, start) - start
        gain += weight * count * (1.0 + use.session_saturation) / (count + use.session_saturation)
    return use.session * gain


def _masks(postings: Postings, terms: Sequence[Held], *, budget: Budget) -> dict[int, int]:
    """Return which terms each message holds, as far as the budget reads; the lists read are kept in `terms`."""
    masks: dict[int, int] = {}
    left = budget.postings
    common: list[tuple[int, Held]] = []
    for bit, held in sorted(enumerate(terms), key=lambda item: item[1].holding):
        if held.ids is None and held.holding > left:
            common.append((bit, held))
            continue
        if held.ids is None:
            held.ids = postings.ids(held.expression)
        left -= len(held.ids)
        flag = 1 << bit
        for number in held.ids:
            masks[number] = masks.get(number, 0) | flag
    if common:
        _add_common(postings, common, masks, budget)
    return masks


def _add_common(postings: Postings, common: Sequence[tuple[int, Held]], masks: dict[int, int], budget: Budget) -> None:
    """Add messages that hold several common terms, or one in few words; these are where common terms say most."""
    wanted = budget.pool
    rarest = common[:5]
    for size in range(len(rarest), 1, -1):
        before = len(masks)
        for group in combinations(rarest, size):
            expression = " AND ".join(held.expression for _, held in group)
            flags = sum(1 << bit for bit, _ in group)
            for number in postings.newest_ids(expression, budget.per_list):
                masks[number] = masks.get(number, 0) | flags
        wanted -= len(masks) - before
        if wanted <= 0:
            break
    for bit, held in common if len(common) == 1 or wanted > 0 else ():
        for expression in (held.strong, held.expression):
            for number in postings.newest_ids(expression, budget.per_list):
                masks[number] = masks.get(number, 0) | 1 << bit


def _heaviest(masks: dict[int, int], ranking: Ranking, limit: int) -> list[int]:
    """Return up to `limit` messages, those whose terms weigh most first, the newest first among equals."""
    if len(masks) <= limit:
        return list(masks)
    by_mask: dict[int, list[int]] = {}
    for number, mask in masks.items():
        by_mask.setdefault(mask, []).append(number)
    chosen: list[int] = []
    for mask in sorted(by_mask, key=ranking.sum, reverse=True):
        room = limit - len(chosen)
        if room <= 0:
            break
        group = by_mask[mask]
        chosen += group if len(group) <= room else sorted(group, reverse=True)[:room]
    return chosen

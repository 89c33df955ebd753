"""The messages worth ranking: those that hold most of the question's weight, found without reading everything."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import combinations

from kept.sessions.search.ranking import Ranking
from kept.sessions.search.terms import PREFIX_LIMIT, Held
from kept.sessions.sqlite.postings import Postings

_BLOCK_BITS = 5
_BLOCK = 1 << _BLOCK_BITS
"""Messages stored together stand in for their session, which is not read yet."""
_NEIGHBOURHOOD = 20
_FULLEST = 600
"""Blocks whose weight is looked at closely."""
_HEAVIEST = 4
_COMMON = 15_000
_ALL_ASKED = 6_000
"""Messages up to which all for which an explicit condition holds are considered."""
_TOO_LONG = 60_000
"""Length from which on a list is not read whole beside rarer ones."""
_RARE = 400
"""Messages up to which those that hold a term are told apart with as little as those that hold several."""
_FEW = 2
_SHORT = 8
"""Length that a short message is taken to have before its own is looked up."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much one search may read."""

    postings: int = 70_000
    """Entries of term lists that are read whole, rarest term first."""
    per_list: int = 1_500
    """Entries of one list, or of one combination of lists, that are considered."""
    blocks: int = 150
    """Blocks of messages dense with the terms of which all messages are considered."""
    looked: int = 1_500
    """Messages whose length is looked up."""
    pool: int = 200
    """Messages whose rows are read."""
    sessions: int = 32
    """Sessions that are ranked line by line."""
    texts: int = 60
    """Messages whose text is read for closeness."""
    asked: int = 30_000
    """Messages for which an explicit condition may hold that are considered, newest first."""

    def fitting(self, limit: int, documents: int, *, held: Sequence[int] = ()) -> "Budget":
        """Return a budget that fills lists of this length from a store of this size.

        `held` says how many messages hold each term. What holds one common term differs by little, so that more of it
        is looked at.
        """
        is_one_common = len(held) == 1 and held[0] > _RARE
        large = min(1.0, documents * (4 if is_one_common else 1) / LARGE)
        return replace(
            self,
            looked=round(self.looked * (0.33 + 0.67 * large)),
            pool=max(round(self.pool * (0.7 + 0.3 * large)), 12 * limit),
            sessions=max(self.sessions - round(16 * (1.0 - large)), limit + limit // 2),
            texts=max(round(self.texts * (0.6 + 0.4 * large)), limit),
        )


LARGE = 1_000_000
"""Messages from which on the whole budget is used; among fewer the best are found with less."""
EXHAUSTIVE = Budget(*[10**9] * 8)
"""Reads and ranks everything that matches, to measure the others by."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where to look: the messages that the filters leave, and those for which an explicit condition holds."""

    messages: frozenset[int] | range | None = None
    asked: AbstractSet[int] | None = None
    expression: str = ""
    """What finds at least the messages that are asked for."""
    is_filtered: bool = False
    """Whether there are filters besides, so that the newest messages may all be taken away."""


def pool(
    postings: Postings, terms: Sequence[Held], ranking: Ranking, *, budget: Budget, scope: Scope
) -> list[tuple[float, int]]:
    """Return the most promising messages with a first estimate of their score, best first."""
    if scope.asked is not None and len(scope.asked) <= _ALL_ASKED:
        _read_asked(postings, terms, budget=budget, scope=scope)
        dense, strong = _Dense([], ranking, shortest=0), set[int]()
        masks = _held_by(terms, scope.asked)
    else:
        _read(postings, terms, budget=budget, scope=scope)
        dense = _Dense(_weighted(terms, ranking), ranking, shortest=budget.per_list)
        strong = _strong(postings, terms, budget=budget)
        masks = _masks(postings, terms, chosen=strong.union(dense.messages(budget.blocks)), budget=budget)
        if scope.asked is not None:
            masks = {number: mask for number, mask in masks.items() if number in scope.asked}
    looked = _promising(masks, ranking, dense=dense, strong=strong, budget=budget, length=int(postings.mean_length))
    lengths = postings.lengths(looked)
    near = _neighbours(looked, masks, terms=terms, ranking=ranking)
    estimates = []
    for number in looked:
        length = lengths.get(number, 1)
        estimate = ranking.base(masks[number], length)
        if number in near:
            estimate += ranking.falloff(length) * near[number]
        estimates.append((estimate, number))
    estimates.sort(reverse=True)
    estimates = estimates[: budget.pool + budget.pool // 2]
    estimates += _between(masks, [number for _, number in estimates[: budget.pool // 2]], ranking)
    around = _density([number for _, number in estimates], _weighted(terms, ranking), ranking)
    best = [(score + around[number], number) for score, number in estimates]
    best.sort(reverse=True)
    return best[: budget.pool]


def _between(masks: Mapping[int, int], best: Sequence[int], ranking: Ranking) -> list[tuple[float, int]]:
    """Return the messages next to the best that hold no term themselves: answers in other words."""
    get = masks.get
    beside = {near for number in best for near in (number - 1, number + 1) if near not in masks}
    return [
        (
            ranking.neighbours(
                0, get(number - 1, 0), get(number + 1, 0), around=get(number - 2, 0) | get(number + 2, 0)
            ),
            number,
        )
        for number in beside
    ]


def _read(postings: Postings, terms: Sequence[Held], *, budget: Budget, scope: Scope) -> None:
    """Read the lists of the rarest terms as far as the budget goes; inside a scope only what lies there."""
    left = budget.postings * (2 if len(terms) == 1 else 1)  # one list alone costs no intersections
    read: list[Held] = []
    for held in sorted(terms, key=lambda held: held.holding):
        is_common = held.holding > max(_TOO_LONG, budget.per_list) and len(read) >= _FEW
        if held.ids is None and scope.messages is not None:
            held.ids = postings.ids_between(
                held.expression, min(scope.messages, default=0), max(scope.messages, default=0)
            )
        elif held.ids is None and held.newest is not None:
            held.ids = held.newest if not scope.is_filtered else postings.newest_ids(held.expression, PREFIX_LIMIT)
        elif held.ids is None and is_common:
            # beside rarer terms it matters only where it stands with one of them
            rarer = " OR ".join(f"({other.expression})" for other in read)
            held.beside = postings.ids(f"{held.expression} AND ({rarer})")
        elif held.ids is None and held.holding <= left:
            held.ids = postings.ids(held.expression)
        if held.ids is not None:
            left -= len(held.ids)
            read.append(held)
            if scope.messages is not None:
                held.ids = [number for number in held.ids if number in scope.messages]


def _read_asked(postings: Postings, terms: Sequence[Held], *, budget: Budget, scope: Scope) -> None:
    """Read of each list what an explicit condition leaves of it; short lists whole."""
    first, last = min(scope.asked or (), default=0), max(scope.asked or (), default=0)
    for held in terms:
        if held.ids is None and held.holding <= max(_ALL_ASKED, budget.per_list):
            held.ids = postings.ids(held.expression)
        elif held.ids is None:
            held.beside = postings.ids_between(f"({scope.expression}) AND {held.expression}", first, last)


def _promising(
    masks: Mapping[int, int],
    ranking: Ranking,
    *,
    dense: "_Dense",
    strong: Container[int],
    budget: Budget,
    length: int,
) -> list[int]:
    """Return the messages whose length is worth looking up: by their terms, those beside them and their block."""
    if len(masks) <= budget.looked:
        return list(masks)
    get, said = masks.get, dense.scores({number >> _BLOCK_BITS for number in masks})
    short = {mask: ranking.base(mask, _SHORT) for mask in set(masks.values())}
    usual = {mask: ranking.base(mask, length) for mask in short}
    share, total = ranking.weights.next, ranking.sum
    promises = []
    for number, mask in masks.items():
        promise = (short[mask] if number in strong else usual[mask]) + said[number >> _BLOCK_BITS]
        beside = (get(number - 1, 0) | get(number + 1, 0)) & ~mask
        promises.append((promise + share * total(beside) if beside else promise, number))
    promises.sort(reverse=True)
    return [number for _, number in promises[: budget.looked]]


def _neighbours(
    looked: Sequence[int], masks: Mapping[int, int], *, terms: Sequence[Held], ranking: Ranking
) -> dict[int, float]:
    """Return what the messages stored next to each one say, where they say anything."""
    if len(terms) <= _FEW:
        # of few terms the lists themselves can be asked, and they know more
        beside = {number + step for step in (-2, -1, 1, 2) for number in looked}
        masks = {**_held_by(terms, beside.difference(masks)), **masks}
    get, gain = masks.get, ranking.neighbours
    near = {}
    for number in looked:
        before, after, around = get(number - 1, 0), get(number + 1, 0), get(number - 2, 0) | get(number + 2, 0)
        if before or after or around:
            near[number] = gain(masks[number], before, after, around=around)
    return near


def _density(numbers: Sequence[int], lists: Sequence[tuple[list[int], float]], ranking: Ranking) -> dict[int, float]:
    """Return what the messages stored around each one say, as the session would."""
    return _said([(number, number - _NEIGHBOURHOOD, number + _NEIGHBOURHOOD) for number in numbers], lists, ranking)


def _weighted(terms: Sequence[Held], ranking: Ranking) -> list[tuple[list[int], float]]:
    """Return the lists that were read whole, the shortest first, with the weights of their terms."""
    pairs = zip(terms, ranking.terms, strict=True)
    return sorted(((held.ids, term.weight) for held, term in pairs if held.ids), key=lambda item: len(item[0]))


def _masks(postings: Postings, terms: Sequence[Held], *, chosen: set[int], budget: Budget) -> dict[int, int]:
    """Return the messages to consider, and which terms each holds, as far as the lists were read."""
    masks = _held_by(terms, chosen | _chosen(terms, budget=budget))
    for number, flags in _common(postings, terms, budget=budget).items():
        masks[number] = masks.get(number, 0) | flags
    return masks


def _held_by(terms: Sequence[Held], numbers: AbstractSet[int]) -> dict[int, int]:
    """Return which terms each of these messages holds, as far as the lists were read."""
    masks = dict.fromkeys(numbers, 0)
    for bit, held in enumerate(terms):
        flag = 1 << bit
        for number in held.members & numbers:
            masks[number] |= flag
    return masks


def _chosen(terms: Sequence[Held], *, budget: Budget) -> set[int]:
    """Return the messages of rare terms, and those that hold two terms; of too many, those that hold three."""
    chosen: set[int] = set()
    read = sorted((held.members for held in terms if held.members), key=len)
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
    """Blocks of messages and how much they say as sessions would; read only where some term has a long list."""

    def __init__(self, lists: Sequence[tuple[list[int], float]], ranking: Ranking, *, shortest: int) -> None:
        read = lists if lists and len(lists[-1][0]) > shortest else []
        # beside rarer terms, one very common says little and costs most
        counted = [*read[:1], *(item for item in read[1:] if len(item[0]) <= _COMMON)]
        use = ranking.weights
        self._lists = [ids for ids, _ in read]
        self._hits = _hits(counted)
        spans = [(block, block << _BLOCK_BITS, (block + 1) << _BLOCK_BITS) for block in _fullest(self._hits)]
        self._scores = _said(spans, counted, ranking)
        full = use.session * (1.0 + use.session_saturation) * min((weight for _, weight in counted), default=0.0)
        self._gains = [full * count / (count + use.session_saturation) for count in range(_BLOCK + 1)]

    def scores(self, blocks: AbstractSet[int]) -> dict[int, float]:
        """Return what each block says; of the less full ones as if all hits were of the lightest term."""
        gains, hits = self._gains, self._hits.get
        return {block: gains[min(hits(block, 0), _BLOCK)] for block in blocks} | self._scores

    def messages(self, blocks: int) -> Iterable[int]:
        """Yield the messages of the blocks that say most."""
        for block in sorted(self._scores, key=self._scores.__getitem__, reverse=True)[:blocks]:
            first = block << _BLOCK_BITS
            for ids in self._lists:
                start = bisect_left(ids, first)
                yield from ids[start : bisect_left(ids, first + _BLOCK, start)]


def _hits(lists: Sequence[tuple[list[int], float]]) -> Counter[int]:
    """Return the hits in each block; those of a term count as often as it outweighs the lightest."""
    hits: Counter[int] = Counter()
    lightest = min((weight for _, weight in lists), default=0.0) or 1.0
    for ids, weight in lists:
        times = max(1, min(_HEAVIEST, round(weight / lightest)))
        hits.update([number >> _BLOCK_BITS for number in ids] * times)
    return hits


def _fullest(hits: Counter[int]) -> Sequence[int]:
    """Return the blocks with most hits."""
    if len(hits) <= _FULLEST:
        return list(hits)
    floor, left = 0, _FULLEST
    for count, blocks in sorted(Counter(hits.values()).items(), reverse=True):
        floor, left = count, left - blocks
        if left <= 0:
            break
    full = [(count, block) for block, count in hits.items() if count >= floor]
    above = [block for count, block in full if count > floor]
    even = [block for count, block in full if count == floor]
    return above + even[len(above) - _FULLEST :]


def _said(
    spans: Sequence[tuple[int, int, int]], lists: Sequence[tuple[list[int], float]], ranking: Ranking
) -> dict[int, float]:
    """Return what the messages of each span (its name, its start, its end) say, as a session would."""
    use = ranking.weights
    half, full = use.session_saturation, use.session * (1.0 + use.session_saturation)
    said = dict.fromkeys([name for name, _, _ in spans], 0.0)
    for ids, weight in lists:
        size = len(ids)
        for name, first, end in spans:
            start = bisect_left(ids, first)
            if start < size and ids[start] < end:
                count = bisect_left(ids, end, start) - start
                said[name] += full * weight * count / (count + half)
    return said


def _common(postings: Postings, terms: Sequence[Held], *, budget: Budget) -> dict[int, int]:
    """Return messages that hold several of the terms too common to read, or one of them in few words."""
    common = sorted(
        ((bit, held) for bit, held in enumerate(terms) if held.ids is None and held.beside is None),
        key=lambda item: item[1].holding,
    )[:5]
    masks = _together(postings, common, budget=budget)
    if len(masks) < budget.pool:
        for bit, held in common:
            for number in postings.newest_ids(held.strong, budget.per_list):
                masks[number] = masks.get(number, 0) | 1 << bit
            for number in postings.newest_ids(held.expression, budget.pool):
                masks[number] = masks.get(number, 0) | 1 << bit
    for bit, held in common:
        held.beside = sorted(number for number, mask in masks.items() if mask >> bit & 1)
    return masks


def _together(postings: Postings, common: Sequence[tuple[int, Held]], *, budget: Budget) -> dict[int, int]:
    """Return the newest messages that hold as many of these terms as possible, two at least."""
    masks: dict[int, int] = {}
    for size in range(len(common), 1, -1):
        for group in combinations(common, size):
            expression = " AND ".join(held.expression for _, held in group)
            flags = sum(1 << bit for bit, _ in group)
            for number in postings.newest_ids(expression, budget.per_list):
                masks[number] = masks.get(number, 0) | flags
        if len(masks) >= budget.pool:
            break
    return masks

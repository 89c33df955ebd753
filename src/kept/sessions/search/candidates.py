"""The candidates of a search: messages that contain most of the question, found without reading everything."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations

from kept.core.values import dataclass, replace, unguarded
from kept.sessions.search.filters import ALL_MATCHING, Scope
from kept.sessions.search.postings import AllOf, AnyOf, Postings
from kept.sessions.search.ranking import Ranking
from kept.sessions.search.terms import PREFIX_LIMIT, PostingList

_BLOCK_BITS = 5
_BLOCK = 1 << _BLOCK_BITS
"""Messages with neighbouring ids; a block approximates a session, whose rows are not read yet."""
_NEIGHBOURHOOD = 20
_FULLEST = 450
"""Blocks with most hits, whose scores are computed exactly."""
_HEAVIEST = 4
"""How many times a hit of a heavy term counts at most."""
_COMMON = 15_000
"""Length from which on a list does not help to tell blocks apart."""
_TOO_LONG = 60_000
"""Length from which on a list is read only where it meets rarer ones."""
_RARE = 400
"""Frequency up to which one term alone needs no larger budget than several."""
_FEW_TERMS = 2
_COMMON_TERMS = 5
"""Terms with lists too long to read of which combinations are looked up."""
_SMALL, _SMALL_TEXTS = 10_000, 100
"""Messages of a store whose short lists leave time to read more texts, and how many: turn hit@10 gains 0 to 0.9."""
_MIDDLE = 100_000
"""Messages of a store up to which fewer candidates find the same: at 20,000, half of them 9.6 of the ten best."""
_SHORT = 8
"""Assumed length of a short message before its own is looked up."""


@unguarded
@dataclass(frozen=True, slots=True)
class Budget:
    """How much one search may read."""

    postings: int = 70_000
    """Entries of posting lists that are read in full, rarest term first."""
    per_list: int = 1_500
    """Entries of one list, or of one combination of lists, that are considered."""
    blocks: int = 150
    """Blocks with the highest scores, whose hits all become candidates."""
    looked: int = 1_500
    """Messages whose length is looked up."""
    pool: int = 165
    """Messages whose rows are read."""
    sessions: int = 20
    """Sessions that are ranked line by line."""
    texts: int = 54
    """Messages whose text is read for proximity."""
    matching: int = 30_000
    """Messages that may fulfil an explicit condition and are tested, newest first."""

    def fitting(self, limit: int, documents: int, *, frequencies: Sequence[int] = ()) -> "Budget":
        """Return a budget that fills a result of `limit` entries from a store of `documents` messages.

        `frequencies` are those of the terms: messages with one common term differ little, so more are looked at.
        """
        is_one_common = len(frequencies) == 1 and frequencies[0] > _RARE
        large = min(0.4, documents * 4 / LARGE) if is_one_common else min(1.0, documents / LARGE)
        middle = min(1.0, documents / _MIDDLE) if documents > _SMALL and not is_one_common else 1.0
        return replace(
            self,
            looked=round(self.looked * (0.13 + 0.2 * middle + 0.67 * large)),
            pool=max(round(self.pool * (0.35 + 0.5 * middle + 0.15 * large)), 6 * limit),
            sessions=max(self.sessions - round(5 * (1.0 - middle) + 4 * (1.0 - large)), limit),
            texts=max(_SMALL_TEXTS if documents <= _SMALL else round(self.texts * (0.89 + 0.11 * large)), limit),
        )

    def most_lines(self, limit: int) -> int:
        """Return how many lines are scored with their rows, to find `limit` of them."""
        return max(self.texts * 2, limit * 4)


DEFAULT_BUDGET = Budget()
LARGE = 1_000_000
"""Messages from which on the whole budget is used; in smaller stores less finds the same."""
EXHAUSTIVE = Budget(*[10**9] * 8)
"""Reads and ranks everything that matches: the reference for measurements."""


def read_lists(postings: Postings, terms: Sequence[PostingList], *, budget: Budget, scope: Scope) -> None:
    """Read the posting lists of the terms, as far as the budget allows and the condition needs them."""
    if scope.matching is not None:
        for term in terms:
            if term.text in scope.required:  # no other messages count: what fulfils the condition is looked for
                term.ids = sorted(scope.matching)
    if scope.is_small:
        _read_matching(postings, terms, budget=budget, scope=scope)
    else:
        _read_within_budget(postings, terms, budget=budget, scope=scope)


def list_few(terms: Sequence[PostingList], scope: Scope, *, most: int) -> AbstractSet[int] | None:
    """Return every message that may be found by its own words if they are at most `most`, else None.

    All of them can be ranked then, so that no candidates have to be chosen. The lists have been read.
    """
    if scope.matching is not None:
        return scope.matching if len(scope.matching) <= most else None
    lists = [term.ids for term in terms if term.ids is not None]
    if len(lists) < len(terms) or max(map(len, lists)) > most:
        return None
    hits = set().union(*lists)
    return hits if len(hits) <= most else None


def find_candidates(
    postings: Postings, terms: Sequence[PostingList], ranking: Ranking, *, budget: Budget, scope: Scope
) -> list[tuple[float, int]]:
    """Return the most promising messages with a first estimate of their scores, best first; the lists are read."""
    if scope.is_small:
        dense, strong = _Blocks([], ranking, shortest=0), set[int]()
        masks = _term_masks(terms, scope.matching or set())
    else:
        dense = _Blocks(_pair_with_weights(terms, ranking), ranking, shortest=budget.per_list)
        strong = _short_messages(postings, terms, budget=budget)
        masks = _masks(postings, terms, chosen=strong.union(dense.messages(budget.blocks)), budget=budget)
        if scope.matching is not None:
            masks = {number: mask for number, mask in masks.items() if number in scope.matching}
    looked = _promising(masks, terms, ranking, dense=dense, strong=strong, budget=budget)
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
    if not scope.needs_term and scope.matching is None:
        estimates += _answers_between(masks, [number for _, number in estimates[: budget.pool // 2]], ranking)
    around = _density([number for _, number in estimates], _pair_with_weights(terms, ranking), ranking)
    best = [(score + around[number], number) for score, number in estimates]
    best.sort(reverse=True)
    return best[: budget.pool]


def _answers_between(masks: Mapping[int, int], best: Sequence[int], ranking: Ranking) -> list[tuple[float, int]]:
    """Return the neighbours of the best messages that contain no term: answers in other words."""
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


def _read_within_budget(postings: Postings, terms: Sequence[PostingList], *, budget: Budget, scope: Scope) -> None:
    """Read the lists of the rarest terms within the budget, restricted to the messages that the filters leave."""
    left = budget.postings * (2 if len(terms) == 1 else 1)  # one list alone costs no intersections
    read: list[PostingList] = []
    for term in sorted(terms, key=lambda term: term.frequency):
        is_common = term.frequency > max(_TOO_LONG, budget.per_list) and len(read) >= _FEW_TERMS
        if term.ids is None and scope.messages is not None:
            term.ids = postings.ids_between(term.lookup, *scope.span)
        elif term.ids is None and term.newest is not None:
            term.ids = term.newest if not scope.is_filtered else postings.newest_ids(term.lookup, PREFIX_LIMIT)
        elif term.ids is None and is_common:
            # with rarer terms in the question, it matters only where it occurs together with one of them
            rarer = AnyOf(tuple(other.lookup for other in read))
            term.partial = postings.ids(AllOf((term.lookup, rarer)))
        elif term.ids is None and term.frequency <= left:
            term.ids = postings.ids(term.lookup)
        if term.ids is not None:
            left -= len(term.ids)
            read.append(term)
            if scope.messages is not None:
                term.ids = [number for number in term.ids if number in scope.messages]


def _read_matching(postings: Postings, terms: Sequence[PostingList], *, budget: Budget, scope: Scope) -> None:
    """Read the part of each list that fulfils the explicit condition; short lists in full."""
    assert scope.lookup is not None
    first, last = min(scope.matching or (), default=0), max(scope.matching or (), default=0)
    for term in terms:
        if term.ids is None and term.frequency <= max(ALL_MATCHING, budget.per_list):
            term.ids = postings.ids(term.lookup)
        elif term.ids is None:
            term.partial = postings.ids_between(AllOf((scope.lookup, term.lookup)), first, last)


def _promising(
    masks: Mapping[int, int],
    terms: Sequence[PostingList],
    ranking: Ranking,
    *,
    dense: "_Blocks",
    strong: Container[int],
    budget: Budget,
) -> list[int]:
    """Return the messages whose length is worth looking up: by their terms, their neighbours and their block."""
    if len(masks) <= budget.looked:
        return list(masks)
    said = dense.scores({number >> _BLOCK_BITS for number in masks})
    short = {mask: ranking.base(mask, _SHORT) for mask in set(masks.values())}
    usual = {mask: ranking.base(mask, int(ranking.mean_length)) for mask in short}
    get, gain = _mask_lookup(masks, terms), ranking.neighbours
    promises = {}
    for number, mask in masks.items():
        promise = (short[mask] if number in strong else usual[mask]) + said[number >> _BLOCK_BITS]
        before, after = get(number - 1, 0), get(number + 1, 0)
        promises[number] = promise + gain(mask, before, after, around=0) if before or after else promise
    # sorted twice, because tuples take three times as long: the newest first among equal ones
    return sorted(sorted(promises, reverse=True), key=promises.__getitem__, reverse=True)[: budget.looked]


def _mask_lookup(masks: Mapping[int, int], terms: Sequence[PostingList]) -> Callable[[int, int], int]:
    """Return what tells the terms of a message beside a candidate; of a single term the whole list may be known."""
    if len(terms) != 1 or terms[0].ids is None:
        return masks.get
    held = terms[0].members
    return lambda number, _: number in held


def _neighbours(
    looked: Sequence[int], masks: Mapping[int, int], *, terms: Sequence[PostingList], ranking: Ranking
) -> dict[int, float]:
    """Return the gain of each message from its neighbours, where there is any."""
    if len(terms) == _FEW_TERMS:
        # their neighbours are looked up in the full lists; those of one term always are
        masks = _term_masks(terms, {number + step for step in (-2, -1, 0, 1, 2) for number in looked})
    get, gain = _mask_lookup(masks, terms), ranking.neighbours
    near = {}
    for number in looked:
        before, after, around = get(number - 1, 0), get(number + 1, 0), get(number - 2, 0) | get(number + 2, 0)
        if before or after or around:
            near[number] = gain(masks[number], before, after, around=around)
    return near


def _density(numbers: Sequence[int], lists: Sequence[tuple[list[int], float]], ranking: Ranking) -> dict[int, float]:
    """Return the gain of each message from those stored around it, which approximates its session's."""
    return _span_scores(
        [(number, number - _NEIGHBOURHOOD, number + _NEIGHBOURHOOD) for number in numbers], lists, ranking
    )


def _pair_with_weights(terms: Sequence[PostingList], ranking: Ranking) -> list[tuple[list[int], float]]:
    """Return the lists that were read in full, shortest first, with the weights of their terms."""
    pairs = zip(terms, ranking.terms, strict=True)
    return sorted(((term.ids, ranked.weight) for term, ranked in pairs if term.ids), key=lambda item: len(item[0]))


def _masks(postings: Postings, terms: Sequence[PostingList], *, chosen: set[int], budget: Budget) -> dict[int, int]:
    """Return the messages to consider, each with the terms it contains as bits."""
    masks = _term_masks(terms, chosen | _intersect(terms, budget=budget))
    for number, flags in _common_terms(postings, terms, budget=budget).items():
        masks[number] = masks.get(number, 0) | flags
    return masks


def _term_masks(terms: Sequence[PostingList], numbers: AbstractSet[int]) -> dict[int, int]:
    """Return which terms each of these messages contains, as far as the lists were read."""
    masks = dict.fromkeys(numbers, 0)
    for bit, term in enumerate(terms):
        flag = 1 << bit
        for number in term.members & numbers:
            masks[number] |= flag
    return masks


def _intersect(terms: Sequence[PostingList], *, budget: Budget) -> set[int]:
    """Return the messages of rare terms and those with two terms; where those are too many, with three."""
    chosen: set[int] = set()
    read = sorted((term.members for term in terms if term.members), key=len)
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


def _short_messages(postings: Postings, terms: Sequence[PostingList], *, budget: Budget) -> set[int]:
    """Return the short messages of one or two terms with long lists; with more terms, pairs are better candidates."""
    long = [term for term in terms if len(term.ids or ()) > budget.per_list]
    if len(long) > _FEW_TERMS:
        return set()
    return {number for term in long for number in postings.newest_ids(term.in_short_messages, 5 * budget.per_list)}


class _Blocks:
    """Scores of blocks of messages, by the formula for sessions; only where some term has a long list."""

    def __init__(self, lists: Sequence[tuple[list[int], float]], ranking: Ranking, *, shortest: int) -> None:
        read = lists if lists and len(lists[-1][0]) > shortest else []
        self._lists, self._ranking = [ids for ids, _ in read], ranking
        # next to rarer terms, a very common one adds little and costs most
        self._counted = [*read[:1], *(item for item in read[1:] if len(item[0]) <= _COMMON)]
        # of one term the short messages are better candidates, so that its hits need not be counted by blocks
        self._hits = _hits(self._counted) if len(read) > 1 else Counter[int]()
        self._scores = self._score(sorted(self._hits, key=self._hits.__getitem__)[-_FULLEST:])  # of equals the newest

    def _score(self, blocks: Iterable[int]) -> dict[int, float]:
        spans = [(block, block << _BLOCK_BITS, (block + 1) << _BLOCK_BITS) for block in blocks]
        return _span_scores(spans, self._counted, self._ranking)

    def scores(self, blocks: AbstractSet[int]) -> dict[int, float]:
        """Return the score of each block; of several terms, as if all hits in a less full one were of the lightest."""
        if not self._hits:
            return self._score(blocks)
        use, hits = self._ranking.weights, self._hits.get
        full = use.session * (1.0 + use.session_saturation) * min(weight for _, weight in self._counted)
        gains = [full * count / (count + use.session_saturation) for count in range(_BLOCK + 1)]
        return {block: gains[min(hits(block, 0), _BLOCK)] for block in blocks} | self._scores

    def messages(self, blocks: int) -> Iterable[int]:
        """Yield the hits in the blocks with the highest scores."""
        for block in sorted(self._scores, key=self._scores.__getitem__, reverse=True)[:blocks]:
            first = block << _BLOCK_BITS
            for ids in self._lists:
                start = bisect_left(ids, first)
                yield from ids[start : bisect_left(ids, first + _BLOCK, start)]


def _hits(lists: Sequence[tuple[list[int], float]]) -> Counter[int]:
    """Return the hits in each block, weighted by term weight relative to the lightest term."""
    hits: Counter[int] = Counter()
    lightest = min((weight for _, weight in lists), default=0.0) or 1.0
    for ids, weight in lists:
        times = max(1, min(_HEAVIEST, round(weight / lightest)))
        hits.update([number >> _BLOCK_BITS for number in ids] * times)
    return hits


def _span_scores(
    spans: Sequence[tuple[int, int, int]], lists: Sequence[tuple[list[int], float]], ranking: Ranking
) -> dict[int, float]:
    """Return the score of each span (name, start, end) by the formula for sessions."""
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


def _common_terms(postings: Postings, terms: Sequence[PostingList], *, budget: Budget) -> dict[int, int]:
    """Return messages with several of the terms whose lists are too long to read, or short ones with one of them."""
    common = sorted(
        ((bit, term) for bit, term in enumerate(terms) if term.ids is None and term.partial is None),
        key=lambda item: item[1].frequency,
    )[:_COMMON_TERMS]
    masks = _combine(postings, common, budget=budget)
    if len(masks) < budget.pool:
        for bit, term in common:
            for number in postings.newest_ids(term.in_short_messages, budget.per_list):
                masks[number] = masks.get(number, 0) | 1 << bit
            for number in postings.newest_ids(term.lookup, budget.pool):
                masks[number] = masks.get(number, 0) | 1 << bit
    for bit, term in common:
        term.partial = sorted(number for number, mask in masks.items() if mask >> bit & 1)
    return masks


def _combine(postings: Postings, common: Sequence[tuple[int, PostingList]], *, budget: Budget) -> dict[int, int]:
    """Return the newest messages that contain as many of these terms as possible, at least two."""
    masks: dict[int, int] = {}
    for size in range(len(common), 1, -1):
        for group in combinations(common, size):
            together = AllOf(tuple(term.lookup for _, term in group))
            flags = sum(1 << bit for bit, _ in group)
            for number in postings.newest_ids(together, budget.per_list):
                masks[number] = masks.get(number, 0) | flags
        if len(masks) >= budget.pool:
            break
    return masks

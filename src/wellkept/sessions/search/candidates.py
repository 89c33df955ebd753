"""The candidates of a search: its filters, its budget, and the messages that contain most of the question."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations, islice
from typing import NamedTuple

from msgspec import Struct

from wellkept.core.search import SearchRequest
from wellkept.sessions.search.postings import (
    HIDDEN_SOURCES,
    AllOf,
    AnyOf,
    Catalog,
    Lookup,
    MessageHead,
    Postings,
    SessionFilter,
    SessionHead,
)
from wellkept.sessions.search.ranking import WEIGHTS, Ranking
from wellkept.sessions.search.terms import PREFIX_LIMIT, PostingList

_FEW_SESSIONS = 400
"""With at most this many sessions, the ids of all their messages are read first, to narrow the posting lists."""
_MANY_SESSIONS = 50
"""From this many sessions on, their span of ids is used instead, if most messages in it are theirs."""
_DENSE = 1.5
"""How many ids a span may have for each message of the sessions; the others are filtered out later."""
LONG_SESSION = 2_000
"""Of sessions with more messages, only the surroundings of hits are read."""
_LISTED = 50_000
"""Up to this span of ids, the messages of one session are listed; of a longer session only the span is used."""
_WINDOW = 200
_WINDOWS = 20
ALL_MATCHING = 6_000
"""Up to this many messages that fulfil an explicit condition, all of them are candidates."""
_UNKNOWN = ""
"""The reason for a session that the user must not even learn of; such hits are not counted."""
_LEAST_LINES = 48
"""With fewer lines, the second best line of a session, which counts for its score, is often missing."""
LARGE = 1_000_000
"""From this many messages on, the budget does not grow."""
_RARE = 400
"""Up to this frequency, a single term needs no larger budget than several."""
_BLOCK_BITS = 5
_BLOCK = 1 << _BLOCK_BITS
"""Messages with neighbouring ids; a block approximates a session, whose rows are not read yet."""
_NEIGHBOURHOOD = 20
_FULLER = 3
"""How many of the blocks with the most hits get an exact score for each block that is chosen."""
_HEAVIEST = 4
"""How many times a hit of a heavy term counts at most."""
_TOO_LONG = 60_000
"""Longer lists are read only where they meet those of rarer terms."""
_FEW_HITS = 400
"""Up to this many hits, all scores are estimated: choosing among them would take longer."""
_FEW_TERMS = 2
_COMMON_TERMS = 5
"""How many terms with lists too long to read are looked up in combinations."""
_SHORT = 8
"""Assumed length of a short message before its own is looked up."""
_SHORT_LISTS = 5
"""Short messages of a common term that are considered, as a multiple of what is considered of other lists."""


class Scope(Struct, frozen=True):
    """The messages in which a search looks."""

    messages: frozenset[int] | range | None = None
    """The messages that the filters leave; None when they may be anywhere."""
    matching: AbstractSet[int] | None = None
    """The messages that fulfil the explicit condition; None without one."""
    lookup: Lookup | None = None
    """Matches at least the messages that fulfil the condition."""
    required: frozenset[str] = frozenset()
    """Words that all of them contain."""
    is_filtered: bool = False
    """Whether there are further filters, which may exclude all of the newest messages."""
    needs_term: bool = False
    """Whether only messages with a term count, and not their neighbours."""

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last of the messages that the filters leave."""
        if isinstance(self.messages, range):
            return self.messages.start, self.messages.stop - 1  # without going through it
        return min(self.messages or (), default=0), max(self.messages or (), default=0)

    @property
    def is_small(self) -> bool:
        """Whether so few messages fulfil an explicit condition that all of them are candidates."""
        return self.matching is not None and len(self.matching) <= ALL_MATCHING


class Filters:
    """The filters of one search; caches the metadata it reads and counts what each filter excludes."""

    def __init__(self, request: SearchRequest, catalog: Catalog) -> None:
        self._request = request
        self._catalog = catalog
        self.heads: dict[int, MessageHead] = {}
        self.sessions: dict[str, SessionHead] = {}
        self.excluded: Counter[str] = Counter()
        self._counted: set[int] = set()
        self._reasons: dict[str, str | None] = {}
        self._has_dates = request.after is not None or request.before is not None
        self._tests_messages = bool(request.exclude_messages or request.roles) or self._has_dates
        self._tests_sessions = bool(
            request.exclude_sessions or request.session_id is not None or request.sources or request.project is not None
        )
        self.are_wide = False
        """Whether there are filters that many sessions pass, so that more candidates must be tested."""

    def messages(self) -> frozenset[int] | range | None:
        """Return the messages of the sessions that pass the filters, if few do; of one very long session its span."""
        request = self._request
        if request.session_id is not None:
            return self._inside(request.session_id)
        if not (self._catalog.has_other_users or request.project or request.sources or self._has_dates):
            self.are_wide = bool(request.roles)
            return None
        conditions = SessionFilter(request.project, request.sources, request.after, request.before)
        names = self._catalog.session_ids(conditions, _FEW_SESSIONS + 1)
        if len(names) > _FEW_SESSIONS:
            self.are_wide = True
            return None
        if len(names) >= _MANY_SESSIONS and not self._catalog.has_other_users:
            first, last, count = self._catalog.span(names) or (0, 0, 0)
            if (
                last - first < _DENSE * count
            ):  # most messages in the span belong to these sessions, as in a period of time
                return range(first, last + 1)
        return self._ids_of(names)

    def _inside(self, session_id: str) -> frozenset[int] | range:
        span = self._catalog.span([session_id])
        if span is None:
            return frozenset()
        first, last, count = span
        if last - first < _LISTED:
            return self._ids_of([session_id])
        inside = range(first, last + 1)
        self.are_wide = 2 * count < len(inside)  # most messages in between belong to other sessions
        return inside

    def _ids_of(self, session_ids: Sequence[str]) -> frozenset[int]:
        return frozenset().union(*self._catalog.ids_by_session(session_ids).values())

    def load(self, ids: Iterable[int]) -> None:
        """Read the metadata of messages that are not known yet."""
        unknown = [message_id for message_id in ids if message_id not in self.heads]
        if unknown:
            self.heads |= self._catalog.messages(unknown)

    def passing(self, ids: Collection[int]) -> dict[int, MessageHead]:
        """Return the messages among `ids` that may be returned, in no particular order."""
        self.load(ids)
        session_ids = {self.heads[message_id].session_id for message_id in ids if message_id in self.heads}
        unknown = [session_id for session_id in session_ids if session_id not in self._reasons]
        if unknown:
            self.sessions |= self._catalog.sessions(unknown)
            self._reasons.update((session_id, self._session_reason(session_id)) for session_id in unknown)
        passing = {}
        for message_id in ids:
            head = self.heads.get(message_id)
            if head is None:
                continue
            reason = self._reasons[head.session_id]
            if reason is None and self._tests_messages:
                reason = self._message_reason(message_id, head)
            if reason is None:
                passing[message_id] = head
            elif reason and message_id not in self._counted:
                self._counted.add(message_id)
                self.excluded[reason] += 1
        return passing

    def group(self, ids: Iterable[int], heads: Collection[int]) -> dict[str, list[int]]:
        """Return those of the messages that are in `heads` by their sessions, in the given order."""
        by_session: dict[str, list[int]] = {}
        for message_id in ids:
            if message_id in heads:
                by_session.setdefault(self.heads[message_id].session_id, []).append(message_id)
        return by_session

    def reason(self, message_id: int) -> str | None:
        """Return the name of the filter that excludes a message, None if it passes, "" if it does not exist here."""
        if self.passing([message_id]):
            return None
        head = self.heads.get(message_id)
        if head is None:
            return _UNKNOWN
        reason = self._reasons[head.session_id]
        return self._message_reason(message_id, head) if reason is None else reason

    def _session_reason(self, session_id: str) -> str | None:
        """Return the name of the filter that excludes the session, `_UNKNOWN`, or None when it passes."""
        session = self.sessions.get(session_id)
        request = self._request
        if session is None:
            return _UNKNOWN
        if not self._tests_sessions:
            return "hidden source" if session.source in HIDDEN_SOURCES else None
        checks = (
            ("session", session_id in request.exclude_sessions),
            ("session", request.session_id is not None and session_id != request.session_id),
            ("source", bool(request.sources) and session.source not in request.sources),
            ("hidden source", not request.sources and session.source in HIDDEN_SOURCES),
            ("project", request.project is not None and session.project != request.project),
        )
        return next((name for name, excluded in checks if excluded), None)

    def _message_reason(self, message_id: int, head: MessageHead) -> str | None:
        request = self._request
        if message_id in request.exclude_messages:
            return "current conversation"
        if request.roles and head.role not in request.roles:
            return "role"
        if request.after is not None and head.timestamp < request.after:
            return "after"
        if request.before is not None and head.timestamp >= request.before:
            return "before"
        return None

    def ids_by_session(self, chosen: Sequence[tuple[str, Sequence[int]]]) -> Mapping[str, Sequence[int]]:
        """Return the messages of each session in order; of a very long session those around its hits."""
        short = [session_id for session_id, _ in chosen if self.sessions[session_id].message_count <= LONG_SESSION]
        ids = dict(self._catalog.ids_by_session(short))
        for session_id, hits in chosen:
            if self.sessions[session_id].message_count > LONG_SESSION:
                newest = sorted(hits)[-_WINDOWS:]
                windows = [self._catalog.ids_near(session_id, hit - _WINDOW, hit + _WINDOW) for hit in newest]
                ids[session_id] = sorted({*hits}.union(*windows))
            elif not all(map(ids.get(session_id, ()).__contains__, hits)):
                ids[session_id] = sorted({*ids.get(session_id, ()), *hits})
        return ids

    def source_factor(self, session_id: str) -> float:
        """Return the factor of a session's scores that its source sets."""
        session = self.sessions[session_id]
        if session.source == "cron":
            return WEIGHTS.cron
        return WEIGHTS.headless if session.is_headless else 1.0


class Budget(NamedTuple):
    """How much one search may read."""

    per_list: int
    """Entries of one list, or of one combination of lists, that are considered."""
    blocks: int
    """Blocks with the highest scores, whose hits all become candidates."""
    common: int
    """Longer lists are not used to choose blocks: nearly every block has a hit of them."""
    looked: int
    """Messages whose length is looked up."""
    pool: int
    """Messages whose rows are read."""
    sessions: int
    """Sessions that are ranked line by line."""
    texts: int
    """Messages whose text is read for proximity."""
    postings: int = 70_000
    """Entries of posting lists that are read in full, rarest term first."""
    matching: int = 30_000
    """Messages that may fulfil an explicit condition and are tested, newest first."""

    def most_lines(self, limit: int) -> int:
        """Return how many lines are scored with their rows, to find `limit` of them."""
        return max(self.texts * 2, limit * 4, _LEAST_LINES)


EXHAUSTIVE = Budget(*[10**9] * 9)
"""Reads and ranks everything that matches: the reference for measurements."""
_SMALL = (10_000, Budget(per_list=1_500, blocks=150, common=15_000, looked=500, pool=140, sessions=16, texts=100))
"""Where lists are short, nearly everything that matches is ranked."""
_PLAIN = (
    _SMALL,
    (20_000, Budget(per_list=100, blocks=40, common=300, looked=250, pool=60, sessions=12, texts=48)),
    (100_000, Budget(per_list=300, blocks=150, common=3_000, looked=600, pool=60, sessions=18, texts=50)),
    (LARGE, Budget(per_list=300, blocks=150, common=15_000, looked=1_500, pool=60, sessions=20, texts=54)),
)
_EXPLICIT = (
    _SMALL,
    (20_000, Budget(per_list=100, blocks=15, common=300, looked=100, pool=30, sessions=12, texts=14)),
    (100_000, Budget(per_list=150, blocks=60, common=1_000, looked=250, pool=36, sessions=16, texts=16)),
    (LARGE, Budget(per_list=200, blocks=70, common=4_000, looked=800, pool=36, sessions=22, texts=16)),
)
"""Only messages with a word of the query are found, and no neighbours, so that fewer texts are needed."""
_ONE_COMMON = (
    _SMALL,
    (20_000, Budget(per_list=150, blocks=0, common=0, looked=500, pool=60, sessions=16, texts=48)),
    (100_000, Budget(per_list=800, blocks=0, common=0, looked=900, pool=60, sessions=18, texts=50)),
    (LARGE, Budget(per_list=1_500, blocks=0, common=0, looked=900, pool=40, sessions=18, texts=40)),
)
"""Messages with one common term differ little, so more of them are looked at."""
_ONE_PREFIX = (
    *_ONE_COMMON[:-1],
    (LARGE, Budget(per_list=300, blocks=0, common=0, looked=300, pool=40, sessions=18, texts=16)),
)


def choose_budget(limit: int, documents: int, frequencies: Sequence[int] = (), *, is_explicit: bool = False) -> Budget:
    """Return a budget that fills a result of `limit` entries from a store of `documents` messages.

    `frequencies` are those of the terms. Between two sizes that were measured (`benchmarks/scale.py`), the budget
    changes evenly.
    """
    sizes = _EXPLICIT if is_explicit else _PLAIN
    if len(frequencies) == 1 and frequencies[0] > _RARE:
        sizes = _ONE_PREFIX if is_explicit else _ONE_COMMON
    small, least = sizes[0]
    for large, most in sizes[1:]:
        if documents <= large:
            break
        small, least = large, most
    share = min(1.0, max(0, documents - small) / (large - small)) if large > small else 1.0
    budget = Budget(*[round(low + share * (high - low)) for low, high in zip(least, most, strict=True)])
    return budget._replace(
        pool=max(budget.pool, 4 * limit), sessions=max(budget.sessions, limit), texts=max(budget.texts, limit)
    )


def read_lists(postings: Postings, terms: Sequence[PostingList], *, budget: Budget, scope: Scope) -> None:
    """Read the posting lists of the terms, as far as the budget allows and the condition needs them."""
    if scope.matching is not None:
        for term in terms:
            if term.text in scope.required:  # only messages that fulfil the condition count, and all of them hold it
                term.ids = sorted(scope.matching)
    if scope.is_small:
        _read_matching(postings, terms, budget=budget, scope=scope)
    else:
        _read_within_budget(postings, terms, budget=budget, scope=scope)


def list_few(terms: Sequence[PostingList], scope: Scope, *, most: int) -> AbstractSet[int] | None:
    """Return every message that may be found by its own words if they are at most `most`, else None.

    All of them can be ranked then, without choosing candidates. The lists have been read.
    """
    if scope.matching is not None:
        return scope.matching if len(scope.matching) <= most else None
    lists = [term.ids for term in terms if term.ids is not None]
    if len(lists) < len(terms) or max(map(len, lists), default=0) > most:
        return None
    hits = set().union(*lists)
    return hits if len(hits) <= most else None


def find_candidates(
    postings: Postings, terms: Sequence[PostingList], ranking: Ranking, *, budget: Budget, scope: Scope
) -> list[tuple[float, int]]:
    """Return the most promising messages with a first estimate of their scores, best first; the lists are read."""
    if not scope.is_small and len(terms) == 1 and terms[0].is_word and len(terms[0].ids or ()) > budget.per_list:
        looked = _promising_of_one(postings, terms[0], ranking, budget=budget, scope=scope)
        masks = dict.fromkeys(looked, 1)
    else:
        masks, looked = _promising_of_several(postings, terms, ranking, budget=budget, scope=scope)
    lengths = postings.lengths(looked)
    near = _neighbours(looked, masks, terms=terms, ranking=ranking)
    estimates = []
    for message_id in looked:
        length = lengths.get(message_id, 1)
        estimate = ranking.base(masks[message_id], length)
        if message_id in near:
            estimate += ranking.falloff(length) * near[message_id]
        estimates.append((estimate, message_id))
    estimates.sort(reverse=True)
    estimates = estimates[: budget.pool + budget.pool // 2]
    if not scope.needs_term and scope.matching is None:
        # neighbours of the best messages that contain no term: they may answer in other words
        best_ids = [message_id for _, message_id in estimates[: budget.pool // 2]]
        beside = {near for message_id in best_ids for near in (message_id - 1, message_id + 1) if near not in masks}
        get, gain = masks.get, ranking.neighbours
        estimates += [
            (gain(0, get(near - 1, 0), get(near + 1, 0), around=get(near - 2, 0) | get(near + 2, 0)), near)
            for near in beside
        ]
    around = _density([message_id for _, message_id in estimates], _pair_with_weights(terms, ranking), ranking)
    best = [(score + around[message_id], message_id) for score, message_id in estimates]
    best.sort(reverse=True)
    return best[: budget.pool]


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
                term.ids = [message_id for message_id in term.ids if message_id in scope.messages]


def _read_matching(postings: Postings, terms: Sequence[PostingList], *, budget: Budget, scope: Scope) -> None:
    """Read the part of each list that fulfils the explicit condition; short lists in full."""
    assert scope.lookup is not None
    first, last = min(scope.matching or (), default=0), max(scope.matching or (), default=0)
    for term in terms:
        if term.ids is None and term.frequency <= max(ALL_MATCHING, budget.per_list):
            term.ids = postings.ids(term.lookup)
        elif term.ids is None:
            term.partial = postings.ids_between(AllOf((scope.lookup, term.lookup)), first, last)


def _promising_of_one(
    postings: Postings, term: PostingList, ranking: Ranking, *, budget: Budget, scope: Scope
) -> list[int]:
    """Return the messages to look at for one common term.

    They are short messages with the most hits beside and around them, the newest of equals first.
    """
    ids = term.ids or []
    gains = _block_gains(ranking, ranking.terms[0].weight)
    beside = [ranking.neighbours(1, before, after, around=0) for before, after in ((0, 0), (1, 0), (0, 1), (1, 1))]
    by_promise: dict[float, list[int]] = {}
    index, end = 0, len(ids)
    for message_id in postings.newest_ids(term.in_short_messages, _SHORT_LISTS * budget.per_list):
        index = bisect_left(ids, message_id, index)
        if (
            index == end
            or ids[index] != message_id
            or (scope.matching is not None and message_id not in scope.matching)
        ):
            continue
        first, last = message_id & -_BLOCK, message_id | _BLOCK - 1
        start = stop = index
        while start and ids[start - 1] >= first:  # a block has few hits: to step takes less time than to bisect
            start -= 1
        while stop + 1 < end and ids[stop + 1] <= last:
            stop += 1
        before = index > 0 and ids[index - 1] == message_id - 1
        after = index + 1 < end and ids[index + 1] == message_id + 1
        by_promise.setdefault(gains[stop - start + 1] + beside[before + 2 * after], []).append(message_id)
    best = (message_id for promise in sorted(by_promise, reverse=True) for message_id in reversed(by_promise[promise]))
    return list(islice(best, budget.looked))


def _promising_of_several(
    postings: Postings, terms: Sequence[PostingList], ranking: Ranking, *, budget: Budget, scope: Scope
) -> tuple[dict[int, int], list[int]]:
    """Return the messages to consider, each with its terms as bits, and those whose length is worth looking up."""
    if scope.is_small:
        dense, strong = _Blocks([], ranking, budget), set[int]()
        masks = _term_masks(terms, scope.matching or set())
    elif (few := list_few(terms, scope, most=_FEW_HITS)) is not None:
        return _term_masks(terms, few), list(few)
    else:
        dense = _Blocks(_pair_with_weights(terms, ranking), ranking, budget)
        strong = _short_messages(postings, terms, budget=budget)
        masks = _term_masks(terms, strong.union(dense.messages(), _intersect(terms, budget=budget)))
        for message_id, mask in _common_terms(postings, terms, budget=budget).items():
            masks[message_id] = masks.get(message_id, 0) | mask
        if scope.matching is not None:
            masks = {message_id: mask for message_id, mask in masks.items() if message_id in scope.matching}
    return masks, _promising(masks, ranking, dense=dense, strong=strong, budget=budget)


def _promising(
    masks: Mapping[int, int], ranking: Ranking, *, dense: "_Blocks", strong: Container[int], budget: Budget
) -> list[int]:
    """Return the messages whose length is worth looking up: by their terms, their neighbours and their block."""
    if len(masks) <= budget.looked:
        return list(masks)
    block_scores = dense.scores({message_id >> _BLOCK_BITS for message_id in masks})
    short = {mask: ranking.base(mask, _SHORT) for mask in set(masks.values())}
    usual = {mask: ranking.base(mask, int(ranking.mean_length)) for mask in short}
    get, gain = masks.get, ranking.neighbours
    promises = {}
    for message_id, mask in masks.items():
        promise = (short[mask] if message_id in strong else usual[mask]) + block_scores[message_id >> _BLOCK_BITS]
        before, after = get(message_id - 1, 0), get(message_id + 1, 0)
        promises[message_id] = promise + gain(mask, before, after, around=0) if before or after else promise
    # sorted twice, because tuples take three times as long: the newest first among equal ones
    return sorted(sorted(promises, reverse=True), key=promises.__getitem__, reverse=True)[: budget.looked]


def _neighbours(
    looked: Sequence[int], masks: Mapping[int, int], *, terms: Sequence[PostingList], ranking: Ranking
) -> dict[int, float]:
    """Return the gain of each message from its neighbours, where there is any."""
    get, gain = masks.get, ranking.neighbours
    near = {}
    if len(terms) == 1 and terms[0].ids is not None:
        ids = terms[0].ids
        for message_id in looked:
            index = bisect_left(ids, message_id)
            beside = ids[max(0, index - 2) : index + 3]
            is_before, is_after = message_id - 1 in beside, message_id + 1 in beside
            is_around = message_id - 2 in beside or message_id + 2 in beside
            if is_before or is_after or is_around:
                near[message_id] = gain(1, is_before, is_after, around=is_around)
        return near
    if len(terms) == _FEW_TERMS:  # their neighbours are looked up in the full lists
        get = _term_masks(terms, {message_id + step for step in (-2, -1, 0, 1, 2) for message_id in looked}).get
    for message_id in looked:
        before, after, around = (
            get(message_id - 1, 0),
            get(message_id + 1, 0),
            get(message_id - 2, 0) | get(message_id + 2, 0),
        )
        if before or after or around:
            near[message_id] = gain(masks[message_id], before, after, around=around)
    return near


def _density(
    message_ids: Sequence[int], lists: Sequence[tuple[list[int], float]], ranking: Ranking
) -> dict[int, float]:
    """Return the gain of each message from those stored around it, which approximates its session's."""
    use = ranking.weights
    half, full = use.session_saturation, use.session * (1.0 + use.session_saturation)
    gains = dict.fromkeys(message_ids, 0.0)
    for ids, weight in lists:
        size = len(ids)
        for message_id in message_ids:
            start, end = bisect_left(ids, message_id - _NEIGHBOURHOOD), message_id + _NEIGHBOURHOOD
            if start < size and ids[start] < end:
                count = bisect_left(ids, end, start) - start
                gains[message_id] += full * weight * count / (count + half)
    return gains


def _pair_with_weights(terms: Sequence[PostingList], ranking: Ranking) -> list[tuple[list[int], float]]:
    """Return the lists that were read in full, shortest first, with the weights of their terms."""
    pairs = zip(terms, ranking.terms, strict=True)
    return sorted(((term.ids, ranked.weight) for term, ranked in pairs if term.ids), key=lambda item: len(item[0]))


def _term_masks(terms: Sequence[PostingList], message_ids: AbstractSet[int]) -> dict[int, int]:
    """Return which terms each of these messages contains, as far as the lists were read."""
    masks = dict.fromkeys(message_ids, 0)
    hits = [(term.members & message_ids, 1 << bit) for bit, term in enumerate(terms)]
    hits.sort(key=lambda pair: len(pair[0]), reverse=True)
    for ids, flag in hits[:1]:  # the longest list at once: nothing is known of its messages yet
        masks.update(dict.fromkeys(ids, flag))
    for ids, flag in hits[1:]:
        for message_id in ids:
            masks[message_id] |= flag
    return masks


def _intersect(terms: Sequence[PostingList], *, budget: Budget) -> set[int]:
    """Return the messages of rare terms and those with two terms; where those are too many, with three."""
    chosen: set[int] = set()
    lists = sorted((term.members for term in terms if term.members), key=len)
    for members in lists:
        if len(members) <= budget.per_list:
            chosen |= members
    pairs = [
        (index, shorter & longer)
        for (_, shorter), (index, longer) in combinations(enumerate(lists), 2)
        if len(longer) > budget.per_list
    ]
    if sum(len(common) for _, common in pairs) <= budget.looked:
        return chosen.union(*(common for _, common in pairs))
    for index, common in pairs:
        for third in lists[index + 1 :]:
            chosen |= common & third
    for _, common in pairs:  # the rarest first, because the lists are in that order
        if len(chosen) >= budget.looked:
            break
        chosen |= common
    return chosen


def _short_messages(postings: Postings, terms: Sequence[PostingList], *, budget: Budget) -> set[int]:
    """Return the short messages of one or two terms with long lists; with more terms, pairs are better candidates."""
    long = [term for term in terms if len(term.ids or ()) > budget.per_list]
    if len(long) > _FEW_TERMS:
        return set()
    limit = _SHORT_LISTS * budget.per_list
    return {message_id for term in long for message_id in postings.newest_ids(term.in_short_messages, limit)}


class _Blocks:
    """Scores of blocks of messages, by the formula for sessions.

    They are computed only where some term has a long list: of short lists, all messages are considered anyway.
    """

    def __init__(self, lists: Sequence[tuple[list[int], float]], ranking: Ranking, budget: Budget) -> None:
        read = lists if lists and len(lists[-1][0]) > budget.per_list else []
        self._lists, self._ranking, self._blocks = [ids for ids, _ in read], ranking, budget.blocks
        # next to rarer terms, a very common one adds little and costs most
        used = [*read[:1], *(item for item in read[1:] if len(item[0]) <= budget.common)]
        counted = [([message_id >> _BLOCK_BITS for message_id in ids], weight) for ids, weight in used]
        self._lightest = min((weight for _, weight in counted), default=0.0)
        self._hits: Counter[int] = Counter()
        """The hits in each block, weighted by term weight relative to the lightest term."""
        for blocks, weight in counted:
            self._hits.update(blocks * max(1, min(_HEAVIEST, round(weight / (self._lightest or 1.0)))))
        self._scores = _score_blocks(_find_fullest(self._hits, _FULLER * budget.blocks), counted, ranking)

    def scores(self, blocks: AbstractSet[int]) -> dict[int, float]:
        """Return the score of each block; of less full ones an estimate, as if all hits were of the lightest term."""
        gains = _block_gains(self._ranking, self._lightest)
        hits = self._hits.get
        return {block: gains[min(hits(block, 0), _BLOCK)] for block in blocks} | self._scores

    def messages(self) -> Iterable[int]:
        """Yield the hits in the blocks with the highest scores."""
        for block in sorted(self._scores, key=self._scores.__getitem__, reverse=True)[: self._blocks]:
            first = block << _BLOCK_BITS
            for ids in self._lists:
                start = bisect_left(ids, first)
                yield from ids[start : bisect_left(ids, first + _BLOCK, start)]


def _block_gains(ranking: Ranking, weight: float) -> list[float]:
    """Return the gains of a block from a term of this weight, by the number of its hits."""
    use = ranking.weights
    full = use.session * (1.0 + use.session_saturation) * weight
    return [full * count / (count + use.session_saturation) for count in range(_BLOCK + 1)]


def _score_blocks(
    chosen: Sequence[int], lists: Sequence[tuple[list[int], float]], ranking: Ranking
) -> dict[int, float]:
    """Return the scores of the chosen blocks; the lists hold the block of each hit."""
    scores = dict.fromkeys(chosen, 0.0)
    for blocks, weight in lists:
        gains = _block_gains(ranking, weight)
        for block, count in Counter(filter(scores.__contains__, blocks)).items():
            scores[block] += gains[count]
    return scores


def _find_fullest(hits: Mapping[int, int], limit: int) -> list[int]:
    """Return the blocks with the most hits, of equals the newest.

    Only the counts are sorted: most blocks have one or two hits, and there are many of them.
    """
    if len(hits) <= limit or limit <= 0:
        return list(hits) if limit > 0 else []
    least = sorted(hits.values())[-limit]
    above = [block for block, count in hits.items() if count > least]
    equal = sorted(block for block, count in hits.items() if count == least)
    return above + equal[len(above) - limit :]


def _common_terms(postings: Postings, terms: Sequence[PostingList], *, budget: Budget) -> dict[int, int]:
    """Return messages with several of the terms whose lists are too long to read, or short ones with one of them."""
    common = sorted(
        ((bit, term) for bit, term in enumerate(terms) if term.ids is None and term.partial is None),
        key=lambda item: item[1].frequency,
    )[:_COMMON_TERMS]
    masks = _combine(postings, common, budget=budget)
    if len(masks) < budget.pool:
        for bit, term in common:
            for message_id in postings.newest_ids(term.in_short_messages, budget.per_list):
                masks[message_id] = masks.get(message_id, 0) | 1 << bit
            for message_id in postings.newest_ids(term.lookup, budget.pool):
                masks[message_id] = masks.get(message_id, 0) | 1 << bit
    for bit, term in common:
        term.partial = sorted(message_id for message_id, mask in masks.items() if mask >> bit & 1)
    return masks


def _combine(postings: Postings, common: Sequence[tuple[int, PostingList]], *, budget: Budget) -> dict[int, int]:
    """Return the newest messages that contain as many of these terms as possible, at least two."""
    masks: dict[int, int] = {}
    for size in range(len(common), 1, -1):
        for group in combinations(common, size):
            together = AllOf(tuple(term.lookup for _, term in group))
            flags = sum(1 << bit for bit, _ in group)
            for message_id in postings.newest_ids(together, budget.per_list):
                masks[message_id] = masks.get(message_id, 0) | flags
        if len(masks) >= budget.pool:
            break
    return masks

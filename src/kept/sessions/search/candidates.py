"""The candidates of a search: every message with a term gets an estimate of its score, the best are ranked.

Estimates are computed for whole arrays. They leave out only what needs the rows of a message: date, role, the order of
words, and neighbours in a session whose messages were not stored one after the other.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kept.core.values import dataclass, replace
from kept.sessions.search.occurrences import LineSimilarity, session_similarity
from kept.sessions.search.ranking import Line, SessionLines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kept.sessions.search.postings import Array, Positions, Postings
    from kept.sessions.search.ranking import Ranking
    from kept.sessions.search.terms import PostingList

_REACH = 2
"""Steps to the farthest neighbour that counts."""
_TABLE_BITS = 10
"""Terms whose sums are looked up in one table."""
_SPARSE = 16
"""Share of the positions, as a divisor, up to which sorting the hits is faster than looking at every position."""
_ONE = np.uint64(1)
LARGE = 1_000_000
"""Messages from which on the whole budget is used; in smaller stores less finds the same."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much one search may read."""

    estimated: int = 6_000
    """Messages of which neighbours and session are estimated, chosen by their own words."""
    pool: int = 200
    """Messages whose rows are read."""
    sessions: int = 32
    """Sessions that are ranked line by line."""
    texts: int = 60
    """Messages whose text is read for proximity."""

    def fitting(self, limit: int, documents: int) -> "Budget":
        """Return a budget that fills a result of `limit` entries from a store of `documents` messages."""
        large = min(1.0, documents / LARGE)
        return replace(
            self,
            pool=max(round(self.pool * (0.7 + 0.3 * large)), 12 * limit),
            sessions=max(self.sessions - round(16 * (1.0 - large)), limit + limit // 2),
            texts=max(round(self.texts * (0.6 + 0.4 * large)), limit),
        )


EXHAUSTIVE = Budget(*[10**9] * 4)
"""Ranks everything that matches: the reference for measurements."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where to look."""

    sessions: "Array | None" = None
    """Whether the filters leave a session, by its number; None when all are left."""
    matching: "Positions | None" = None
    """The messages that fulfil the explicit condition; None without one."""

    def narrow(self, positions: "Positions", numbers: "Array") -> "Positions":
        """Return the positions that the filters leave."""
        return positions if self.sessions is None else positions[self.sessions[numbers[positions]]]


class Hits:
    """Which terms each message contains, as bits by position."""

    def __init__(self, postings: "Postings", terms: "Sequence[PostingList]") -> None:
        self._postings = postings
        self._lists = [term.positions for term in terms]
        # beyond both ends there are no messages; memory that is never written to costs nothing
        self._masks = np.zeros(postings.size + 2 * _REACH, np.uint64)
        for bit, positions in enumerate(self._lists):
            self._masks[positions + _REACH] |= _ONE << np.uint64(bit)

    def masks(self, positions: "Array") -> "Array":
        """Return the terms of the messages at these positions; none at position -1."""
        found: Array = self._masks[positions + _REACH]
        return found

    def every(self) -> "Positions":
        """Return the positions of all messages with a term."""
        if len(self._lists) == 1:
            return self._lists[0]
        if sum(map(len, self._lists)) < self._postings.size // _SPARSE:
            return np.unique(np.concatenate(self._lists)) if self._lists else np.zeros(0, np.int64)
        return np.flatnonzero(self._masks) - _REACH

    def beside(self, positions: "Array", step: int) -> "Array":
        """Return the terms of the neighbours of these messages, if they belong to the same session."""
        sessions, near = self._postings.sessions, positions + step
        inside = (near >= 0) & (near < self._postings.size)
        same = inside & (sessions[np.where(inside, near, 0)] == sessions[positions])
        return np.where(same, self._masks[near + _REACH], np.uint64(0))

    def count_by_session(self, bit: int) -> "Array":
        """Return how many messages of each session contain a term, by the number of the session."""
        numbers = self._postings.sessions[self._lists[bit]]
        return np.bincount(numbers, minlength=len(self._postings.session_sizes))


class _Sums:
    """The sum of the weights of a set of terms, for whole arrays of sets."""

    def __init__(self, weights: "Sequence[float]") -> None:
        self._tables = []
        for start in range(0, max(1, len(weights)), _TABLE_BITS):
            table = np.zeros(1)
            for weight in weights[start : start + _TABLE_BITS]:
                table = np.concatenate((table, table + weight))
            self._tables.append(table)

    def of(self, masks: "Array") -> "Array":
        """Return the sum of each set."""
        if len(self._tables) == 1:
            return self._tables[0][masks]
        found = np.zeros(len(masks))
        for place, table in enumerate(self._tables):
            found += table[masks >> np.uint64(place * _TABLE_BITS) & np.uint64(2**_TABLE_BITS - 1)]
        return found


class Estimates:
    """Scores by the formulas of `Ranking`, for whole arrays."""

    def __init__(self, postings: "Postings", hits: Hits, ranking: "Ranking") -> None:
        self._postings = postings
        self._hits = hits
        self._ranking = ranking
        self._weights = _Sums([term.weight for term in ranking.terms])
        self._idfs = _Sums(ranking.idfs)
        self._by_session = self._score_sessions()

    def words(self, masks: "Array", lengths: "Array") -> "Array":
        """Return the scores of the messages' own words (`Ranking.base`)."""
        ranking, use = self._ranking, self._ranking.weights
        square = (self._idfs.of(masks) / ranking.asked_idf) ** 2
        lift = self._weights.of(masks) * (use.saturation + 1.0)
        lift *= 1.0 + use.coverage * square + use.whole * (square * square) ** 2
        return lift / (ranking.flat + ranking.slope * lengths)

    def neighbours(
        self, masks: "Array", before: "Array", after: "Array", *, around: "Array", lengths: "Array"
    ) -> "Array":
        """Return what the terms of neighbours add (`Ranking.neighbours`)."""
        use = self._ranking.weights
        later, far = after & ~before, around & ~(before | after)
        gain = np.zeros(len(masks))
        for share, held in ((use.previous, before), (use.next, later), (use.near, far)):
            gain += share * (self._weights.of(held) - use.doubled * self._weights.of(held & masks))
        return gain * self._falloff(lengths)

    def session(self, positions: "Array", lengths: "Array") -> "Array":
        """Return what the other messages of the session add (`Ranking.session_sum`)."""
        sums = self._by_session[self._postings.sessions[positions]]
        return self._ranking.weights.session * sums * self._falloff(lengths)

    def estimate(self, positions: "Array", words: "Array") -> "Array":
        """Return the scores of messages from those of their own words; neighbours are those stored next to them."""
        hits, lengths = self._hits, self._postings.lengths[positions]
        around = hits.beside(positions, -2) | hits.beside(positions, 2)
        before, after = hits.beside(positions, -1), hits.beside(positions, 1)
        near = self.neighbours(hits.masks(positions), before, after, around=around, lengths=lengths)
        return words + near + self.session(positions, lengths)

    def _falloff(self, lengths: "Array") -> "Array":
        return np.minimum(1.0, self._ranking.weights.falloff_terms / np.maximum(lengths, 1))

    def _score_sessions(self) -> "Array":
        use, ranking = self._ranking.weights, self._ranking
        sizes = self._postings.session_sizes / ranking.mean_session
        half = use.session_saturation * (1.0 - use.session_length + use.session_length * sizes)
        total = np.zeros(len(sizes))
        for bit, term in enumerate(ranking.terms):
            counts = self._hits.count_by_session(bit)
            total += term.weight * (1.0 + use.session_saturation) * counts / (counts + half)
        return total


def find_candidates(
    postings: "Postings", hits: Hits, estimates: Estimates, *, budget: Budget, scope: Scope
) -> list[tuple[float, int]]:
    """Return the most promising messages with an estimate of their scores, best first."""
    positions = scope.narrow(hits.every() if scope.matching is None else scope.matching, postings.sessions)
    words = estimates.words(hits.masks(positions), postings.lengths[positions])
    if len(positions) > budget.estimated:
        chosen = np.sort(np.argpartition(words, -budget.estimated)[-budget.estimated :])
        positions, words = positions[chosen], words[chosen]
    scores = estimates.estimate(positions, words)
    positions, scores = _take_best(positions, scores, budget.pool)
    between = _answers_between(postings, hits, positions[: budget.pool // 2], scope)
    if len(between):
        positions = np.concatenate((positions, between))
        scores = np.concatenate((scores, estimates.estimate(between, np.zeros(len(between)))))
        positions, scores = _take_best(positions, scores, budget.pool)
    return list(zip(scores.tolist(), postings.ids(positions), strict=True))


def _take_best(positions: "Array", scores: "Array", count: int) -> "tuple[Array, Array]":
    """Return the best positions with their scores, highest first; of equal ones the newest message first."""
    if len(scores) > count:
        chosen = np.argpartition(scores, -count)[-count:]
        positions, scores = positions[chosen], scores[chosen]
    order = np.lexsort((-positions, -scores))
    return positions[order], scores[order]


def _answers_between(postings: "Postings", hits: Hits, best: "Array", scope: Scope) -> "Positions":
    """Return the neighbours of the best messages that contain no term: answers in other words."""
    if scope.matching is not None:
        return best[:0]
    near, own = np.concatenate((best - 1, best + 1)), np.concatenate((best, best))
    inside = (near >= 0) & (near < postings.size)
    near, own = near[inside], own[inside]
    near = np.unique(near[(hits.masks(near) == 0) & (postings.sessions[near] == postings.sessions[own])])
    return scope.narrow(near, postings.sessions)


class ReadSession(NamedTuple):
    """A session whose lines are scored."""

    name: str
    ids: "Sequence[int]"
    """Its messages in order."""
    size: int
    """How many messages it has; of a very long one `ids` are only some."""
    factor: float
    """Factor of its scores that its source sets."""


class SessionReader:
    """Scores all lines of some sessions as arrays, and returns the best as values."""

    def __init__(self, postings: "Postings", hits: Hits, estimates: Estimates, ranking: "Ranking") -> None:
        self._postings = postings
        self._hits = hits
        self._estimates = estimates
        self._ranking = ranking

    def read(
        self,
        sessions: "Sequence[ReadSession]",
        *,
        speakers: "Positions | None",
        similar: "Mapping[int, float]",
        most: int,
    ) -> tuple[list[SessionLines], list[Line]]:
        """Return the sessions, each with those of its lines that are among the `most` best, and these lines in order.

        `speakers` are the messages by people whom the question names, `similar` the similarity of messages.
        """
        ids = [number for session in sessions for number in session.ids]
        owner = np.repeat(np.arange(len(sessions)), [len(session.ids) for session in sessions])
        positions = self._postings.positions(ids)
        masks = self._hits.masks(positions)
        before, after = _shift(masks, owner, -1), _shift(masks, owner, 1)
        around = _shift(masks, owner, -2) | _shift(masks, owner, 2)
        lengths = np.maximum(self._postings.lengths[positions], 1)
        spoken = np.zeros(len(ids), bool) if speakers is None else np.isin(positions, speakers)
        meaning = _similarities(sessions, similar, spoken, self._ranking, names_people=speakers is not None)
        factors = np.array([session.factor for session in sessions])
        own = self._estimates.words(masks, lengths) + self._estimates.neighbours(
            masks, before, after, around=around, lengths=lengths
        )
        scores = (
            own
            + self._estimates.session(positions, lengths)
            + self._ranking.weights.speaker * self._ranking.total * spoken
        )
        scores += self._ranking.weights.semantic * self._ranking.total * meaning
        scores = np.where(own + meaning > 0.0, scores * factors[owner], 0.0)
        best = _best(scores, most)
        columns = [one[best].tolist() for one in (owner, masks, lengths, before, after, around, spoken, meaning)]
        counts = self._count_terms(masks, owner, len(sessions))
        found = [
            SessionLines(session.name, max(session.size, len(session.ids)), counts[place])
            for place, session in enumerate(sessions)
        ]
        lines = []
        for place, values in zip(best.tolist(), zip(*columns, strict=True), strict=True):
            session, mask, length, one_before, one_after, two_away, is_spoken, likeness = values
            line = Line(ids[place], mask, length, one_before, one_after, two_away, is_spoken)
            line.factor, line.similarity = sessions[session].factor, likeness
            found[session].lines.append(line)
            lines.append(line)
        for one in found:
            one.similarity = session_similarity(one.lines, self._ranking.weights)
        return found, lines

    def _count_terms(self, masks: "Array", owner: "Array", sessions: int) -> list[list[int]]:
        """Return how many lines of each session contain each term."""
        columns = [
            np.bincount(owner[(masks >> np.uint64(bit) & np.uint64(1)) > 0], minlength=sessions).tolist()
            for bit in range(len(self._ranking.terms))
        ]
        return [list(counts) for counts in zip(*columns, strict=True)] or [[] for _ in range(sessions)]


def _shift(masks: "Array", owner: "Array", step: int) -> "Array":
    """Return the terms of the line `step` lines away in the same session; none beyond its ends."""
    found = np.zeros_like(masks)
    here, there = (slice(step, None), slice(None, -step)) if step > 0 else (slice(None, step), slice(-step, None))
    found[there] = np.where(owner[there] == owner[here], masks[here], np.uint64(0))
    return found


def _similarities(
    sessions: "Sequence[ReadSession]",
    similar: "Mapping[int, float]",
    spoken: "Array",
    ranking: "Ranking",
    *,
    names_people: bool,
) -> "Array":
    """Return the similarity of each line, a share of its neighbours' included."""
    found = np.zeros(len(spoken))
    if not similar:
        return found
    place = 0
    for session in sessions:
        lines = LineSimilarity(similar, session.ids, ranking.weights)
        for number in session.ids:
            found[place] = lines.of(number, is_spoken=bool(spoken[place]), names_people=names_people)
            place += 1
    return found


def _best(scores: "Array", most: int) -> "Array":
    """Return the places of the highest scores above zero, best first."""
    places = np.flatnonzero(scores > 0.0)
    if len(places) > most:
        places = np.sort(places[np.argpartition(scores[places], -most)[-most:]])
    return places[np.argsort(-scores[places], kind="stable")]

"""The search over sessions: a question in, ranked sessions and messages out."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kept.core.dates import DAY_SECONDS, Span
from kept.core.ids import MessageId, SessionId
from kept.core.search import Found, FoundMessage, FoundSession, SearchRequest
from kept.sessions.search.candidates import Budget, Scope, pool
from kept.sessions.search.conditions import Condition, condition, holding, is_any
from kept.sessions.search.features import Alikeness, Asks, Likeness, Wording, of_session, without_names
from kept.sessions.search.filters import Filters, Head, SessionHead
from kept.sessions.search.query import Query, parse
from kept.sessions.search.ranking import Line, Ranking, Scored, SessionLines, abstains, term_weights
from kept.sessions.search.terms import Held, held_terms, speakers, unknown_weight
from kept.sessions.sqlite.postings import Postings
from kept.storage.sqlite import Connection

_DATE_BEFORE_DAYS = 1.0
_DATE_AFTER_DAYS = 5.0
"""People tell what happened some days after it did, seldom before."""


def find(
    connection: Connection,
    request: SearchRequest,
    *,
    now: float,
    user: str | None = None,
    asks: Asks | None = None,
    budget: Budget | None = None,
) -> Found:
    """Return what answers `request`, ranked. No query raises; an empty answer counts what the filters took.

    `user` limits it to that user's sessions; None where the file has no other user's.
    `asks` holds the question's meaning against the messages' vectors; it is added to what the words say.
    """
    query = parse(request.query, now)
    postings = Postings(connection)
    terms = held_terms(postings, query) if postings.documents else []
    likeness = asks(without_names(request.query, terms)) if asks is not None and postings.documents else None
    if not terms and likeness is None:
        return Found(abstained=True, terms=tuple(term.text for term in query.terms))
    budget = budget or Budget().fitting(request.limit, postings.documents, held=[term.holding for term in terms])
    filters = Filters(request, connection, user=user)
    return _Search(postings, query, terms, filters=filters, now=now, budget=budget).run(likeness)


@dataclass(slots=True)
class _Ranked:
    """A session with its lines and their scores."""

    session: SessionLines
    scored: list[Scored]


class _Search:
    """One search, from terms to answer."""

    def __init__(
        self,
        postings: Postings,
        query: Query,
        terms: list[Held],
        *,
        filters: Filters,
        now: float,
        budget: Budget,
    ) -> None:
        self._postings = postings
        self._query = query
        self._terms = terms
        self._request = filters.request
        self._now = now
        self._budget = budget
        self._speakers = speakers(terms)
        stats = [(held.text, held.given, held.holding, held.speaking) for held in terms]
        self._ranking = Ranking(
            term_weights(stats, postings.documents),
            mean_length=postings.mean_length,
            mean_session=postings.mean_session(),
            unknown=unknown_weight(query, terms),
        )
        self._asked: set[int] | None = None
        self._needs_words = False
        self._unchecked = 0
        self._likeness: Likeness | None = None
        self._alike: dict[int, float] = {}
        self._filters = filters

    def run(self, likeness: Likeness | None) -> Found:
        """Return the answer."""
        self._likeness = likeness
        ranked = self._ranked(self._best_sessions(*self._heads()))
        self._complete(ranked)
        return self._found(ranked)

    def _heads(self) -> tuple[dict[int, Head], dict[int, float]]:
        """Return the rows of promising messages that pass the condition and the filters."""
        scope = self._scope()
        budget = self._budget
        if self._filters.are_wide:
            budget = replace(budget, pool=max(budget.pool, 3_000), looked=max(budget.looked, 6_000))
        best = pool(self._postings, self._terms, self._ranking, budget=budget, scope=scope)
        estimates = {number: estimate for estimate, number in best}
        if self._likeness is not None:
            self._know(self._likeness.nearest(scope.messages))
            self._know(self._likeness.of(number for number in estimates if number not in self._alike))
            gain = self._ranking.weights.meaning * self._ranking.total
            for number, value in self._alike.items():
                estimates[number] = estimates.get(number, 0.0) + gain * value
        return self._filters.passing(list(estimates)), estimates

    def _know(self, likeness: Mapping[int, float]) -> None:
        floor = self._ranking.weights.meaning_floor
        self._alike.update((number, max(0.0, value - floor)) for number, value in likeness.items())

    def _scope(self) -> Scope:
        """Return the only messages that may be found, as far as that is known beforehand."""
        left = self._filters.messages()
        node = self._query.condition
        if node is not None and is_any(node):
            self._needs_words = True  # every candidate that holds a term holds the condition
            return Scope(left, None, is_filtered=self._filters.are_wide)
        asked = condition(self._postings, node) if node is not None else None
        if asked is not None:
            self._asked = self._holding(asked, left)
        return Scope(left, self._asked, asked.expression if asked is not None else "", self._filters.are_wide)

    def _holding(self, asked: Condition, allowed: Container[int] | None) -> set[int]:
        ids, self._unchecked = holding(self._postings, asked, allowed=allowed, limit=self._budget.asked)
        return ids

    def _best_sessions(self, heads: Mapping[int, Head], estimates: Mapping[int, float]) -> list[tuple[str, list[int]]]:
        """Return the sessions whose messages promise most, each with those messages."""
        by_session: dict[str, list[int]] = {}
        for number in sorted(heads, key=estimates.__getitem__, reverse=True):
            by_session.setdefault(heads[number].session_id, []).append(number)
        promise = {}
        for name, numbers in by_session.items():
            one, *more = (estimates[number] for number in numbers[:2])
            date = self._session_date(self._filters.sessions[name])
            promise[name] = one + self._ranking.weights.runner_up * sum(more) + date
        names = sorted(promise, key=lambda name: promise[name], reverse=True)
        # half for the best sessions, half for those of the best messages, which may stand alone in theirs
        half = self._budget.sessions // 2
        chosen = dict.fromkeys(names[:half])
        chosen |= dict.fromkeys(list(by_session)[:half])
        chosen |= dict.fromkeys(names[half : self._budget.sessions])
        return [(name, by_session[name]) for name in list(chosen)[: self._budget.sessions]]

    def _session_date(self, head: SessionHead) -> float:
        spans = (Span(min(span.start, head.last_active), max(span.end, head.started)) for span in self._query.dates)
        near = max((_nearness(span, head.started) for span in spans), default=0.0)
        return self._ranking.weights.date * self._ranking.total * near

    def _ranked(self, chosen: Sequence[tuple[str, list[int]]]) -> list[_Ranked]:
        """Return the chosen sessions with the lines that hold a term or stand next to one, scored."""
        ids = self._filters.ids_by_session(chosen)
        sessions = []
        for session_id, _ in chosen:
            sessions.append(self._lines(session_id, ids[session_id]))
        lengths = self._postings.lengths(line.message_id for session in sessions for line in session.lines)
        for session in sessions:
            for line in session.lines:
                line.length = lengths.get(line.message_id, 1)
        if self._likeness is not None:
            self._compare(sessions, ids)
        return [_Ranked(session, self._ranking.scored(session)) for session in sessions]

    def _compare(self, sessions: Sequence[SessionLines], ids: Mapping[str, Sequence[int]]) -> None:
        """Give each line the likeness of its meaning and, in part, of its neighbours', and each session its own."""
        assert self._likeness is not None
        shown = {line.message_id for session in sessions for line in session.lines}
        self._know(self._likeness.of(number for number in shown if number not in self._alike))
        for session in sessions:
            alike = Alikeness(self._alike, ids[session.session_id], self._ranking.weights)
            for line in session.lines:
                line.likeness = alike.of(line, names_people=self._speakers is not None)
            session.likeness = of_session(session.lines, self._ranking.weights)

    def _lines(self, session_id: str, ids: Sequence[int]) -> SessionLines:
        masks: dict[int, int] = {}
        counts = [0] * len(self._terms)
        for bit, held in enumerate(self._terms):
            for number in held.between(self._postings, ids[0], ids[-1]):
                index = bisect_left(ids, number)
                if ids[index] == number:
                    masks[index] = masks.get(index, 0) | 1 << bit
                    counts[bit] += 1
        spoken: set[int] = set()
        if self._speakers is not None:
            spoken.update(self._speakers.between(self._postings, ids[0], ids[-1]))
        size = max(self._filters.sessions[session_id].message_count, len(ids))
        factor = self._filters.factor(session_id)
        get = masks.get
        shown = {near for hit in masks for near in range(max(0, hit - 2), min(len(ids), hit + 3))}
        if self._alike:
            shown |= {index for index, number in enumerate(ids) if self._alike.get(number)}
        lines = [
            Line(
                ids[index],
                get(index, 0),
                1,
                get(index - 1, 0),
                get(index + 1, 0),
                get(index - 2, 0) | get(index + 2, 0),
                ids[index] in spoken,
                factor,
            )
            for index in shown
        ]
        return SessionLines(session_id, size, counts, lines)

    def _complete(self, ranked: Sequence[_Ranked]) -> None:
        """Add what only the rows say (time, role, words in order) to the best lines, and score those again."""
        best = sorted((item for each in ranked for item in each.scored), key=lambda item: -item.score)
        wanted = best[: max(self._budget.texts * 2, self._request.limit * 4)]
        passing = self._filters.passing([item.line.message_id for item in wanted])
        wording = Wording(self._postings, self._request.query, [held.text for held in self._terms])
        texts = self._texts([item.line for item in wanted], wording)
        weights = [term.weight for term in self._ranking.terms]
        unread = sum(1 << bit for bit, held in enumerate(self._terms) if held.ids is None)
        for item in wanted:
            line = item.line
            head = passing.get(line.message_id)
            if head is None or not self._may_be_shown(line):
                line.factor = 0.0
                continue
            line.factor *= self._filters.role_factor(head.role)
            line.age_days = (self._now - head.timestamp) / DAY_SECONDS
            line.date = self._date(line.mask, head.timestamp)
            text = texts.get(line.message_id)
            if text is not None:
                stands = wording.of(text, weights)
                line.gap, line.wording, line.small = stands.gap, stands.quoted, stands.small
                line.mask |= stands.held & unread
        done = {item.line.message_id for item in wanted}
        for each in ranked:
            each.session.lines = [line for line in each.session.lines if line.message_id in done and line.factor > 0.0]
            each.session.likeness = of_session(each.session.lines, self._ranking.weights)
            each.scored = self._ranking.scored(each.session)

    def _texts(self, lines: Sequence[Line], wording: Wording) -> dict[int, str]:
        """Return the texts worth reading: those that hold several terms, then those of one, if more was asked."""
        several = [line.message_id for line in lines if line.mask & line.mask - 1]
        single = [line.message_id for line in lines if line.mask and not line.mask & line.mask - 1]
        # one term alone is close to nothing, but it may stand in the question's own words
        chosen = several + single if wording.is_more_than_terms else several
        return self._postings.texts(chosen[: self._budget.texts])

    def _may_be_shown(self, line: Line) -> bool:
        if self._needs_words and not line.mask:
            return False
        return self._asked is None or line.message_id in self._asked

    def _date(self, mask: int, moment: float) -> float:
        """Return how near a message is to a date of the question: sent on it, or naming it in its words."""
        if not self._query.dates:
            return 0.0
        flags = sum(1 << bit for bit, held in enumerate(self._terms) if held.names_date)
        named = self._ranking.sum(mask & flags) / (self._ranking.sum(flags) or 1.0)
        # a part of a date is another date
        return max(named * named, *(_nearness(span, moment) for span in self._query.dates))

    def _found(self, ranked: Iterable[_Ranked]) -> Found:
        sessions = []
        messages: list[tuple[Scored, _Ranked]] = []
        for each in ranked:
            if each.scored:
                score, best = self._ranking.session_score(each.session, each.scored)
                sessions.append(
                    FoundSession(SessionId(each.session.session_id), score, MessageId(best.line.message_id))
                )
                messages += [(item, each) for item in each.scored]
        sessions.sort(key=lambda item: (-item.score, -item.best_message_id))
        messages.sort(key=lambda pair: (-pair[0].score, -pair[0].line.message_id))
        limit = self._request.limit
        found = tuple(self._message(item, each) for item, each in messages[:limit])
        is_plain = any(self._ranking.holds_all(item.line.mask) for item, _ in messages)
        return Found(
            sessions=tuple(sessions[:limit]),
            messages=found,
            abstained=not found or (abstains(found[0].parts, self._ranking) and not is_plain),
            terms=tuple(held.text for held in self._terms),
            excluded=Counter(self._filters.excluded),
            unchecked=self._unchecked,
        )

    def _message(self, item: Scored, each: _Ranked) -> FoundMessage:
        head = self._filters.heads[item.line.message_id]
        parts = self._ranking.parts(item.line, self._ranking.session_sum(each.session), around=each.session.likeness)
        return FoundMessage(
            MessageId(item.line.message_id), SessionId(item.session_id), head.external_id, item.score, parts
        )


def _nearness(span: Span, moment: float) -> float:
    """Return 1 inside `span`, less with every day before or after it."""
    days = span.distance(moment) / DAY_SECONDS
    if days == 0.0:
        return 1.0
    return float(2.718281828 ** (-days / (_DATE_BEFORE_DAYS if moment < span.start else _DATE_AFTER_DAYS)))

"""The search engine: a question in, ranked sessions and messages out."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import chain, starmap

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.ids import MessageId, SessionId
from wellkept.core.search import Explained, Found, FoundMessage, FoundSession, SearchRequest, Stage, TermMatch
from wellkept.sessions.records import storable
from wellkept.sessions.search.answers import tells_nothing
from wellkept.sessions.search.candidates import (
    Budget,
    Filters,
    Scope,
    choose_budget,
    find_candidates,
    list_few,
    read_lists,
)
from wellkept.sessions.search.conditions import add_forms, compile_condition, find_matching, is_any
from wellkept.sessions.search.occurrences import Meanings, Proximity, Repetition, Turns
from wellkept.sessions.search.periods import (
    RANGE_STARTS,
    add_time,
    list_conversations,
    nearness,
    read_period,
    session_nearness,
)
from wellkept.sessions.search.postings import Catalog, MessageHead, Postings, Similarity, TimeFilter
from wellkept.sessions.search.query import Query, asks, find_required_words, parse
from wellkept.sessions.search.ranking import Line, Ranking, Scored, SessionLines, abstains, term_weights
from wellkept.sessions.search.terms import (
    PostingList,
    WordForms,
    find_speakers,
    list_found_forms,
    list_shown,
    look_up_terms,
    mask_messages,
    match_terms,
    remove_names,
    unknown_weight,
)

_WIDE_POOL, _WIDE_LOOKED = 3_000, 6_000
"""Candidates that are considered where filters may exclude most of them."""
_REACH = 2
"""Messages on each side of a hit that may answer in other words."""
_TITLE_CHARACTERS = 160
"""No title is longer; a longer query is a text."""
_LEAST_TITLE = 4
"""Shorter words differ by one letter from too many others."""
_ALIKE = 0.85
"""The share of characters in common from which two spellings are one."""
_MOST_TITLED = 5
_TITLE_SCORE = 1.0


def search(
    postings: Postings,
    catalog: Catalog,
    request: SearchRequest,
    *,
    now: float,
    embed: Callable[[str], Similarity | None] | None = None,
    budget: Budget | None = None,
) -> Found:
    """Return what answers `request`, ranked. No query raises; an empty answer counts what the filters excluded.

    `embed` returns the vector of a question, or None where there are no vectors; the similarity of vectors is added to
    the score of the words. A query that only names a time returns the conversations of that time; one that is a title
    returns the conversations with that title first.
    """
    query, is_asked = parse(request.query, now), asks(request.query)
    names_range = not RANGE_STARTS.isdisjoint(request.query.lower().split())
    may_ask_time = query.dates or not query.terms or is_asked or names_range
    period = read_period(request, now, query) if may_ask_time else None
    if period is not None:
        listed = list_conversations(catalog, request, period)
        if listed.sessions or is_asked or not request.query.strip():
            return listed
        # a word for a time may also be a word that somebody wrote
        quoted = replace(request, query=f'"{request.query.replace(chr(34), " ")}"')
        result = _search_words(postings, catalog, quoted, parse(quoted.query), embed=embed, budget=budget)
        return result if result.sessions and not result.abstained else listed
    result = _search_words(postings, catalog, request, query, embed=embed, budget=budget)
    return result if is_asked else add_titled(result, catalog, request)


def _search_words(
    postings: Postings,
    catalog: Catalog,
    request: SearchRequest,
    query: Query,
    *,
    embed: Callable[[str], Similarity | None] | None,
    budget: Budget | None,
) -> Found:
    is_asked = asks(request.query)
    forms = WordForms.choose(postings, query, request.query)
    terms = look_up_terms(postings, query, forms, is_asked=is_asked) if postings.documents else []
    query = add_forms(query, forms) if query.condition is not None else query
    similarity = embed(remove_names(request.query, terms)) if embed is not None and postings.documents else None
    if not terms and similarity is None:
        words = tuple(term.text for term in query.terms)
        explained = Explained("no_candidate", terms=tuple(TermMatch(word, 0.0, is_held=False) for word in words))
        result = Found(abstained=True, terms=words, explained=None if request.explain is None else explained)
        return add_time(result, catalog, request, query.dates) if query.dates else result
    if budget is None:
        frequencies = [term.frequency for term in terms]
        budget = choose_budget(request.limit, postings.documents, frequencies, is_explicit=query.condition is not None)
    filters = Filters(request, catalog)
    result = _Search(forms, query, terms, request=request, filters=filters, budget=budget).answer(similarity)
    return add_time(result, catalog, request, query.dates) if result.abstained and query.dates else result


class _Order(Struct, frozen=True):
    """Sessions with their best messages, and messages, each in order of their final scores."""

    sessions: Sequence[tuple[float, Scored, SessionLines]]
    messages: Sequence[tuple[Scored, SessionLines]]


class _Search:
    """The state of one search, from posting lists to the answer.

    The steps go from cheap to expensive, and each one works on fewer messages: choose candidates by posting lists
    alone, estimate their sessions, rank the lines of the best sessions, read the texts of the best lines, and rank
    again with what the texts add.
    """

    def __init__(
        self,
        forms: WordForms,
        query: Query,
        terms: list[PostingList],
        *,
        request: SearchRequest,
        filters: Filters,
        budget: Budget,
    ) -> None:
        self._postings = postings = forms.postings
        self._query = query
        self._terms = terms
        self._request = request
        self._filters = filters
        self._budget = budget
        self._speakers = find_speakers(terms)
        self._turns = Turns(request.query)
        stats = [(term.text, term.weight, term.frequency, term.speaker_frequency) for term in terms]
        self._ranking = Ranking(
            term_weights(stats, postings.documents),
            mean_length=postings.mean_length,
            mean_session=postings.mean_session(),
            unknown=unknown_weight(forms, query, terms),
        )
        self._matching: set[int] | None = None
        """The messages that fulfil the explicit condition; None without one."""
        self._needs_term = False
        self._repeating: set[int] = set()
        """Messages that only repeat the question."""
        self._unchecked = 0
        self._meanings = Meanings(None, self._ranking.weights)
        self._cached_parts: dict[int, dict[str, float]] = {}

    def answer(self, similarity: Similarity | None) -> Found:
        """Run the search."""
        self._meanings = Meanings(similarity, self._ranking.weights)
        scope = self._scope()
        read_lists(self._postings, self._terms, budget=self._budget, scope=scope)
        few = None if self._meanings.are_used else list_few(self._terms, scope, most=self._count_rankable())
        if few is not None:
            heads = self._load_hits(few)
            sessions = self._read_sessions([*self._filters.group(few, heads).items()])
            lines = [line for session in sessions for line in session.lines]
        else:
            heads, estimates = self._candidates(scope)
            sessions = self._read_sessions(self._best_sessions(heads, estimates))
            lines = self._best_lines(sessions)
        explained_id = self._request.explain
        is_scored = any(line.message_id == explained_id for session in sessions for line in session.lines)
        self._refine(sessions, lines)
        order = self._order(sessions)
        result = self._build_result(order, candidates=len(heads))
        if explained_id is None:
            return result
        last: Stage = "unread" if is_scored else "session" if explained_id in heads else "no_candidate"
        return replace(result, explained=self._explain(explained_id, order, last=last))

    @property
    def _reach(self) -> int:
        """How many messages on each side of a hit may be found with it, because they answer in other words."""
        return 0 if self._needs_term or self._matching is not None else _REACH

    def _count_rankable(self) -> int:
        """Return how many hits can be ranked within the budget together with all lines near them."""
        shown = 1 + 2 * self._reach
        read = shown if self._turns.is_asked else 1
        return min(
            self._budget.sessions, self._budget.most_lines(self._request.limit) // shown, self._budget.texts // read
        )

    def _load_hits(self, hits: Collection[int]) -> dict[int, MessageHead]:
        """Return the hits that pass the filters; their neighbours, which are probably shown too, are read at once."""
        reach = self._reach
        beside = {neighbour for hit in hits for neighbour in range(hit - reach, hit + reach + 1)}
        self._filters.load(beside)
        self._postings.lengths(beside)
        return self._filters.passing(hits)

    def _candidates(self, scope: Scope) -> tuple[dict[int, MessageHead], dict[int, float]]:
        """Return the candidates that pass the condition and the filters, and estimates of their scores."""
        budget = self._budget
        if self._filters.are_wide:
            budget = budget._replace(pool=max(budget.pool, _WIDE_POOL), looked=max(budget.looked, _WIDE_LOOKED))
        best = find_candidates(self._postings, self._terms, self._ranking, budget=budget, scope=scope)
        estimates = {message_id: score for score, message_id in best}
        self._meanings.find_nearest(scope.messages)
        self._meanings.compare(estimates)
        gain = self._ranking.weights.semantic * self._ranking.total
        for message_id, similarity in self._meanings.known.items():
            estimates[message_id] = estimates.get(message_id, 0.0) + gain * similarity
        return self._filters.passing(list(estimates)), estimates

    def _scope(self) -> Scope:
        """Return where to look, as far as filters and condition tell before the lists are read."""
        allowed = self._filters.messages()
        node = self._query.condition
        if node is not None and is_any(node):
            self._needs_term = True  # every candidate that contains a term fulfils the condition
            return Scope(allowed, is_filtered=self._filters.are_wide, needs_term=True)
        condition = compile_condition(self._postings, node) if node is not None else None
        if condition is None:
            return Scope(allowed, is_filtered=self._filters.are_wide)
        self._matching, self._unchecked = find_matching(
            self._postings, condition, allowed=allowed, limit=self._budget.matching, wanted=self._request.limit
        )
        words = find_required_words(condition.node)
        return Scope(allowed, self._matching, condition.lookup, words, self._filters.are_wide)

    def _best_sessions(
        self, heads: Mapping[int, MessageHead], estimates: Mapping[int, float]
    ) -> list[tuple[str, list[int]]]:
        """Return the sessions with the highest estimates, each with its candidates."""
        by_session = self._filters.group(sorted(heads, key=estimates.__getitem__, reverse=True), heads)
        promises = {}
        for session_id, message_ids in by_session.items():
            best, *second = (estimates[message_id] for message_id in message_ids[:2])
            promises[session_id] = best + self._ranking.weights.runner_up * sum(second)
            if self._query.dates:
                head = self._filters.sessions[session_id]
                near = session_nearness(self._query.dates, head.started, head.last_active)
                promises[session_id] += self._ranking.weights.date * self._ranking.total * near
        ranked = sorted(promises, key=promises.__getitem__, reverse=True)
        # half of the budget for the best sessions, half for those of the best messages, which may be their only hit
        half = self._budget.sessions // 2
        chosen = dict.fromkeys((*ranked[:half], *list(by_session)[:half], *ranked[half : self._budget.sessions]))
        return [(session_id, by_session[session_id]) for session_id in list(chosen)[: self._budget.sessions]]

    def _read_sessions(self, chosen: Sequence[tuple[str, list[int]]]) -> list[SessionLines]:
        """Return the chosen sessions with the lines that contain a term or are near one that does."""
        ids = self._filters.ids_by_session(chosen)
        sessions = [self._session_lines(session_id, ids[session_id], hits) for session_id, hits in chosen]
        lengths = self._postings.lengths([line.message_id for session in sessions for line in session.lines])
        for session in sessions:
            for line in session.lines:
                line.length = lengths.get(line.message_id, 1)
        if self._meanings.are_used:
            self._meanings.compare({line.message_id for session in sessions for line in session.lines})
            for session in sessions:
                self._meanings.mark(session, ids[session.session_id], names_people=self._speakers is not None)
        return sessions

    def _best_lines(self, sessions: Iterable[SessionLines]) -> list[Line]:
        """Return the lines whose rows and texts are worth reading, best first."""
        scored = [item for session in sessions for item in self._ranking.score_lines(session)]
        scored.sort(key=lambda item: item.score, reverse=True)
        return [item.line for item in scored[: self._budget.most_lines(self._request.limit)]]

    def _lines_to_show(self, ids: Sequence[int], masks: Mapping[int, int], hits: Sequence[int]) -> Collection[int]:
        """Return the indices of the messages that may be found: with a term, beside one, or similar in meaning."""
        if self._matching is not None:
            return [bisect_left(ids, hit) for hit in hits]
        indices: Collection[int] = masks
        if not self._needs_term:
            indices = {near for hit in masks for near in range(max(0, hit - _REACH), min(len(ids), hit + _REACH + 1))}
        if self._meanings.known:
            similar = (index for index, message_id in enumerate(ids) if self._meanings.known.get(message_id))
            indices = {*indices, *similar}
        return indices

    def _session_lines(self, session_id: str, ids: Sequence[int], hits: Sequence[int]) -> SessionLines:
        masks, counts = mask_messages(self._postings, self._terms, ids)
        spoken = frozenset(self._speakers.between(self._postings, ids[0], ids[-1]) if self._speakers else ())
        size = max(self._filters.sessions[session_id].message_count, len(ids))
        factor = self._filters.source_factor(session_id)
        get = masks.get
        shown = self._lines_to_show(ids, masks, hits)
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
                previous=ids[index - 1] if index else 0,
            )
            for index in shown
        ]
        return SessionLines(session_id, size, counts, lines)

    def _refine(self, sessions: Sequence[SessionLines], lines: Sequence[Line]) -> None:
        """Add time, role and the order of words to the best lines, and drop all others.

        This reads the rows and texts of the lines.
        """
        passing = self._filters.passing([line.message_id for line in lines])
        # what answers a question may say it in other words; keywords are looked for as they are
        read = [line.message_id for line in lines if line.mask or line.similarity or self._turns.is_asked]
        texts = self._postings.texts(read[: self._budget.texts])
        repetition = Repetition(self._request.query, is_asked=self._turns.is_asked)
        # a filter by role must not show neighbours of matches that it excludes
        needs_match, matching = self._needs_term or bool(self._request.roles), self._matching
        date_mask = sum(1 << bit for bit, term in enumerate(self._terms) if term.names_date)
        date_weight = self._ranking.sum(date_mask) or 1.0
        for line in lines:
            head, text = passing.get(line.message_id), texts.get(line.message_id)
            if head is not None and text and repetition.matches(head, text):
                self._repeating.add(line.message_id)
                head = None
            is_hidden = needs_match and not line.mask and not line.similarity
            if head is None or is_hidden or (matching is not None and line.message_id not in matching):
                line.factor = 0.0
                continue
            if head.role == "tool":
                line.factor *= self._ranking.weights.tool
            if self._query.dates:
                # sent on a date of the question, or naming it; squared, because a part of a date is another date
                named = (self._ranking.sum(line.mask & date_mask) / date_weight) ** 2
                line.date = max(named, *(nearness(span, head.timestamp) for span in self._query.dates))
        left = self._weaken_echoes([line for line in lines if line.factor], passing, texts)
        if not self._query.is_phrase:  # a phrase is the same in all texts
            proximity = self._add_proximity(left, texts)
            self._turns.mark(left, texts, self._filters.heads, read=self._postings.texts, alike=proximity.asks_alike)
        left_ids = {line.message_id for line in left}
        for session in sessions:
            session.lines = [line for line in session.lines if line.message_id in left_ids]
            session.similarity = self._meanings.of_session(session.lines)

    def _weaken_echoes(
        self, lines: list[Line], heads: Mapping[int, MessageHead], texts: Mapping[int, str]
    ) -> list[Line]:
        """Return the lines with less weight for answers to the question itself where other lines have its words.

        Such an answer has no word of the question: it was found only because it follows the question. Of several with
        the same text only the newest is kept. It may still be the answer, so it stays, and keeps its weight if nothing
        else was found. An answer that only says that nothing was found has no weight beside others.
        """
        answers = [line for line in lines if heads[line.message_id].role == "assistant"]
        empty = {line.message_id for line in answers if tells_nothing(texts.get(line.message_id, ""))}
        echoes = [
            line for line in answers if line.message_id in empty or (not line.mask and line.previous in self._repeating)
        ]
        if not any(line.mask and line.message_id not in empty for line in lines):
            return [line for line in lines if line.message_id not in empty] if self._turns.is_asked else lines
        newest = {texts.get(line.message_id, ""): line for line in sorted(echoes, key=lambda line: line.message_id)}
        for line in echoes:
            is_left = line.message_id not in empty and newest[texts.get(line.message_id, "")] is line
            line.factor *= self._ranking.weights.echo if is_left else 0.0
        return [line for line in lines if line.factor]

    def _add_proximity(self, lines: Sequence[Line], texts: Mapping[int, str]) -> Proximity:
        names = [term.text for term in self._terms if term.speaker_frequency]
        words, forms = [term.text for term in self._terms], [term.forms for term in self._terms]
        # who writes a condition, or one word, looks for these words and no others
        is_literal = self._query.condition is not None or (len(self._terms) == 1 and not self._turns.is_asked)
        question = self._request.query if self._query.condition is None else " ".join(words)  # without operators
        proximity = Proximity(self._postings, question, words, other_forms=forms, names=names, is_literal=is_literal)
        weights = [term.weight for term in self._ranking.terms]
        unread = sum(1 << bit for bit, term in enumerate(self._terms) if term.ids is None)
        if proximity.is_bare and not unread:
            return proximity
        for line in lines:
            text = texts.get(line.message_id)
            if text is not None:
                occurrence = proximity.of(text, weights, may_hold_terms=bool(line.mask or unread))
                line.gap, line.wording, line.small = occurrence.closeness, occurrence.quoted, occurrence.stop_words
                line.related = occurrence.related
                line.mask |= occurrence.terms & unread
        return proximity

    def _order(self, sessions: Iterable[SessionLines]) -> _Order:
        ranked = []
        messages: list[tuple[Scored, SessionLines]] = []
        for session in sessions:
            scored = self._ranking.score_lines(session)
            if scored:
                score, best = self._ranking.session_score(session, scored)
                ranked.append((score, best, session))
                messages += [(item, session) for item in scored]
        # of equals the newest comes first, by its time: an import may have stored it before older ones
        heads = self._filters.heads
        ranked.sort(key=lambda entry: (entry[0], heads[entry[1].line.message_id].timestamp), reverse=True)
        messages.sort(key=lambda pair: (pair[0].score, heads[pair[0].line.message_id].timestamp), reverse=True)
        return _Order(ranked, messages)

    def _build_result(self, order: _Order, *, candidates: int) -> Found:
        limit, messages = self._request.limit, order.messages
        hits = tuple(
            FoundMessage(
                MessageId(item.line.message_id),
                SessionId(item.session_id),
                self._filters.heads[item.line.message_id].external_id,
                item.score,
                self._parts(item, session),
            )
            for item, session in messages[:limit]
        )
        masks = [item.line.mask for item, _ in messages]
        shown = chain((item for item, _ in messages[:limit]), (best for _, best, _ in order.sessions[:limit]))
        forms = list_found_forms(self._postings, self._terms, shown)
        is_weak = bool(hits) and abstains(hits[0].parts, masks[0], self._ranking, is_asked=self._turns.is_asked)
        return Found(
            sessions=tuple(starmap(self._session, order.sessions[:limit])),
            messages=hits,
            abstained=not hits or (is_weak and not any(map(self._ranking.holds_all, masks))),
            terms=(*list_shown(self._terms, self._query.terms, masks[:limit]), *forms),
            excluded=Counter(self._filters.excluded),
            unchecked=self._unchecked,
            candidates=candidates,
        )

    def _session(self, score: float, best: Scored, session: SessionLines) -> FoundSession:
        session_id, message_id = SessionId(session.session_id), MessageId(best.line.message_id)
        has_parent = bool(self._filters.sessions[session_id].has_parent)
        return FoundSession(session_id, score, message_id, self._parts(best, session), has_parent)

    def _parts(self, item: Scored, session: SessionLines) -> dict[str, float]:
        parts = self._cached_parts.get(item.line.message_id)
        if parts is None:
            total = self._ranking.session_sum(session)
            parts = self._ranking.parts(item.line, total, around=session.similarity)
            self._cached_parts[item.line.message_id] = parts
        return parts

    def _explain(self, message_id: int, order: _Order, *, last: Stage) -> Explained:
        """Return how this search treated one message; `last` is the stage that it reached if nothing excluded it."""
        excluded = self._filters.reason(message_id)
        if excluded is not None:
            return Explained("excluded" if excluded else "absent", excluded)
        if message_id in self._repeating:
            return Explained("excluded", "repetition")
        weights = [term.weight for term in self._ranking.terms]
        terms = tuple(match_terms(self._postings, self._terms, weights, self._query.terms, message_id))
        sessions = tuple(starmap(self._session, order.sessions))
        for rank, (item, session) in enumerate(order.messages, start=1):
            if item.line.message_id == message_id:
                return Explained("ranked", "", terms, rank, item.score, self._parts(item, session), sessions)
        holds_any = any(term.is_held for term in terms)
        if (self._needs_term and not holds_any) or (self._matching is not None and message_id not in self._matching):
            last = "condition"
        elif last == "session" and not holds_any:
            last = "no_candidate"  # considered only as the neighbour of a match in another session
        return Explained(last, terms=terms, sessions=sessions)


def add_titled(result: Found, catalog: Catalog, request: SearchRequest) -> Found:
    """Return `result` led by the conversations whose title is the query.

    A question is no title: what was asked before in the same words answers nothing.
    """
    title = storable(request.query.strip())
    if not title or len(title) > _TITLE_CHARACTERS or request.session_id is not None:
        return result
    is_empty = result.abstained or not result.sessions
    titled = catalog.titled(title)
    if not titled and is_empty and len(title) >= _LEAST_TITLE:
        titled = _find_similar(catalog, title)
    openings: list[tuple[str, int]] = []
    for session_id in titled[:_MOST_TITLED]:
        # the first thing that a person said in it; nothing where a filter excludes the session
        openings += catalog.timeline(TimeFilter.of(request)._replace(session_id=session_id), 1)[1]
    heads = catalog.messages([message_id for _, message_id in openings]) if openings else {}
    hits = [(SessionId(session), MessageId(message)) for session, message in openings if message in heads]
    if not hits:
        return result
    score = _TITLE_SCORE if is_empty else result.sessions[0].score
    parts = {"title": score}
    sessions = [FoundSession(session_id, score, message_id, parts) for session_id, message_id in hits]
    messages = [
        FoundMessage(message_id, session_id, heads[message_id].external_id, score, parts)
        for session_id, message_id in hits
    ]
    if not result.abstained:
        session_ids, message_ids = map(frozenset, zip(*hits, strict=True))
        sessions += [hit for hit in result.sessions if hit.session_id not in session_ids]
        messages += [hit for hit in result.messages if hit.message_id not in message_ids]
    return replace(result, sessions=tuple(sessions), messages=tuple(messages), abstained=False, of_time=())


def _find_similar(catalog: Catalog, query: str) -> list[str]:
    """Return the sessions whose title has all words of the query or nearly its spelling, the most similar first."""
    words, folded = {term.text for term in parse(query).terms}, query.casefold()
    if not words:
        return []
    similar: list[tuple[float, str]] = []
    for session_id, title in catalog.titles():
        matcher = SequenceMatcher(None, folded, title.casefold(), autojunk=False)
        # the quick ratios are upper bounds, which spare most titles the slow one
        share = matcher.ratio() if matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE else 0.0
        if share < _ALIKE and words <= {term.text for term in parse(title).terms}:
            share = _ALIKE
        if share >= _ALIKE:
            similar.append((share, session_id))
    return [session_id for _, session_id in sorted(similar, key=lambda pair: -pair[0])]

"""The one search of every surface: the conversations that answer a question best, or why there are none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice
from math import exp
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.clock import from_epoch
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.search import Found, FoundMessage, FoundSession, Period, SearchRequest
from wellkept.core.text import dumps, one_line, split_words
from wellkept.languages.dates import DAY_SECONDS, Span, find_impossible_date
from wellkept.sessions.recall import SNIPPET_CHARS, Answered, Caps, fit, index_shown, passage_shown, tokens, when
from wellkept.sessions.records import storable
from wellkept.sessions.search.answers import Answers, find_answers
from wellkept.sessions.search.candidates import HIDDEN_SOURCES
from wellkept.sessions.search.occurrences import Marker
from wellkept.sessions.search.postings import Catalog, TimeFilter
from wellkept.sessions.search.query import asks, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import date

    from wellkept.core.ids import MessageId, SessionId
    from wellkept.core.messages import Passage, Session, StoredMessage
    from wellkept.core.search import Found
    from wellkept.core.text import JSON
    from wellkept.sessions.arguments import Asked, Asker, Sort
    from wellkept.sessions.ports import Readable

CANDIDATES = 40
"""Sessions that are ranked at least where the order is by time, and at most otherwise, unless more are wanted."""
OVERSAMPLING = 4
"""Sessions ranked for each conversation wanted: a long conversation has many, of which only the best one counts."""
OVERSAMPLING_OF_WORDS = 2
"""The same for words that are no question; where that is too little, the search is repeated with more."""
NEAREST = 3
BOOKEND = 3
"""Messages that are shown of each end of a session."""
_SHARE_OF_BEST = 1 / 3
"""In an order by time: the least score, of the best one, with which a conversation is about the question at all."""
_NOT_GOOD_ENOUGH = (
    "nothing matched well enough; `nearest` names the closest sessions: try other words, or read one of them"
)

_NOTHING_OF_TIME = "no message matches these words well enough; `nearest` lists the conversations of that time"


class Match(Struct, frozen=True):
    """One conversation that was found, with its best message."""

    passage: Passage
    """The message with as many around it as were asked for."""
    score: float
    superseded_by: MessageId | None = None
    """The later message that corrects this one."""

    @property
    def session(self) -> Session:
        """The session of the conversation that contains the message."""
        return self.passage.session

    @property
    def message(self) -> StoredMessage:
        """The message itself."""
        return self.passage.match


class Conversations(Struct, frozen=True):
    """The answer to a question, the same for every surface."""

    matches: tuple[Match, ...]
    """One match per conversation in the final order; inside a single session, one per message."""
    found: Found
    """The ranked sessions and messages of which the matches are the best; there may be more than were asked for."""
    ranked: tuple[FoundSession, ...] = ()
    """The best session of each conversation in order of score, also where no match is good enough."""
    nearest: tuple[Session, ...] = ()
    """Where no match is good enough: the sessions that come closest."""
    reason: str | None = None
    """Why there are no matches."""
    superseded: Mapping[MessageId, MessageId] = field(default_factory=dict)
    """Which later message corrects which."""
    more: int = 0
    """How many conversations of a time the limit left out."""
    dropped: frozenset[MessageId] = frozenset()
    """Questions to the memory itself, which are not shown."""


def find_conversations(
    store: Readable, request: SearchRequest, *, sort: Sort | None = None, listed: int = 0, window: int | None = None
) -> Conversations:
    """Return the conversations that answer `request` best, at most `request.limit`.

    With `window`, each match has that many messages on each side, and `BOOKEND` at each end of its session.

    The sessions of one lineage (compressions and branches) are one conversation and count once. A question that is
    only about a time is answered by the conversations of that time, at least `listed` of them.
    """
    is_asked = asks(request.query)
    wide = replace(request, limit=_ranking_limit(request.limit, sort, is_asked=is_asked))
    answers = find_answers(store, wide) if is_asked else Answers(store.search(wide))
    found = answers.found
    if found.period is not None and found.period.is_bounded and listed > request.limit:
        request = replace(request, limit=listed)
        found = store.search(replace(request, limit=OVERSAMPLING * listed))
        answers = Answers(found)
    ranked = _one_per_lineage(store, found.sessions)
    if len(ranked) < request.limit and len(found.sessions) == wide.limit < CANDIDATES and not is_asked:
        # few conversations take all places with their sessions
        found = store.search(replace(request, limit=CANDIDATES))
        answers, ranked = Answers(found), _one_per_lineage(store, found.sessions)
    best = ranked[: request.limit]
    matches = () if found.abstained else _matches(_Passages(store, window), answers, ranked, request, sort=sort)
    if is_asked and sort is None:
        matches = tuple(sorted(matches, key=lambda match: repeats_question(match.message, request.query)))
    if matches:
        more = len(ranked) - len(matches) + max(0, found.candidates - len(found.sessions))
        more = more if found.period is not None else 0
        return Conversations(matches, found, best, superseded=answers.superseded, more=more, dropped=answers.dropped)
    if found.of_time:
        of_time = _one_per_lineage(store, found.of_time)[: max(NEAREST, request.limit)]
        return Conversations((), found, best, tuple(_nearest(store, of_time)), _NOTHING_OF_TIME)
    if found.sessions:
        return Conversations((), found, best, tuple(_nearest(store, ranked[:NEAREST])), _NOT_GOOD_ENOUGH)
    return Conversations((), found, best, (), why(store, request, found))


_REPEATED_WORDS = 6
_LEAST_REPEATED = 3


def repeats_question(message: StoredMessage, query: str) -> bool:
    """Whether a text of others repeats the question word for word: it was written to be found, not to answer."""
    if message.source is None:
        return False
    words = split_words(query)
    length = min(_REPEATED_WORDS, len(words))
    if length < _LEAST_REPEATED:
        return False
    text = f" {' '.join(split_words(message.message.text))} "
    runs = (" ".join(words[place : place + length]) for place in range(len(words) - length + 1))
    return any(f" {run} " in text for run in runs)


def _ranking_limit(limit: int, sort: Sort | None, *, is_asked: bool) -> int:
    times = OVERSAMPLING if is_asked else OVERSAMPLING_OF_WORDS
    return max(limit, CANDIDATES if sort is not None else min(CANDIDATES, times * limit))


class _Passages:
    """Reads the passages of matches, with as many messages around each as the answer shows."""

    def __init__(self, store: Readable, window: int | None) -> None:
        self._store = store
        self._window = window

    def match(self, hits: Iterable[tuple[MessageId, float]], *, only_match: bool = False) -> Iterator[Match]:
        """Yield a match for each message that was not removed since the search."""
        is_bare = only_match or self._window is None
        window, bookend = (0, 0) if is_bare else (self._window or 0, BOOKEND)
        for number, score in hits:
            found = self._store.passage(number, window=window, bookend=bookend)
            if found is not None:
                yield Match(found, score)


def _matches(
    passages: _Passages, answers: Answers, ranked: Sequence[FoundSession], request: SearchRequest, *, sort: Sort | None
) -> tuple[Match, ...]:
    hits = [(hit.best_message_id, hit.score) for hit in ranked]
    if request.session_id is not None:
        hits = [(hit.message_id, hit.score) for hit in answers.found.messages]
    if sort is not None:
        bare = passages.match(_keep_relevant(hits, request.query), only_match=True)
        by_time = sorted(bare, key=lambda match: match.message.timestamp, reverse=sort == "newest")
        hits = [(match.message.id, match.score) for match in by_time[: request.limit]]
    chosen = islice(passages.match(hits), request.limit)
    later = answers.superseded
    return tuple(replace(match, superseded_by=later.get(match.message.id)) if later else match for match in chosen)


def _keep_relevant(hits: Sequence[tuple[MessageId, float]], query: str) -> Sequence[tuple[MessageId, float]]:
    """Return what is about the question: an order by time would put the weakest matches first.

    What fulfils an explicit query is about it, whatever its score.
    """
    least = _SHARE_OF_BEST * max((score for _, score in hits), default=0.0)
    return hits if parse(query).condition is not None else [hit for hit in hits if hit[1] >= least]


def _one_per_lineage(store: Readable, sessions: Sequence[FoundSession]) -> tuple[FoundSession, ...]:
    """Return the best session of each lineage: the one place where conversations are deduplicated."""
    if not any(hit.has_parent for hit in sessions):
        return tuple(sessions)
    lineage = store.lineage()
    best: dict[SessionId, FoundSession] = {}
    for hit in sessions:
        best.setdefault(lineage.root(hit.session_id) if hit.has_parent else hit.session_id, hit)
    return tuple(best.values())


def _request(asked: Asked, asker: Asker) -> SearchRequest:
    return SearchRequest(
        query=asked.query or "",
        limit=asked.limit,
        after=asked.after,
        before=asked.before,
        roles=asked.roles,
        sources=asked.sources,
        project=asked.project,
        session_id=asked.session_id,
        exclude_messages=asker.hidden,
    )


def answer(store: Readable, asked: Asked, asker: Asker, *, budget: int) -> Answered:
    """Return the answer of the discover mode, inside its budget."""
    request, window = _request(asked, asker), None if asked.detail == "index" else asked.window
    conversations = find_conversations(store, request, sort=asked.sort, listed=asked.listed, window=window)
    if conversations.found.period is not None and conversations.matches:
        answered = _list_time(conversations, budget=budget)
    elif conversations.matches:
        start = Caps(1_500, 700, asked.window, BOOKEND, len(conversations.matches))
        render = _render(conversations, asked, asker)
        answered = fit(render, start, budget=budget, is_full=asked.detail == "full")
    else:
        value = {**_nothing(conversations), **_report_unchecked(conversations.found)}
        answered = Answered(value, tokens(dumps(value)))
    return replace(answered, found=conversations)


def _list_time(conversations: Conversations, *, budget: int) -> Answered:
    """Return the conversations of a time by day, one short object each."""
    period = conversations.found.period
    assert period is not None
    rows: list[dict[str, JSON]] = [
        {
            "day": f"{day:%Y-%m-%d, %A}",
            "session_id": match.session.id,
            "title": match.session.title,
            "when": when(match.message.timestamp),
            "source": match.session.source,
            "message_count": match.session.message_count,
            "match_message_id": match.message.id,
            "snippet": one_line(match.message.message.display_text, width=SNIPPET_CHARS),
        }
        for day, matches in by_day(conversations.matches)
        for match in matches
    ]

    def render(caps: Caps) -> dict[str, JSON]:
        value: dict[str, JSON] = {"success": True, "mode": "timeline", "time": describe(period)}
        value |= {"results": [*rows[: caps.results]], "count": min(caps.results, len(rows))}
        left = len(rows) - caps.results + conversations.more
        if left > 0:
            value["note"] = f"{left} more conversations of that time: ask for a shorter time, or a greater limit"
        return value

    return fit(render, Caps(0, 0, 0, 0, len(rows)), budget=budget)


def _render(conversations: Conversations, asked: Asked, asker: Asker) -> Callable[[Caps], dict[str, JSON]]:
    matches = conversations.matches
    marker = Marker(conversations.found.terms)

    def render(caps: Caps) -> dict[str, JSON]:
        shown: list[JSON] = []
        for one in matches[: caps.results]:
            if asked.detail == "index":
                value = index_shown(one.session, one.message, marker=marker)
            else:
                value = passage_shown(one.passage, caps=caps, marker=marker, hidden=asker.hidden)
            shown.append(value if one.superseded_by is None else {**value, "superseded_by": one.superseded_by})
        value = {"success": True, "mode": "discover", "results": shown, "count": len(shown)}
        left = len(matches) - len(shown)
        if left:
            value["note"] = f"{left} more did not fit: ask with a smaller limit, or detail: index"
        return {**value, **_report_unchecked(conversations.found)}

    return render


def _report_unchecked(found: Found) -> dict[str, JSON]:
    """Return a note about messages that may match an explicit query too but were not tested."""
    if not found.unchecked:
        return {}
    return {"unchecked": f"{describe_unchecked(found)}: narrow it with after and before, or add a rarer word"}


def describe_unchecked(found: Found) -> str:
    """Return a sentence about the messages that were not read."""
    return f"at least {found.unchecked:,} older messages may match as well and were not read"


def _nothing(conversations: Conversations) -> dict[str, JSON]:
    mode = "discover" if conversations.found.period is None else "timeline"
    value: dict[str, JSON] = {"success": True, "mode": mode, "results": [], "count": 0}
    if conversations.reason is not None:
        value["reason"] = conversations.reason
    if conversations.nearest:
        value["nearest"] = [
            {"session_id": session.id, "title": session.title, "when": when(session.started)}
            for session in conversations.nearest
        ]
    return value


def _nearest(store: Readable, ranked: Sequence[FoundSession]) -> list[Session]:
    """Return the sessions that come closest, best first."""
    known = [store.session(hit.session_id) for hit in ranked]
    return [session for session in known if session is not None]


_READ_CHARACTERS = 400
"""The beginning of a query in which an impossible date is looked for."""


def why(store: Readable, request: SearchRequest, found: Found) -> str:
    """Return why nothing was found; a search without the filters shows what they exclude."""
    in_context = found.excluded.get("current conversation", 0)
    if found.period is not None and not in_context:
        return f"there is no conversation of that time ({describe(found.period)})"
    filters = _filters(request) if found.period is None else []
    if filters:
        free = replace(request, sources=(), roles=(), project=None, after=None, before=None, session_id=None)
        without = store.search(free)
        if without.messages and not without.abstained:
            return f"the filters ({', '.join(filters)}) excluded {_hits(without, request.limit)}: widen or drop them"
    if found.period is not None:
        return "the only conversation of that time is the current one, which you can see"
    if in_context:
        return f"everything that matched ({in_context} messages) lies in the current conversation, which you can see"
    elsewhere = found.excluded.get("hidden source", 0)
    if elsewhere:
        return f"{elsewhere} found in sessions of sub-agents, tools or reviews: name one as source to see them"
    return _explain_query(request.query)


def _explain_query(query: str) -> str:
    """Return what may be wrong with a query that nothing matched."""
    if not query.strip():
        return "there are no words to find: give a question, words, or a time"
    impossible = find_impossible_date(query[:_READ_CHARACTERS], 0.0)
    if impossible is not None:
        return f"nothing matched, and {impossible!r} is no day of the calendar: check the day and the month"
    return "nothing matched: try other or fewer words"


def _filters(request: SearchRequest) -> list[str]:
    values = {
        "source": request.sources,
        "role": request.roles,
        "project": request.project,
        "session": request.session_id,
        "after": request.after,
        "before": request.before,
    }
    return [name for name, value in values.items() if value not in (None, ())]


def _hits(found: Found, most: int) -> str:
    """Return the number of hits in words; neighbours of hits do not count."""
    count = sum(1 for one in found.messages if one.parts.get("words") or one.parts.get("meaning"))
    more = " or more" if len(found.messages) >= most else ""
    return f"{count} hit{'' if count == 1 and not more else 's'}{more}"


_DATE_BEFORE_DAYS: Final = 1.0
_DATE_AFTER_DAYS: Final = 5.0
"""Days after which nearness to a date has fallen to 1/e; people report events days later, rarely before."""


def list_conversations(catalog: Catalog, request: SearchRequest, period: Period) -> Found:
    """Return the sessions of a time in its order, each with what the person first said then."""
    conditions = _filter(request)._replace(after=period.start, before=period.end)
    limit = 1 if period.is_one else request.limit
    total, rows = catalog.timeline(conditions, limit, is_oldest_first=period.order == "oldest")
    heads = catalog.messages([number for _, number in rows])
    known = [(name, number) for name, number in rows if number in heads]
    known.sort(key=lambda row: heads[row[1]].timestamp, reverse=period.order == "newest")
    excluded = _count_excluded(catalog, conditions) if not known else {}
    return Found(
        sessions=tuple(FoundSession(SessionId(name), 0.0, MessageId(number)) for name, number in known),
        messages=tuple(
            FoundMessage(MessageId(number), SessionId(name), heads[number].external_id, 0.0) for name, number in known
        ),
        excluded=excluded,
        candidates=len(known) if period.is_one else total,
        period=period,
    )


def add_time(found: Found, catalog: Catalog, request: SearchRequest, dates: Sequence[Span]) -> Found:
    """Return `found` with the sessions of the time that the question names, where nothing matched well enough."""
    near = Period(min(span.start for span in dates), max(span.end for span in dates))
    return replace(found, of_time=list_conversations(catalog, request, near).sessions)


def _count_excluded(catalog: Catalog, conditions: TimeFilter) -> dict[str, int]:
    """Return how many sessions of an empty time only the caller's own context hides."""
    if not conditions.exclude_messages and not conditions.exclude_sessions:
        return {}
    total, _ = catalog.timeline(conditions._replace(exclude_sessions=(), exclude_messages=frozenset()), 1)
    return {"current conversation": total} if total else {}


def by_day(matches: Iterable[Match]) -> Iterator[tuple[date, Sequence[Match]]]:
    """Yield the matches of a time by the days of the local calendar, in their order."""
    days: dict[date, list[Match]] = {}
    for match in matches:
        days.setdefault(from_epoch(match.message.timestamp).astimezone().date(), []).append(match)
    yield from days.items()


def describe(period: Period) -> str:
    """Return the days of a period in words, such as "2026-11-09 to 2026-11-15"."""
    first = _day(period.start)
    last = _day(None if period.end is None else period.end - 1.0)
    if first and last:
        return first if first == last else f"{first} to {last}"
    if first or last:
        return f"since {first}" if first else f"until {last}"
    return "all time"


def _day(epoch: float | None) -> str:
    if epoch is None:
        return ""
    try:
        return f"{from_epoch(epoch).astimezone():%Y-%m-%d}"
    except (OverflowError, ValueError, OSError):
        return str(epoch)


def session_nearness(spans: Iterable[Span], started: float, last_active: float) -> float:
    """Return how near a session is to the nearest of several times, 0 to 1."""
    wide = (Span(min(span.start, last_active), max(span.end, started)) for span in spans)
    return max((nearness(span, started) for span in wide), default=0.0)


def nearness(span: Span, moment: float) -> float:
    """Return 1 inside `span`, less with every day before or after it."""
    days = span.distance(moment) / DAY_SECONDS
    if days == 0.0:
        return 1.0
    return exp(-days / (_DATE_BEFORE_DAYS if moment < span.start else _DATE_AFTER_DAYS))


_MOST_CHARACTERS: Final = 160
"""No title is longer; a longer query is a text."""
_LEAST_CHARACTERS: Final = 4
"""Shorter words differ by one letter from too many others."""
_ALIKE: Final = 0.85
"""The share of characters in common from which two spellings are one."""
_MOST_FOUND: Final = 5
_SCORE: Final = 1.0


def add_titled(found: Found, catalog: Catalog, request: SearchRequest) -> Found:
    """Return `found` led by the conversations with the title that the query is.

    A question is no title: what was asked before in the same words answers nothing.
    """
    title = storable(request.query.strip())
    if not title or len(title) > _MOST_CHARACTERS or request.session_id is not None:
        return found
    named = catalog.titled(title)
    if not named and (found.abstained or not found.sessions) and len(title) >= _LEAST_CHARACTERS:
        named = _find_similar(catalog, title)
    first = [hit for name in named[:_MOST_FOUND] for hit in _list_first(catalog, request, name)]
    heads = catalog.messages([number for _, number in first]) if first else {}
    hits = [(name, number) for name, number in first if number in heads]
    if not hits:
        return found
    score = max((hit.score for hit in found.sessions[:1]), default=_SCORE) if not found.abstained else _SCORE
    parts = {"title": score}
    sessions = [FoundSession(SessionId(name), score, MessageId(number), parts) for name, number in hits]
    messages = [
        FoundMessage(MessageId(number), SessionId(name), heads[number].external_id, score, parts)
        for name, number in hits
    ]
    known, shown = {hit.session_id for hit in sessions}, {hit.message_id for hit in messages}
    others = [] if found.abstained else [hit for hit in found.sessions if hit.session_id not in known]
    rest = [] if found.abstained else [hit for hit in found.messages if hit.message_id not in shown]
    return replace(found, sessions=(*sessions, *others), messages=(*messages, *rest), abstained=False, of_time=())


def _find_similar(catalog: Catalog, query: str) -> list[str]:
    """Return the sessions whose title has all words of the query, or is spelled nearly as it is; the likest first."""
    wanted, folded = {term.text for term in parse(query).terms}, query.casefold()
    if not wanted:
        return []
    alike: list[tuple[float, str]] = []
    for name, title in catalog.titles():
        matcher = SequenceMatcher(None, folded, title.casefold(), autojunk=False)
        share = matcher.ratio() if matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE else 0.0
        if share < _ALIKE and wanted <= {term.text for term in parse(title).terms}:
            share = _ALIKE
        if share >= _ALIKE:
            alike.append((share, name))
    return [name for _, name in sorted(alike, key=lambda each: -each[0])]


def _list_first(catalog: Catalog, request: SearchRequest, session_id: str) -> list[tuple[str, int]]:
    """Return the session with the first thing that a person said in it; nothing where a filter excludes it."""
    conditions = _filter(request)._replace(session_id=session_id)
    return catalog.timeline(conditions, 1)[1]


def _filter(request: SearchRequest) -> TimeFilter:
    return TimeFilter(
        after=request.after,
        before=request.before,
        project=request.project,
        sources=request.sources,
        hidden_sources=() if request.sources else tuple(sorted(HIDDEN_SOURCES)),
        roles=request.roles,
        session_id=request.session_id,
        exclude_sessions=request.exclude_sessions,
        exclude_messages=request.exclude_messages,
    )

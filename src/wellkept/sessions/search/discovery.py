"""The one search of every surface: the conversations that answer a question best, or why there are none."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.search import FoundSession, SearchRequest
from wellkept.core.text import dumps, one_line, split_words
from wellkept.languages.dates import find_impossible_date
from wellkept.sessions.recall import SNIPPET_CHARS, Answered, Caps, fit, index_shown, passage_shown, tokens, when
from wellkept.sessions.search.answers import Answers, find_answers
from wellkept.sessions.search.conversations import by_day, describe
from wellkept.sessions.search.occurrences import Marker
from wellkept.sessions.search.query import asks, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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

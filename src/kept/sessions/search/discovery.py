"""The one search of every surface: the conversations that answer a question best, or why there are none."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from kept.core.search import FoundSession, SearchRequest
from kept.core.text import one_line
from kept.core.values import dataclass, field, replace
from kept.sessions.recall import SNIPPET_CHARS, Answered, Caps, Passage, fit, index_shown, passage, passage_shown, when
from kept.sessions.search.answers import Answers, find_answers
from kept.sessions.search.occurrences import Marker
from kept.sessions.search.periods import by_day, describe
from kept.sessions.search.query import is_asking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kept.core.ids import MessageId, SessionId
    from kept.core.messages import Session, StoredMessage
    from kept.core.search import Found
    from kept.core.text import JSON
    from kept.sessions.arguments import Asked, Asker, Sort
    from kept.sessions.ports import Readable

CANDIDATES = 40
"""Sessions that are ranked at least where the order is by time, and at most four times the limit otherwise."""
OVERSAMPLING = 4
"""Sessions ranked for each conversation wanted: a long conversation has many, of which only the best one counts."""
NEAREST = 3
_NOT_GOOD_ENOUGH = (
    "nothing matched well enough; `nearest` names the closest sessions: try other words, or read one of them"
)

_NOTHING_OF_TIME = "no message matches these words well enough; `nearest` lists the conversations of that time"


@dataclass(frozen=True, slots=True)
class Match:
    """One conversation that was found, with its best message."""

    session: Session
    """The session of the conversation that contains the message."""
    message: StoredMessage
    score: float
    superseded_by: MessageId | None = None
    """The later message that corrects this one."""


@dataclass(frozen=True, slots=True)
class Conversations:
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


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a query found, ready to be shown."""

    found: Found
    passages: tuple[Passage, ...]
    superseded: Mapping[MessageId, MessageId]


def find_conversations(
    store: Readable, request: SearchRequest, *, sort: Sort | None = None, listed: int = 0
) -> Conversations:
    """Return the conversations that answer `request` best, at most `request.limit`.

    The sessions of one lineage (compressions and branches) are one conversation and count once. A question that is
    only about a time is answered by the conversations of that time, at least `listed` of them.
    """
    wide = replace(request, limit=_ranking_limit(request.limit, sort))
    answers = find_answers(store, wide) if is_asking(request.query) else Answers(store.search(wide))
    found = answers.found
    if found.period is not None and found.period.start is not None and listed > request.limit:
        request = replace(request, limit=listed)
        found = store.search(replace(request, limit=OVERSAMPLING * listed))
        answers = Answers(found)
    ranked = _one_per_lineage(store, found.sessions)
    best = ranked[: request.limit]
    matches = () if found.abstained else _matches(store, answers, ranked, request, sort=sort)
    if matches:
        more = len(ranked) - len(matches) + max(0, found.candidates - len(found.sessions))
        more = more if found.period is not None else 0
        return Conversations(matches, found, best, superseded=answers.superseded, more=more)
    if found.of_time:
        of_time = _one_per_lineage(store, found.of_time)[: max(NEAREST, request.limit)]
        return Conversations((), found, best, tuple(_nearest(store, of_time)), _NOTHING_OF_TIME)
    if found.sessions:
        return Conversations((), found, best, tuple(_nearest(store, ranked[:NEAREST])), _NOT_GOOD_ENOUGH)
    return Conversations((), found, best, (), why(store, request, found))


def _ranking_limit(limit: int, sort: Sort | None) -> int:
    return max(limit, CANDIDATES if sort is not None else min(CANDIDATES, OVERSAMPLING * limit))


def _matches(
    store: Readable, answers: Answers, ranked: Sequence[FoundSession], request: SearchRequest, *, sort: Sort | None
) -> tuple[Match, ...]:
    matches = _inside(store, answers.found) if request.session_id is not None else _of_sessions(store, ranked)
    if sort is None:
        chosen = list(islice(matches, request.limit))
    else:
        by_time = sorted(matches, key=lambda match: match.message.timestamp, reverse=sort == "newest")
        chosen = by_time[: request.limit]
    later = answers.superseded
    return tuple(replace(match, superseded_by=later.get(match.message.id)) if later else match for match in chosen)


def _inside(store: Readable, found: Found) -> Iterator[Match]:
    for hit in found.messages:
        match = _match(store, hit.session_id, hit.message_id, hit.score)
        if match is not None:
            yield match


def _one_per_lineage(store: Readable, sessions: Sequence[FoundSession]) -> tuple[FoundSession, ...]:
    """Return the best session of each lineage: the one place where conversations are deduplicated."""
    lineage = store.lineage()
    best: dict[SessionId, FoundSession] = {}
    for hit in sessions:
        best.setdefault(lineage.root(hit.session_id), hit)
    return tuple(best.values())


def _of_sessions(store: Readable, ranked: Sequence[FoundSession]) -> Iterator[Match]:
    for hit in ranked:
        match = _match(store, hit.session_id, hit.best_message_id, hit.score)
        if match is not None:
            yield match


def _match(store: Readable, session_id: SessionId, message_id: MessageId, score: float) -> Match | None:
    """Return the match, or None when it was removed since the search."""
    session, message = store.session(session_id), store.message(message_id)
    return None if session is None or message is None else Match(session, message, score)


def _discovery(store: Readable, conversations: Conversations, asked: Asked) -> Discovery:
    passages = (passage(store, match.message, window=asked.window) for match in conversations.matches)
    return Discovery(conversations.found, tuple(one for one in passages if one is not None), conversations.superseded)


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
    conversations = find_conversations(store, _request(asked, asker), sort=asked.sort, listed=asked.listed)
    if conversations.found.period is not None and conversations.matches:
        return Answered(_list_time(conversations, budget=budget), conversations)
    discovery = _discovery(store, conversations, asked)
    if not discovery.passages:
        return Answered({**_nothing(conversations), **_report_unchecked(discovery.found)}, conversations)
    start = Caps(1_500, 700, asked.window, 3, len(discovery.passages))
    render = _render(discovery, asked, asker)
    return Answered(dict(fit(render, start, budget=budget, is_full=asked.detail == "full")), conversations)


def _list_time(conversations: Conversations, *, budget: int) -> dict[str, JSON]:
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

    return dict(fit(render, Caps(0, 0, 0, 0, len(rows)), budget=budget))


def _render(discovery: Discovery, asked: Asked, asker: Asker) -> Callable[[Caps], dict[str, JSON]]:
    marker = Marker(discovery.found.terms)

    def render(caps: Caps) -> dict[str, JSON]:
        shown: list[JSON] = []
        for one in discovery.passages[: caps.results]:
            if asked.detail == "index":
                value = index_shown(one.session, one.match, marker=marker)
            else:
                value = passage_shown(one, caps=caps, marker=marker, hidden=asker.hidden)
            later = discovery.superseded.get(one.match.id)
            shown.append(value if later is None else {**value, "superseded_by": later})
        value = {"success": True, "mode": "discover", "results": shown, "count": len(shown)}
        left = len(discovery.passages) - len(shown)
        if left:
            value["note"] = f"{left} more did not fit: ask with a smaller limit, or detail: index"
        return {**value, **_report_unchecked(discovery.found)}

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
    value: dict[str, JSON] = {"success": True, "mode": "discover", "results": [], "count": 0}
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

"""The one search of every surface: the conversations that answer a question best, or why there are none.

It also explains the place of a single message: its rank and the parts of its score, or what kept it out.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.messages import Origin
from wellkept.core.search import SearchRequest
from wellkept.core.text import split_words
from wellkept.languages.dates import find_impossible_date
from wellkept.sessions.search.answers import Answers, find_answers
from wellkept.sessions.search.periods import describe
from wellkept.sessions.search.query import asks, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from wellkept.core.ids import MessageId, SessionId, SourceName
    from wellkept.core.messages import Passage, Session, StoredMessage
    from wellkept.core.search import Explained, Found, FoundSession, Period, Sort, TermMatch
    from wellkept.core.text import JSON
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
_REPEATED_WORDS, _LEAST_REPEATED = 6, 3
_READ_CHARACTERS = 400
"""The beginning of a query in which an impossible date is looked for."""
_NOT_GOOD_ENOUGH = (
    "nothing matched well enough; `nearest` names the closest sessions: try other words, or read one of them"
)
_NOTHING_OF_TIME = "no message matches these words well enough; `nearest` lists the conversations of that time"
Outcome: TypeAlias = Literal["shown", "duplicate", "below_limit", "unsure", "no_candidate", "excluded"]


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
    times = OVERSAMPLING if is_asked else OVERSAMPLING_OF_WORDS
    least = CANDIDATES if sort is not None else min(CANDIDATES, times * request.limit)
    wide = replace(request, limit=max(request.limit, least))
    answers = find_answers(store, wide) if is_asked else Answers(store.search(wide))
    found = answers.found
    if found.period is not None and found.period.is_bounded and listed > request.limit:
        request = replace(request, limit=listed)
        found = store.search(replace(request, limit=OVERSAMPLING * listed))
        answers = Answers(found)
    ranked = _one_per_lineage(store, found.sessions)
    if len(ranked) < request.limit and len(found.sessions) == wide.limit < CANDIDATES and not is_asked:
        # the sessions of a few conversations took all places
        found = store.search(replace(request, limit=CANDIDATES))
        answers, ranked = Answers(found), _one_per_lineage(store, found.sessions)
    best = ranked[: request.limit]
    matches = () if found.abstained else _choose_matches(store, answers, ranked, request, sort=sort, window=window)
    if is_asked and sort is None:
        matches = tuple(sorted(matches, key=lambda match: repeats_question(match.message, request.query)))
    if matches:
        more = len(ranked) - len(matches) + max(0, found.candidates - len(found.sessions))
        more = more if found.period is not None else 0
        return Conversations(matches, found, best, superseded=answers.superseded, more=more, dropped=answers.dropped)
    if found.of_time:
        nearest = _one_per_lineage(store, found.of_time)[: max(NEAREST, request.limit)]
        reason = _NOTHING_OF_TIME
    elif found.sessions:
        nearest, reason = ranked[:NEAREST], _NOT_GOOD_ENOUGH
    else:
        nearest, reason = (), _explain_empty(store, request, found)
    sessions = [store.session(hit.session_id) for hit in nearest]
    return Conversations((), found, best, tuple(session for session in sessions if session is not None), reason)


def repeats_question(message: StoredMessage, query: str) -> bool:
    """Whether a text of others repeats the question word for word: it was written to be found, not to answer."""
    if message.source is None:
        return False
    words = split_words(query)
    length = min(_REPEATED_WORDS, len(words))
    if length < _LEAST_REPEATED:
        return False
    text = f" {' '.join(split_words(message.message.text))} "
    runs = (" ".join(words[start : start + length]) for start in range(len(words) - length + 1))
    return any(f" {run} " in text for run in runs)


def _choose_matches(
    store: Readable,
    answers: Answers,
    ranked: Sequence[FoundSession],
    request: SearchRequest,
    *,
    sort: Sort | None,
    window: int | None,
) -> tuple[Match, ...]:
    """Return the best matches with their passages; with `sort`, those that are about the question in order of time."""
    hits = [(hit.best_message_id, hit.score) for hit in ranked]
    if request.session_id is not None:
        hits = [(hit.message_id, hit.score) for hit in answers.found.messages]
    if sort is not None:
        # an order by time would put the weakest matches first; what fulfils an explicit query is about it anyway
        least = _SHARE_OF_BEST * max((score for _, score in hits), default=0.0)
        is_explicit = parse(request.query).condition is not None
        relevant = _read_matches(store, (hit for hit in hits if is_explicit or hit[1] >= least))
        by_time = sorted(relevant, key=lambda match: match.message.timestamp, reverse=sort == "newest")
        hits = [(match.message.id, match.score) for match in by_time[: request.limit]]
    chosen = islice(_read_matches(store, hits, window), request.limit)
    later = answers.superseded
    return tuple(replace(match, superseded_by=later.get(match.message.id)) if later else match for match in chosen)


def _read_matches(
    store: Readable, hits: Iterable[tuple[MessageId, float]], window: int | None = None
) -> Iterator[Match]:
    """Yield a match for each message that was not removed since the search; without a window, the message alone."""
    size, bookend = (0, 0) if window is None else (window, BOOKEND)
    for message_id, score in hits:
        passage = store.passage(message_id, window=size, bookend=bookend)
        if passage is not None:
            yield Match(passage, score)


def _one_per_lineage(store: Readable, sessions: Sequence[FoundSession]) -> tuple[FoundSession, ...]:
    """Return the best session of each lineage: the one place where conversations are deduplicated."""
    if not any(hit.has_parent for hit in sessions):
        return tuple(sessions)
    lineage = store.lineage()
    best: dict[SessionId, FoundSession] = {}
    for hit in sessions:
        best.setdefault(lineage.root(hit.session_id) if hit.has_parent else hit.session_id, hit)
    return tuple(best.values())


def describe_unchecked(found: Found) -> str:
    """Return a sentence about the messages that were not read."""
    return f"at least {found.unchecked:,} older messages may match as well and were not read"


def _explain_empty(store: Readable, request: SearchRequest, found: Found) -> str:
    """Return why nothing was found; a search without the filters shows what they exclude."""
    in_context = found.excluded.get("current conversation", 0)
    elsewhere = found.excluded.get("hidden source", 0)
    reason = "nothing matched: try other or fewer words"
    if found.period is not None and not in_context:
        reason = f"there is no conversation of that time ({describe(found.period)})"
    elif found.period is not None:
        reason = "the only conversation of that time is the current one, which you can see"
    elif (excluded := _explain_filters(store, request)) is not None:
        reason = excluded
    elif in_context:
        reason = f"everything that matched ({in_context} messages) lies in the current conversation, which you can see"
    elif elsewhere:
        reason = f"{elsewhere} found in sessions of sub-agents, tools or reviews: name one as source to see them"
    elif not request.query.strip():
        reason = "there are no words to find: give a question, words, or a time"
    elif (impossible := find_impossible_date(request.query[:_READ_CHARACTERS], 0.0)) is not None:
        reason = f"nothing matched, and {impossible!r} is no day of the calendar: check the day and the month"
    return reason


def _explain_filters(store: Readable, request: SearchRequest) -> str | None:
    """Return how much the filters exclude, None if nothing is found without them either."""
    values = {
        "source": request.sources,
        "role": request.roles,
        "project": request.project,
        "session": request.session_id,
        "after": request.after,
        "before": request.before,
    }
    filters = [name for name, value in values.items() if value not in (None, ())]
    if not filters:
        return None
    free = replace(request, sources=(), roles=(), project=None, after=None, before=None, session_id=None)
    without = store.search(free)
    if not without.messages or without.abstained:
        return None
    # neighbours of hits, which have no such part, do not count
    count = sum(1 for hit in without.messages if hit.parts.get("words") or hit.parts.get("meaning"))
    more = " or more" if len(without.messages) >= request.limit else ""
    hits = f"{count} hit{'' if count == 1 and not more else 's'}{more}"
    return f"the filters ({', '.join(filters)}) excluded {hits}: widen or drop them"


class Place(Struct, frozen=True):
    """A conversation at a place of the answer, with the message that stands for it."""

    rank: int
    message_id: MessageId
    score: float

    def as_json(self) -> dict[str, JSON]:
        """Return rank, message and score."""
        return {"rank": self.rank, "message_id": self.message_id, "score": round(self.score, 6)}


class Explanation(Struct, frozen=True):
    """Why a message is shown for a question, or why it is absent."""

    message_id: MessageId
    session_id: SessionId | None
    outcome: Outcome
    reason: str
    """The outcome as a sentence."""
    rank: int | None = None
    """The place of its conversation in the answer, from 1; inside one session, of the message itself."""
    message_rank: int | None = None
    """Its place among all ranked messages."""
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    """The parts whose sum is the score."""
    terms: tuple[TermMatch, ...] = ()
    excluded_by: str | None = None
    instead: Place | None = None
    """The message that the answer shows for the same conversation."""
    last_shown: Place | None = None
    """The last conversation inside the limit."""
    source: SourceName | None = None
    """Where the text of the message came from; None for its author's own words."""

    def as_json(self) -> dict[str, JSON]:
        """Return the explanation; absent values are null."""
        return {
            "message_id": self.message_id,
            "session_id": self.session_id,
            "outcome": self.outcome,
            "reason": self.reason,
            "rank": self.rank,
            "message_rank": self.message_rank,
            "score": None if self.score is None else round(self.score, 6),
            "parts": {name: round(value, 6) for name, value in self.parts.items()},
            "terms": [
                {"term": term.text, "weight": round(term.weight, 6), "in_message": term.is_held} for term in self.terms
            ],
            "excluded_by": self.excluded_by,
            "instead": None if self.instead is None else self.instead.as_json(),
            "last_shown": None if self.last_shown is None else self.last_shown.as_json(),
            **({"from": self.source} if self.source is not None else {}),
        }


def explain(store: Readable, request: SearchRequest, message: StoredMessage) -> Explanation:
    """Return how the search that answers `request` treats one of the user's messages."""
    conversations = find_conversations(store, replace(request, explain=message.id))
    if conversations.found.period is not None:
        return _explain_time(message, conversations, conversations.found.period)
    explained = conversations.found.explained
    assert explained is not None
    if message.id in conversations.dropped or message.origin is Origin.LOOKUP:
        reason = "it is a question to the memory itself, which tells nothing"
        return Explanation(message.id, message.session_id, "excluded", reason, excluded_by="question")
    places = _list_places(store, request, conversations, explained.sessions, message)
    base = Explanation(
        message.id,
        message.session_id,
        "no_candidate",
        "",
        message_rank=explained.rank,
        score=explained.score,
        parts=explained.parts,
        terms=explained.terms,
        last_shown=places[min(request.limit, len(places)) - 1][1] if places else None,
    )
    if explained.stage != "ranked":
        return _explain_absence(base, explained)
    if request.session_id is not None:
        return _explain_rank(base, base.message_rank or 0, conversations, request)
    root = store.lineage().root(message.session_id)
    place = next(place for conversation, place in places if conversation == root)
    if place.message_id == message.id:
        return _explain_rank(base, place.rank, conversations, request)
    shown = "is shown" if place.rank <= request.limit else "is ranked, below the limit,"
    reason = f"its conversation {shown} once, at rank {place.rank}, by message {place.message_id}"
    return replace(base, outcome="duplicate", rank=place.rank, instead=place, reason=reason)


def _explain_time(message: StoredMessage, conversations: Conversations, period: Period) -> Explanation:
    """Return the explanation where the question is only about a time, so that nothing is ranked."""
    listed = [match.message.id for match in conversations.matches]
    time = f"the question is only about a time ({describe(period)})"
    if message.id in listed:
        rank = listed.index(message.id) + 1
        reason = f"{time}, and it is the first that was said then in its conversation"
        return Explanation(message.id, message.session_id, "shown", reason, rank=rank)
    outside = (period.start is not None and message.timestamp < period.start) or (
        period.end is not None and message.timestamp >= period.end
    )
    if outside:
        return Explanation(message.id, message.session_id, "excluded", time, excluded_by="time")
    reason = f"{time}: each conversation is shown by the first that was said then"
    return Explanation(message.id, message.session_id, "duplicate", reason)


def _list_places(
    store: Readable,
    request: SearchRequest,
    conversations: Conversations,
    ranked: Sequence[FoundSession],
    message: StoredMessage,
) -> list[tuple[SessionId, Place]]:
    """Return the best message of each conversation in order, or inside one session all messages."""
    found = conversations.found
    if request.session_id is not None:
        messages = enumerate(found.messages, start=1)
        return [(hit.session_id, Place(rank, hit.message_id, hit.score)) for rank, hit in messages]
    if conversations.dropped:
        # a question to the memory itself stands for no conversation
        others = {message.session_id: message.id} | {hit.session_id: hit.best_message_id for hit in found.sessions}
        kept = [hit for hit in ranked if hit.best_message_id not in conversations.dropped]
        anchors = others | {hit.session_id: hit.best_message_id for hit in kept}
        ranked = [replace(hit, best_message_id=anchors[hit.session_id]) for hit in ranked if hit.session_id in anchors]
    lineage = store.lineage()
    best: dict[SessionId, FoundSession] = {}
    for hit in ranked:
        best.setdefault(lineage.root(hit.session_id), hit)
    return [(root, Place(rank, hit.best_message_id, hit.score)) for rank, (root, hit) in enumerate(best.items(), 1)]


def _explain_rank(base: Explanation, rank: int, conversations: Conversations, request: SearchRequest) -> Explanation:
    """Return the explanation of a message that stands for its conversation."""
    if conversations.found.abstained:
        reason = "the best matches contain too little of the question, so the search shows none"
        return replace(base, outcome="unsure", rank=rank, reason=reason)
    if rank <= request.limit:
        return replace(base, outcome="shown", rank=rank, reason=f"shown at rank {rank}")
    last = base.last_shown
    beyond = f"; the last one shown has {last.score:.3f}" if last is not None else ""
    reason = f"at rank {rank}, below the limit of {request.limit}{beyond}"
    return replace(base, outcome="below_limit", rank=rank, reason=reason)


def _explain_absence(base: Explanation, explained: Explained) -> Explanation:
    match explained.stage:
        case "excluded":
            name = explained.excluded_by
            return replace(base, outcome="excluded", excluded_by=name, reason=f"the filter {name!r} excludes it")
        case "condition":
            reason = "it does not fulfil the words that the query requires"
            return replace(base, outcome="excluded", excluded_by="query", reason=reason)
        case "session" | "unread":
            reason = "other messages and sessions match more of the question; its score was not computed in full"
            return replace(base, outcome="below_limit", reason=reason)
    missing = [repr(term.text) for term in base.terms if not term.is_held]
    if not base.terms:
        reason = "the question has no word to search for"
    elif len(missing) == len(base.terms):
        reason = f"it contains none of the words: {', '.join(missing)}"
    elif missing:
        reason = f"too few words: it lacks {', '.join(missing)}"
    else:
        reason = "other messages contain these words in a better place, and this one was not considered"
    return replace(base, outcome="no_candidate", reason=reason)

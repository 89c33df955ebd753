"""Why a search shows a message, or why not: its rank and the parts of its score, or what kept it out."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.ids import MessageId, SessionId, SourceName
from wellkept.core.messages import Origin, StoredMessage
from wellkept.core.search import Explained, FoundSession, Period, SearchRequest, TermMatch
from wellkept.core.text import JSON
from wellkept.sessions.ports import Readable
from wellkept.sessions.search.discovery import Conversations, describe, find_conversations

Outcome: TypeAlias = Literal["shown", "duplicate", "below_limit", "unsure", "no_candidate", "excluded"]


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
                {"term": one.text, "weight": round(one.weight, 6), "in_message": one.is_held} for one in self.terms
            ],
            "excluded_by": self.excluded_by,
            "instead": None if self.instead is None else self.instead.as_json(),
            "last_shown": None if self.last_shown is None else self.last_shown.as_json(),
            **({"from": self.source} if self.source is not None else {}),
        }


def explain(store: Readable, request: SearchRequest, message: StoredMessage) -> Explanation:
    """Return how the search that answers `request` treats one of the user's messages."""
    found = find_conversations(store, replace(request, explain=message.id))
    if found.found.period is not None:
        return _explain_time(message, found, found.found.period)
    explained = found.found.explained
    assert explained is not None
    if message.id in found.dropped or message.origin is Origin.LOOKUP:
        reason = "it is a question to the memory itself, which tells nothing"
        return Explanation(message.id, message.session_id, "excluded", reason, excluded_by="question")
    sessions = _drop_questions(explained.sessions, found, message)
    places = _places(store, sessions) if request.session_id is None else _message_places(found)
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
        return _absent(base, explained)
    if request.session_id is not None:
        return _judge(base, base.message_rank or 0, found, request)
    root = store.lineage().root(message.session_id)
    place = next(place for key, place in places if key == root)
    if place.message_id != message.id:
        return _duplicate(base, place, request)
    return _judge(base, place.rank, found, request)


def _explain_time(message: StoredMessage, found: Conversations, period: Period) -> Explanation:
    """Return the explanation where the question is only about a time, so that nothing is ranked."""
    listed = [match.message.id for match in found.matches]
    time = f"the question is only about a time ({describe(period)})"
    if message.id in listed:
        rank = listed.index(message.id) + 1
        reason = f"{time}, and it is the first that was said then in its conversation"
        return Explanation(message.id, message.session_id, "shown", reason, rank=rank)
    outside = (period.start is not None and message.timestamp < period.start) or (
        period.end is not None and message.timestamp >= period.end
    )
    if outside:
        return Explanation(message.id, message.session_id, "excluded", f"{time}", excluded_by="time")
    reason = f"{time}: each conversation is shown by the first that was said then"
    return Explanation(message.id, message.session_id, "duplicate", reason)


def _drop_questions(
    sessions: Sequence[FoundSession], found: Conversations, message: StoredMessage
) -> Sequence[FoundSession]:
    """Return the sessions as the search shows them: a question to the memory itself stands for none of them."""
    if not found.dropped:
        return sessions
    others = {message.session_id: message.id} | {hit.session_id: hit.best_message_id for hit in found.found.sessions}
    shown = {hit.session_id: hit.best_message_id for hit in sessions if hit.best_message_id not in found.dropped}
    best = others | shown
    return [replace(hit, best_message_id=best[hit.session_id]) for hit in sessions if hit.session_id in best]


def _places(store: Readable, sessions: Sequence[FoundSession]) -> list[tuple[SessionId, Place]]:
    """Return the best session of each conversation, in order, as the search itself does."""
    lineage = store.lineage()
    best: dict[SessionId, FoundSession] = {}
    for hit in sessions:
        best.setdefault(lineage.root(hit.session_id), hit)
    ranked = enumerate(best.items(), start=1)
    return [(root, Place(rank, hit.best_message_id, hit.score)) for rank, (root, hit) in ranked]


def _message_places(found: Conversations) -> list[tuple[SessionId, Place]]:
    hits = enumerate(found.found.messages, start=1)
    return [(hit.session_id, Place(rank, hit.message_id, hit.score)) for rank, hit in hits]


def _judge(base: Explanation, rank: int, found: Conversations, request: SearchRequest) -> Explanation:
    """Return the explanation of a message that stands for its conversation."""
    if found.found.abstained:
        reason = "the best matches contain too little of the question, so the search shows none"
        return replace(base, outcome="unsure", rank=rank, reason=reason)
    if rank <= request.limit:
        return replace(base, outcome="shown", rank=rank, reason=f"shown at rank {rank}")
    last = base.last_shown
    beyond = f"; the last one shown has {last.score:.3f}" if last is not None else ""
    reason = f"at rank {rank}, below the limit of {request.limit}{beyond}"
    return replace(base, outcome="below_limit", rank=rank, reason=reason)


def _duplicate(base: Explanation, place: Place, request: SearchRequest) -> Explanation:
    shown = "is shown" if place.rank <= request.limit else "is ranked, below the limit,"
    reason = f"its conversation {shown} once, at rank {place.rank}, by message {place.message_id}"
    return replace(base, outcome="duplicate", rank=place.rank, instead=place, reason=reason)


def _absent(base: Explanation, explained: Explained) -> Explanation:
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
        case _:
            return replace(base, outcome="no_candidate", reason=_missing(base.terms))


def _missing(terms: Sequence[TermMatch]) -> str:
    missing = [repr(one.text) for one in terms if not one.is_held]
    if not terms:
        return "the question has no word to search for"
    if len(missing) == len(terms):
        return f"it contains none of the words: {', '.join(missing)}"
    if missing:
        return f"too few words: it lacks {', '.join(missing)}"
    return "other messages contain these words in a better place, and this one was not considered"

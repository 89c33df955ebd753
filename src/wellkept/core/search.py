"""A search over past conversations, and what it found."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from wellkept.core.ids import MessageId, SessionId

Sort: TypeAlias = Literal["newest", "oldest"]


class SearchRequest(Struct, frozen=True):
    """A query with its filters."""

    query: str
    limit: int = 10
    after: float | None = None
    """Epoch seconds; natural-language dates are parsed by the caller."""
    before: float | None = None
    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    project: str | None = None
    session_id: SessionId | None = None
    """Search inside this session only."""
    exclude_sessions: tuple[SessionId, ...] = ()
    exclude_messages: frozenset[int] = frozenset()
    """The active context of the calling conversation."""
    explain: MessageId | None = None
    """Also report how the search treated this message; the answer stays the same."""


class Period(Struct, frozen=True):
    """A time from `start` up to but not including `end`, in epoch seconds; None where it is open."""

    start: float | None
    end: float | None
    order: Literal["newest", "oldest"] = "newest"
    """Which conversations of the time come first."""
    is_one: bool = False
    """Whether only the first of them was asked for: "what was the first thing I said"."""

    @property
    def is_bounded(self) -> bool:
        """Whether a date bounds it, on one side or on both."""
        return self.start is not None or self.end is not None


class FoundMessage(Struct, frozen=True):
    """A message that matched; `parts` are the components of its score."""

    message_id: MessageId
    session_id: SessionId
    external_id: str | None
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)


class FoundSession(Struct, frozen=True):
    """A session that matched, with its best message and the parts of that message's score."""

    session_id: SessionId
    score: float
    best_message_id: MessageId
    parts: Mapping[str, float] = field(default_factory=dict)
    has_parent: bool = True
    """Whether it may belong to a longer conversation: a branch or a compaction of another session."""


Stage: TypeAlias = Literal["absent", "excluded", "condition", "no_candidate", "session", "unread", "ranked"]
"""Where a search left a message: it does not exist for the user; a filter excluded it; it does not fulfil the
explicit query; it is no candidate; its session is not among the best; its first score was too low to read it; ranked.
"""


class TermMatch(Struct, frozen=True):
    """One term of the question with its weight, and whether the message contains it."""

    text: str
    weight: float
    is_held: bool


class Explained(Struct, frozen=True):
    """How a search treated one message."""

    stage: Stage
    excluded_by: str = ""
    """The filter that excluded it."""
    terms: tuple[TermMatch, ...] = ()
    rank: int | None = None
    """Its place among all ranked messages, from 1."""
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    sessions: tuple[FoundSession, ...] = ()
    """All ranked sessions in order."""


class Found(Struct, frozen=True):
    """Ranked sessions and messages; also filled if `abstained` says that none is good enough."""

    sessions: tuple[FoundSession, ...] = ()
    messages: tuple[FoundMessage, ...] = ()
    abstained: bool = False
    terms: tuple[str, ...] = ()
    excluded: Mapping[str, int] = field(default_factory=dict)
    """How many hits each filter removed, by its name."""
    unchecked: int = 0
    """Lower bound of older messages that may also match an explicit query but were too many to read."""
    candidates: int = 0
    """How many messages were considered after the filters; of a period, how many sessions it has."""
    period: Period | None = None
    """Set if the question is only about a time: its sessions are then listed, not ranked."""
    of_time: tuple[FoundSession, ...] = ()
    """If nothing matched well enough: the sessions of the time that the question names."""
    explained: Explained | None = None
    """How the message of `SearchRequest.explain` was treated."""

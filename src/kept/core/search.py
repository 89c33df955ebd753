"""A search over past conversations, and what it found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kept.core.ids import MessageId, SessionId


@dataclass(frozen=True, slots=True)
class SearchRequest:
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


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that matched; `parts` are the components of its score."""

    message_id: MessageId
    session_id: SessionId
    external_id: str | None
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A session that matched, with its best message."""

    session_id: SessionId
    score: float
    best_message_id: MessageId


@dataclass(frozen=True, slots=True)
class Found:
    """Ranked sessions and messages; also filled if `abstained` says that none is good enough."""

    sessions: tuple[FoundSession, ...] = ()
    messages: tuple[FoundMessage, ...] = ()
    abstained: bool = False
    terms: tuple[str, ...] = ()
    excluded: Mapping[str, int] = field(default_factory=dict)
    """How many hits each filter removed, by its name."""
    unchecked: int = 0
    """Lower bound of older messages that may also match an explicit query but were too many to read."""

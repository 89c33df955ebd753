"""A search over past conversations, and what it found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kept.core.ids import MessageId, SessionId


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What is asked, and where not to look."""

    query: str
    limit: int = 10
    after: float | None = None
    """Epoch seconds; natural dates are read before they come here."""
    before: float | None = None
    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    project: str | None = None
    session_id: SessionId | None = None
    """Search inside this session only."""
    exclude_sessions: tuple[SessionId, ...] = ()
    exclude_messages: frozenset[int] = frozenset()
    """The active context of the conversation that asks."""


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that matched; `parts` names what its score is made of."""

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
    """Ranked sessions and messages; filled also when `abstained` says that none is good enough."""

    sessions: tuple[FoundSession, ...] = ()
    messages: tuple[FoundMessage, ...] = ()
    abstained: bool = False
    terms: tuple[str, ...] = ()
    excluded: Mapping[str, int] = field(default_factory=dict)
    """How many hits each filter took away, by the filter's name."""
    unchecked: int = 0
    """How many older messages at least may match an explicit query as well, and were too many to be read."""

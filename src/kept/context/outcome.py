"""What a call of `compress` gives: a compaction, a pruning, or the unchanged context with the reason."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from kept.core.ids import MessageId, SessionId
from kept.core.messages import Message
from kept.core.text import JSON


class Why(StrEnum):
    """Why nothing was changed."""

    BELOW_THRESHOLD = "below_threshold"
    DISABLED = "disabled"
    NOTHING_TO_COMPRESS = "nothing_to_compress"
    NOT_SHORTER = "not_shorter"
    COOLING_DOWN = "cooling_down"
    INEFFECTIVE = "ineffective"
    MODEL_UNREACHABLE = "model_unreachable"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class Compaction:
    """Older messages are replaced by a summary; satisfies `core.ports.Compacting`."""

    messages: tuple[Message, ...]
    """The next request's messages, valid for every API: head, summary, tail."""
    summary: Message
    covered: Sequence[MessageId]
    """Messages that leave the context; the store keeps them, searchable and readable."""
    kept_head: Sequence[MessageId]
    kept_tail: Sequence[MessageId]
    """In order, not always one run: the last user message may stand before covered ones."""
    tokens_before: int
    tokens_after: int
    strictness: int = 1
    """Which of the three passes got there."""
    by_rule: bool = False
    note: str = ""
    """What a person should be told; empty when they were told already."""
    in_place: bool = False
    new_session_id: SessionId | None = None
    timestamp: float = 0.0

    @property
    def saved(self) -> int:
        """Return the tokens that the next request is shorter by."""
        return self.tokens_before - self.tokens_after

    def into_session(self, *, timestamp: float, child: SessionId | None) -> "Compaction":
        """Return the compaction with where the talk goes on: in `child`, or in place when None."""
        return replace(self, in_place=child is None, new_session_id=child, timestamp=timestamp)


@dataclass(frozen=True, slots=True)
class Pruned:
    """Old tool output and images became small in the request; no row, id or hook is touched.

    Store `mark` with the session and give it to `prune.pruned_as_marked` with the rows at every
    request, so that the shortened prefix stays the same; a later compaction replaces the mark by None.
    """

    messages: tuple[Message, ...]
    through: MessageId
    head: int
    tokens_before: int
    tokens_after: int
    note: str = ""

    @property
    def saved(self) -> int:
        """Return the tokens that the next request is shorter by."""
        return self.tokens_before - self.tokens_after

    @property
    def mark(self) -> dict[str, JSON]:
        """Return what brings the same pruning about again."""
        return {"head": self.head, "through": int(self.through)}


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing was done; the messages are those that were given."""

    messages: tuple[Message, ...]
    reason: Why
    note: str = ""
    """What a person should be told; empty when there is nothing to tell or they know."""

    @property
    def saved(self) -> int:
        """Return zero."""
        return 0


Outcome: TypeAlias = Compaction | Pruned | Unchanged

"""The outcome of `compress`: a compaction, a pruning, or the unchanged context with the reason."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.ids import MessageId, SessionId, SourceName
from wellkept.core.messages import Message
from wellkept.core.text import JSON


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


class Compaction(Struct, frozen=True):
    """Older messages are replaced by a summary; implements `core.ports.Compacting`."""

    messages: tuple[Message, ...]
    """The next request's messages, valid for every API: head, summary, tail."""
    summary: Message
    covered: Sequence[MessageId]
    """Messages that leave the context; they stay in the store, readable and searchable."""
    kept_head: Sequence[MessageId]
    kept_tail: Sequence[MessageId]
    """In order, but not always contiguous: the last user message may precede covered messages."""
    tokens_before: int
    tokens_after: int
    strictness: int = 1
    """Which of the three passes succeeded."""
    by_rule: bool = False
    note: str = ""
    """A note for the user; empty when the user has already seen it."""
    in_place: bool = False
    new_session_id: SessionId | None = None
    timestamp: float = 0.0
    source: SourceName | None = None
    """The least trusted source of what the summary covers; set by the agent, not by the engine."""

    @property
    def saved(self) -> int:
        """The number of tokens saved."""
        return self.tokens_before - self.tokens_after

    def into_session(self, *, timestamp: float, child: SessionId | None) -> "Compaction":
        """Return the compaction with its target session: `child`, or the same session when None."""
        return replace(self, in_place=child is None, new_session_id=child, timestamp=timestamp)


class Pruned(Struct, frozen=True):
    """Old tool output and images are shortened in requests; stored rows do not change.

    Store `mark` with the session and pass it to `prune.prune_as_marked` for every request, so that
    the pruned prefix stays the same; a later compaction resets the mark to None.
    """

    messages: tuple[Message, ...]
    through: MessageId
    head: int
    tokens_before: int
    tokens_after: int
    note: str = ""

    @property
    def saved(self) -> int:
        """The number of tokens saved."""
        return self.tokens_before - self.tokens_after

    @property
    def mark(self) -> dict[str, JSON]:
        """The value that reproduces this pruning."""
        return {"head": self.head, "through": int(self.through)}


class Unchanged(Struct, frozen=True):
    """Nothing was done; the messages are the given ones."""

    messages: tuple[Message, ...]
    reason: Why
    note: str = ""
    """A note for the user; empty when there is nothing new to report."""

    @property
    def saved(self) -> int:
        """Zero."""
        return 0


Outcome: TypeAlias = Compaction | Pruned | Unchanged

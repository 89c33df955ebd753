"""What a capture did so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kept.core.ids import SessionId
    from kept.importers.port import Said


@dataclass(slots=True)
class Tally:
    """What a capture did so far."""

    sessions: dict[SessionId, None] = field(default_factory=dict)
    """The sessions that the transcripts belong to, the newest last."""
    created: set[SessionId] = field(default_factory=set)
    grown: set[SessionId] = field(default_factory=set)
    """The sessions that got new messages."""
    added: int = 0
    replaced: int = 0
    known: int = 0
    conflicts: int = 0
    """Messages that the source changed after they were stored, and that stay as they are."""
    left: dict[str, int] = field(default_factory=dict)
    """How many rows were left out, by reason."""
    roles: dict[str, int] = field(default_factory=dict)
    """How many messages were added, by role."""
    tool_calls: int = 0
    waiting_bytes: int = 0

    def count(self, item: Said) -> None:
        """Count a message that was added."""
        role = item.message.role.value
        self.added += 1
        self.roles[role] = self.roles.get(role, 0) + 1
        self.tool_calls += len(item.message.tool_calls)

    def leave(self, why: str, count: int = 1) -> None:
        """Count something that was left out."""
        if count:
            self.left[why] = self.left.get(why, 0) + count

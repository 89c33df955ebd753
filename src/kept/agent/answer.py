"""The answer of a turn: what was said, what was called, what was saved."""

from dataclasses import dataclass, field

from kept.core.ids import LedgerId, SessionId
from kept.core.messages import Usage


@dataclass(frozen=True, slots=True)
class Called:
    """One tool call of the turn."""

    name: str
    arguments: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """One entry that the turn wrote to a page."""

    ledger_id: LedgerId | None
    target: str
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a turn came to."""

    text: str
    session_id: SessionId
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    tool_calls: tuple[Called, ...] = ()
    saved: tuple[Kept, ...] = ()
    interrupted: bool = False
    stopped_by: str = ""
    """The limit that ended the turn, empty when it ended by itself."""
    seconds: float = 0.0

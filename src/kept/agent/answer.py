"""The answer of a turn: its text, tool calls and saved entries, and the limits that can end a turn."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kept.agent.settings import LimitSettings
from kept.core.ids import LedgerId, SessionId
from kept.core.messages import Usage


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One tool call of the turn."""

    name: str
    arguments: str
    ok: bool


@dataclass(frozen=True, slots=True)
class SavedEntry:
    """One entry that the turn wrote to a page."""

    ledger_id: LedgerId | None
    target: str
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a turn."""

    text: str
    session_id: SessionId
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    tool_calls: tuple[ToolUse, ...] = ()
    saved: tuple[SavedEntry, ...] = ()
    interrupted: bool = False
    stopped_by: str = ""
    """The limit that ended the turn; empty when it ended normally."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Spent:
    """What a turn has used so far."""

    iterations: int = 0
    usage: Usage = Usage()  # noqa: RUF009 - frozen
    cost: float | None = 0.0
    """None once a model of unknown price was called."""
    seconds: float = 0.0


def limit_reached(limits: LimitSettings, spent: Spent) -> str:
    """Return the limit that is reached, as text; empty when none is."""
    tokens = spent.usage.prompt_tokens + spent.usage.output_tokens
    if spent.iterations >= limits.iterations:
        return f"{limits.iterations} model calls"
    if limits.tokens is not None and tokens >= limits.tokens:
        return f"{limits.tokens:,} tokens"
    if limits.cost is not None and spent.cost is not None and spent.cost >= limits.cost:
        return f"${limits.cost:.2f}" if limits.cost >= 0.01 else f"${limits.cost:g}"
    if limits.seconds is not None and spent.seconds >= limits.seconds:
        return f"{limits.seconds:g} seconds"
    return ""


def limit_notice(limit: str, calls: Sequence[ToolUse]) -> str:
    """Return the notice that ends a turn at its limit."""
    counts: dict[str, int] = {}
    for call in calls:
        counts[call.name] = counts.get(call.name, 0) + 1
    done = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in counts.items())
    failed = sum(1 for call in calls if not call.ok)
    tail = f" So far: {done}{f', {failed} of them failed' if failed else ''}." if calls else ""
    return f"[I stopped at the limit of {limit} for one turn.{tail} Say “go on” to continue.]"

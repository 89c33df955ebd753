"""Settings of the agent: limits of a turn, approvals, the review, what a chat shows."""

from dataclasses import dataclass
from typing import Annotated, Literal

from kept.core.settings import Above, Between

Approvals = Literal["ask", "auto", "deny"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """What `limits:` in the configuration may say: where a turn ends by itself."""

    iterations: Annotated[int, Above(0)] = 90
    """How many model calls one turn may make."""
    tokens: Annotated[int, Above(0)] | None = None
    """How many tokens one turn may take, sent and received; null is no limit."""
    cost: Annotated[float, Above(0)] | None = None
    """How much one turn may cost in dollars; null is no limit."""
    seconds: Annotated[float, Above(0)] | None = None
    """How long one turn may take; null is no limit."""
    tool_seconds: Annotated[float, Above(0)] = 120.0
    """How long one tool call may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSettings:
    """What `review:` in the configuration may say."""

    enabled: bool = True
    """Whether conversations are reviewed in the background for facts and procedures worth keeping."""
    max_tokens_per_day: Annotated[int, Between(0)] = 200_000
    """How many tokens reviews may take per day."""
    exit_wait_seconds: Annotated[float, Between(0)] = 60.0
    """How long `kept run` stays for a review that is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplaySettings:
    """What `display:` in the configuration may say."""

    memory_notifications: Literal["on", "off", "verbose"] = "on"
    """Whether a chat says what was saved: one line, nothing, or every entry."""

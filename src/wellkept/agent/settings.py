"""Settings of the agent: limits of a turn, approvals, reviews and the display."""

from typing import Annotated, Literal

from msgspec import Struct

from wellkept.core.settings import Above, Between, Guarded

Approvals = Literal["ask", "auto", "deny"]


class LimitSettings(Struct, frozen=True, kw_only=True):
    """The `limits:` section: when a turn is stopped."""

    iterations: Annotated[int, Above(0), Guarded()] = 90
    """How many model calls one turn may make."""
    tokens: Annotated[Annotated[int, Above(0)] | None, Guarded()] = None
    """How many tokens one turn may use, sent and received; null is no limit."""
    cost: Annotated[Annotated[float, Above(0)] | None, Guarded()] = None
    """How much one turn may cost in dollars; null is no limit."""
    seconds: Annotated[Annotated[float, Above(0)] | None, Guarded()] = None
    """How long one turn may take; null is no limit."""
    tool_seconds: Annotated[float, Above(0)] = 120.0
    """How long one tool call may take."""


class ReviewSettings(Struct, frozen=True, kw_only=True):
    """The `review:` section."""

    enabled: Annotated[bool, Guarded((False, True))] = True
    """Whether conversations are reviewed in the background for facts and procedures worth keeping."""
    max_tokens_per_day: Annotated[int, Between(0), Guarded()] = 200_000
    """How many tokens reviews may use per day."""
    exit_wait_seconds: Annotated[float, Between(0)] = 60.0
    """How many seconds `kept run` waits for a review that is due."""


class DisplaySettings(Struct, frozen=True, kw_only=True):
    """The `display:` section."""

    memory_notifications: Annotated[Literal["on", "off", "verbose"], Guarded(("verbose", "on", "off"))] = "on"
    """Whether a chat shows what was saved: `on` one line, `off` nothing, `verbose` every entry."""

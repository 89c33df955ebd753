"""Settings of connected agents."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from kept.core.settings import Above, Between


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectSettings:
    """The section `connect:` of the configuration: what other agents are given, and what of theirs is stored."""

    recall: Literal["start", "sure", "off"] = "sure"
    """What a connected agent is given: `start` the block of a session, `sure` also passages at a prompt, or nothing."""
    capture: bool = True
    """Whether the conversations of connected agents are stored."""
    exclude: list[str] = field(default_factory=list)
    """Projects of which nothing is stored and to which nothing is given: folders, or patterns like `*/secret/*`."""
    sessions: Annotated[int, Between(0, 10)] = 3
    """How many past sessions of the project the block of a session names."""
    passages: Annotated[int, Between(1, 3)] = 3
    """How many passages a prompt is given at most."""
    start_seconds: Annotated[float, Above(0)] = 2.0
    """How long an agent waits for the block of a session at most."""
    prompt_seconds: Annotated[float, Above(0)] = 0.8
    """How long an agent waits at a prompt at most."""
    stop_seconds: Annotated[float, Above(0)] = 1.0
    """How long an agent waits at the end of a turn at most; what is not stored by then is stored later."""

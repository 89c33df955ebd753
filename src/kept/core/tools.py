"""Tools that an agent can call, and the context of a call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kept.core.ids import OWNER, SessionId, UserId
from kept.core.settings import Toolset
from kept.core.text import JSON


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """The name, purpose and parameters of a tool; `parameters` is JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, JSON]
    toolset: Toolset


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The caller of a tool: user, session, turn and platform."""

    session_id: SessionId | None = None
    user_id: UserId = OWNER
    origin: str = "agent"
    platform: str = "cli"
    turn: int = 0
    group_id: str | None = None
    active_message_ids: tuple[int, ...] = ()
    """The messages in the model's context now; search excludes exactly these."""
    incognito: bool = False
    extras: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tool:
    """A schema and the function behind it.

    `call` receives the model's arguments unchecked (any JSON object) and returns a JSON object;
    `success: false` marks a refusal. It never raises for bad arguments.
    """

    schema: ToolSchema
    call: Callable[[Mapping[str, JSON], ToolContext], Mapping[str, JSON]]
    parallel: bool = True
    """Whether several calls of one answer may run concurrently."""
    asks: bool = False
    """Whether the user must confirm each call, unless `approvals` says otherwise."""
    only_reads: bool = False
    """Whether the tool declares that it changes nothing; the user may approve such calls in advance."""

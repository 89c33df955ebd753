"""Tools: what an agent can call, and what a call is told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kept.core.ids import OWNER, SessionId, UserId
from kept.core.jsontypes import JSON
from kept.core.toolsets import Toolset


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """The name, purpose and parameters of a tool; `parameters` is JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, JSON]
    toolset: Toolset


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Who calls, from where, in which turn."""

    session_id: SessionId | None = None
    user_id: UserId = OWNER
    origin: str = "agent"
    platform: str = "cli"
    turn: int = 0
    group_id: str | None = None
    active_message_ids: tuple[int, ...] = ()
    """The messages in the model's context now; search leaves exactly these out."""
    incognito: bool = False
    extras: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tool:
    """A schema and the function behind it.

    `call` gets arguments as the model gave them (any JSON object) and answers with a JSON object;
    `success: false` marks a refusal. It never raises for bad arguments.
    """

    schema: ToolSchema
    call: Callable[[Mapping[str, JSON], ToolContext], Mapping[str, JSON]]
    parallel: bool = True
    """Whether calls of one answer may run beside each other."""
    asks: bool = False
    """Whether a person is asked before it runs, unless approvals say otherwise."""
    only_reads: bool = False
    """Whether it says of itself that it changes nothing; a person may wave such calls through."""

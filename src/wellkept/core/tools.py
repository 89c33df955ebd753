"""Tools that an agent can call, and the context of a call."""

import json
from collections.abc import Callable, Mapping
from functools import cache

from msgspec import Struct, field

from wellkept.core.ids import OWNER, SessionId, UserId
from wellkept.core.provenance import Taint
from wellkept.core.settings import Toolset
from wellkept.core.text import JSON, resource_text


class ToolSchema(Struct, frozen=True):
    """The name, purpose and parameters of a tool; `parameters` is JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, JSON]
    toolset: Toolset


@cache
def read_schema(name: str, toolset: Toolset, package: str, *path: str) -> ToolSchema:
    """Read a schema from a file that ships in `package`: the description, then the parameters as a block of JSON."""
    description, _, parameters = resource_text(package, *path).partition("```json\n")
    return ToolSchema(name, description.strip(), json.loads(parameters.partition("```")[0]), toolset)


class ToolContext(Struct, frozen=True):
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
    find_taint: Callable[[str], Taint | None] = field(default=lambda _text: None)
    """Returns what taints a text which the model writes now; see `security/taint.py`."""
    said: str = ""
    """What the person said in this conversation."""
    extras: Mapping[str, JSON] = field(default_factory=dict)


class Tool(Struct, frozen=True):
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

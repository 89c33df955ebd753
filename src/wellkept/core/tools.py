"""Tools that an agent can call, and the context of a call."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import cast

from msgspec import Struct, field
from msgspec.structs import replace

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


def memory_schema(*, has_project: bool = False) -> ToolSchema:
    """Return the schema of the `memory` tool; reading it loads no tier, because servers list tools at their start.

    `has_project` adds the page of the project; without it the bytes are the same everywhere.
    """
    plain = read_schema("memory", "memory", "wellkept.memory", "tool.md")
    if not has_project:
        return plain
    properties = cast("Mapping[str, Mapping[str, JSON]]", plain.parameters["properties"])
    meaning = "'memory' for your own notes, 'user' for who the user is, 'project' for what holds here only."
    target: JSON = {**properties["target"], "enum": ["memory", "user", "project"], "description": meaning}
    more = resource_text("wellkept.memory", "tool_project.md").strip()
    parameters = {**plain.parameters, "properties": {**properties, "target": target}}
    return replace(plain, description=f"{plain.description}\n\n{more}", parameters=parameters)


def search_schema() -> ToolSchema:
    """Return the schema of the `session_search` tool."""
    return read_schema("session_search", "session_search", "wellkept.sessions", "prompts", "session_search.md")


def skill_schemas() -> tuple[ToolSchema, ...]:
    """Return the schemas of the skill tools, in the order in which models see them."""
    names = ("skills_list", "skill_view", "skill_manage")
    return tuple(read_schema(name, "skills", "wellkept.skills", "texts", f"{name}.md") for name in names)


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

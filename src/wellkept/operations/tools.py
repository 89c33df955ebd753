"""The agent's tools: list them, or run one exactly as the agent would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from wellkept.app.caller import Caller, Scope
from wellkept.config.settings import nearest
from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.core.provenance import COMMAND_SOURCE, Taint
from wellkept.core.text import JSON
from wellkept.core.tools import ToolContext, ToolSchema
from wellkept.sessions.tool import search_schema
from wellkept.skills.schema import skill_schemas

SHARED = ("memory", "session_search", "skills_list", "skill_view", "skill_manage")
"""The tools over this home's memory that other agents are given too, in the order in which models see them."""
_MOST_NAME_CHARS = 80
_WRITING = frozenset({"memory", "skill_manage"})


def list_tools(caller: Caller) -> list[ToolSchema]:
    """Return the schema of every tool, in the order in which models see them."""
    return [tool.schema for tool in caller.space.tools().values()]


def run_tool(caller: Caller, name: str, arguments: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Run one tool in the caller's session and return its answer; raises UsageError for an unknown name."""
    tools = caller.space.tools()
    if name not in tools:
        raise UsageError(f"there is no tool {name!r}{nearest(name, tools)}", f"known: {', '.join(tools)}")
    unknown = find_unknown_argument(tools[name].schema.parameters, arguments)
    if unknown is not None:
        return unknown.as_json()
    # an agent in another program runs it, and nobody knows what it had read; else the person runs it themselves
    taint = Taint(COMMAND_SOURCE) if caller.why_no_person else None
    context = ToolContext(session_id=caller.session_id, user_id=caller.user, find_taint=lambda _text: taint)
    return tools[name].call(arguments, context)


def list_shared_tools(*, has_project: bool = False) -> list[ToolSchema]:
    """Return the schemas of `SHARED`; they are the same in every home, so none has to be open."""
    from wellkept.memory.tool import memory_schema

    return [memory_schema(has_project=has_project), search_schema(), *skill_schemas()]


def find_unknown_argument(parameters: Mapping[str, JSON], arguments: Mapping[str, JSON]) -> Refused | None:
    """Return why a call is refused: an argument that the schema does not have, with the nearest that it has."""
    known = cast("Mapping[str, JSON]", parameters.get("properties", {}))
    unknown = next((name for name in arguments if name not in known), None)
    if unknown is None:
        return None
    shown = unknown[:_MOST_NAME_CHARS]
    remedy = f"use {', '.join(known)}" if known else "call it without arguments"
    return Refused(Reason.INVALID, f"there is no argument {shown!r}{nearest(shown, known)}", remedy)


def has_project(caller: Caller) -> bool:
    """Whether the `memory` tool offers the page of a project: one is known, and the settings allow it."""
    from wellkept.memory.page import Target

    return caller.space.memory.is_enabled(Target.PROJECT)


def run_shared_tool(
    caller: Caller, name: str, arguments: Mapping[str, JSON], *, client: str
) -> Mapping[str, JSON] | Refused:
    """Run one of `SHARED` for an agent in another program, under the same rules as kept's own agent.

    Each call counts as a separate turn: only kept's own agent has turns in which failed attempts add up.
    """
    if name not in SHARED:  # a terminal or a file must not be reachable, whatever the agent itself has
        shown = name[:_MOST_NAME_CHARS]
        return Refused(
            Reason.NO_MATCH, f"there is no tool {shown!r}{nearest(shown, SHARED)}", f"use {', '.join(SHARED)}"
        )
    if name in _WRITING:
        caller.require(Scope.WRITE)
    tools = {tool.schema.name: tool for tool in caller.space.shared_tools()}
    if name not in tools:
        return Refused(Reason.DISABLED, f"{name} is switched off in this home", "work without it")
    from wellkept.security.taint import Context

    before = Context()
    if name in _WRITING:
        from wellkept.connect.capture import read_running_turn

        before = read_running_turn(caller, client)
    context = ToolContext(
        session_id=caller.session_id, user_id=caller.user, platform=client,
        find_taint=before.find_taint, said="\n".join(before.said),
    )  # fmt: skip
    return tools[name].call(arguments, context)

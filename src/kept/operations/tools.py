"""The agent's tools: list them, or run one exactly as the agent would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kept.config.settings import nearest
from kept.core.errors import UsageError
from kept.core.tools import ToolContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kept.app.caller import Caller
    from kept.core.text import JSON
    from kept.core.tools import ToolSchema


def list_tools(caller: Caller) -> list[ToolSchema]:
    """Return the schema of every tool, in the order in which models see them."""
    return [tool.schema for tool in caller.space.tools().values()]


def run_tool(caller: Caller, name: str, arguments: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Run one tool in the caller's session and return its answer; raises UsageError for an unknown name."""
    tools = caller.space.tools()
    if name not in tools:
        raise UsageError(f"there is no tool {name!r}{nearest(name, tools)}", f"known: {', '.join(tools)}")
    return tools[name].call(arguments, ToolContext(session_id=caller.session_id, user_id=caller.user))

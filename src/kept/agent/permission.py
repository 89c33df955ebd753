"""Permission: whether a tool call runs, does not, or is for a person to decide."""

from collections.abc import Mapping
from enum import StrEnum

from kept.agent.settings import Approvals
from kept.agent.workspace import Workspace
from kept.core.text import JSON
from kept.core.tools import Tool


class Permission(StrEnum):
    """What the settings say to a call."""

    GIVEN = "given"
    DENIED = "denied"
    ASK = "ask"


def permission(
    tool: Tool, arguments: Mapping[str, JSON], *, workspace: Workspace, mode: Approvals, yes_to_reads: bool = False
) -> Permission:
    """Return what the settings say to a call of a tool that asks."""
    if mode == "deny":
        return Permission.DENIED
    is_risky = workspace.needs_asking(tool.schema.name, arguments)
    if not is_risky and (mode == "auto" or tool.schema.name in {"write_file", "edit_file"}):
        return Permission.GIVEN
    return Permission.GIVEN if yes_to_reads and tool.only_reads else Permission.ASK

"""Asking the person at the terminal whether a tool call may run."""

import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from kept.cli.chat.loop import seen
from kept.cli.terminal import note, printable
from kept.core.text import JSON, dumps

if TYPE_CHECKING:
    from kept.agent.settings import Approvals
    from kept.agent.workspace import Workspace
    from kept.core.tools import Tool

MOST_SHOWN = 4_000
"""How many characters of a foreign tool's arguments a question shows."""
_LOOK_SECONDS = 0.2


def approver(
    workspace: "Workspace", mode: "Approvals", *, yes_to_reads: bool = False
) -> "Callable[[Tool, dict[str, JSON]], bool]":
    """Return who allows tool calls: the settings where they decide, else the person at the terminal."""
    from kept.agent.workspace import Permission, permission

    def approve(tool: "Tool", arguments: dict[str, JSON]) -> bool:
        said = permission(tool, arguments, workspace=workspace, mode=mode, yes_to_reads=yes_to_reads)
        return _asked(tool, arguments, mode) if said is Permission.ASK else said is Permission.GIVEN

    return approve


def _asked(tool: "Tool", arguments: dict[str, JSON], mode: "Approvals") -> bool:
    name = tool.schema.name
    if not sys.stdin.isatty():
        note(f"kept: {name} was not allowed, because nobody can be asked here; {_way_to_allow(tool, mode)}")
        return False
    note(f"\nallow {name}: {_shown(tool, arguments)} ? [y/N]")
    return _says_yes()


def _way_to_allow(tool: "Tool", mode: "Approvals") -> str:
    auto = "" if mode == "auto" else ", or set approvals to auto"
    if tool.schema.toolset == "mcp":
        return f"trust its server with `approve: true` under mcp_servers{auto}"
    return f"`kept chat` asks{auto}"


def _shown(tool: "Tool", arguments: dict[str, JSON]) -> str:
    """Return what a person needs to see of a call to decide about it: a command whole, whatever its length."""
    if tool.schema.toolset != "mcp":
        return printable(str(arguments.get("command") or arguments.get("path") or ""))
    text = printable(dumps(arguments))
    left_out = f" … {len(text) - MOST_SHOWN:,} characters more" if len(text) > MOST_SHOWN else ""
    return f"{text[:MOST_SHOWN]}{left_out}"


def _says_yes() -> bool:
    """Wait for the person's word; a turn that is interrupted meanwhile waits no longer."""
    from kept.agent.offload import is_cancelled

    with seen():
        while not select.select([sys.stdin], [], [], _LOOK_SECONDS)[0]:
            if is_cancelled():
                return False
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

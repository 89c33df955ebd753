"""Which tool calls the settings decide, and which are left to a person."""

import pytest

from wellkept.agent.workspace import Workspace, permission
from wellkept.core.tools import Tool, ToolSchema

RISKY = {"command": "rm -rf build"}
HARMLESS = {"command": "ls"}
INSIDE = {"path": "notes.txt"}
OUTSIDE = {"path": "../notes.txt"}


def tool(name, toolset="files", *, only_reads=False):
    return Tool(ToolSchema(name, "", {}, toolset), lambda *_: {}, asks=True, only_reads=only_reads)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("terminal", HARMLESS, {"ask": "ask", "auto": "given", "deny": "denied"}),
        ("terminal", RISKY, {"ask": "ask", "auto": "ask", "deny": "denied"}),
        ("write_file", INSIDE, {"ask": "given", "auto": "given", "deny": "denied"}),
        ("edit_file", OUTSIDE, {"ask": "ask", "auto": "ask", "deny": "denied"}),
        ("mcp_tracker_close", {}, {"ask": "ask", "auto": "given", "deny": "denied"}),
    ],
)
def test_what_each_mode_says(tmp_path, name, arguments, said):
    """A risk is asked about even where approvals are automatic; files of the workspace are not."""
    found = {mode: permission(tool(name), arguments, workspace=Workspace(tmp_path), mode=mode).value for mode in said}

    assert found == said


def test_reads_may_be_waved_through(tmp_path):
    """Only what says of itself that it reads, and never against `deny`."""

    def said(mode, *, only_reads):
        asking = tool("mcp_tracker_look", "mcp", only_reads=only_reads)
        return permission(asking, {}, workspace=Workspace(tmp_path), mode=mode, yes_to_reads=True).value

    assert said("ask", only_reads=True) == "given"
    assert said("ask", only_reads=False) == "ask"
    assert said("deny", only_reads=True) == "denied"

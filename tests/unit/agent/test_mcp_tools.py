"""Tools of real MCP servers, over stdio."""

import pytest
from tests import forks

from wellkept.agent.mcp_tools import McpTools
from wellkept.core.events import Warned
from wellkept.core.tools import ToolContext

SERVER = '''
from mcp.server.mcpserver import MCPServer

server = MCPServer("adder")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no")


server.run()
'''


@pytest.fixture
def server_file(tmp_path):
    pytest.importorskip("mcp", reason="the extra kept[mcp] is not installed")
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    return file


def test_tools_of_a_stdio_server_are_called(server_file):
    """A server's tools get our names, its results our shape, its errors are answers."""
    told = []
    command, *arguments = forks.command(str(server_file))
    servers = McpTools({"calc": {"command": command, "args": arguments}}, told.append)
    try:
        servers.connect()
        tools = {tool.schema.name: tool for tool in servers.tools}
        assert list(tools) == ["mcp_calc_add", "mcp_calc_fail"]

        answer = tools["mcp_calc_add"].call({"a": 2, "b": 3}, ToolContext())
        failed = tools["mcp_calc_fail"].call({}, ToolContext())
    finally:
        servers.close()

    assert answer["success"] is True
    assert "5" in str(answer["text"])
    assert failed["success"] is False
    assert told == []


def test_a_server_that_cannot_start_is_left_out_with_a_warning():
    """A wrong command costs a warning, not the start."""
    pytest.importorskip("mcp", reason="the extra kept[mcp] is not installed")
    told = []
    servers = McpTools({"gone": {"command": "/no/such/command"}, "empty": {}}, told.append)
    try:
        servers.connect()
    finally:
        servers.close()

    assert servers.tools == []
    assert [type(event) for event in told] == [Warned, Warned]

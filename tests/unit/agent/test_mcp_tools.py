"""Tools of real MCP servers, over stdio."""

import sys
import time

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


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_what_a_server_starts_is_an_agents(server_file, tmp_path):
    """Also a process without its environment whose parents have ended: a tool of the server may be a shell."""
    look, sign = tmp_path / "look.py", tmp_path / "sign"
    look.write_text("import sys, wellkept.core.agency as a\nopen(sys.argv[1], 'w').write(a.find_agent({}) + '.')\n")
    orphan = f"(setsid env -i {sys.executable} {look} {sign} &)"
    server_file.write_text(f"import os\nos.system({orphan!r})\n{SERVER}")
    servers = McpTools({"calc": {"command": sys.executable, "args": [str(server_file)]}}, [].append)
    try:
        servers.connect()
        assert servers.tools
        for _ in range(200):
            if sign.exists() and sign.read_text():
                break
            time.sleep(0.05)
    finally:
        servers.close()

    assert "limits" in sign.read_text()


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

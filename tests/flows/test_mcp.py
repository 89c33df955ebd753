"""Tools of live MCP servers through the real command line: over stdio and HTTP, well and badly behaved."""

import io
import json
import socket
import subprocess
import sys
import time

import pytest
from tests import forks

from wellkept.agent.workspace import Workspace
from wellkept.cli.chat.loop import approver
from wellkept.core.tools import Tool, ToolSchema
from wellkept.llm.scripted import Says, call
from wellkept.testing.loopback_servers import LoopbackOpenAI

pytest.importorskip("mcp", reason="the extra kept[mcp] is not installed")

SERVER = r'''
import os, sys, time
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("tracker")
print("the tracker says hello", file=sys.stderr, flush=True)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def look(number: int) -> str:
    """Look an issue up."""
    return f"issue {number} is open"


@server.tool()
def close_issue(number: int) -> str:
    """Close an issue."""
    with open(os.environ["TRACKER_FILE"], "a") as file:
        file.write(f"closed {number}\n")
    return f"issue {number} is closed"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def slow() -> str:
    """Take long."""
    time.sleep(110)
    return "late"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def die() -> str:
    """End the server."""
    os._exit(3)


if "--http" in sys.argv:
    server.run("streamable-http", port=int(sys.argv[2]))
else:
    server.run()
'''
GARBAGE = "import time\nprint('welcome to my server!', flush=True)\nprint('{not json', flush=True)\ntime.sleep(60)\n"
MODEL = ("--model", "openai/loopback-model", "--json")


def started_by(script):
    """The settings of a server that is a Python program."""
    command, *arguments = forks.command(script)
    return {"command": command, "args": arguments}


@pytest.fixture
def tracker(home, tmp_path):
    """Configures servers by name; `closed` is what was done."""
    script, closed = tmp_path / "tracker.py", tmp_path / "closed.txt"
    script.write_text(SERVER)
    home.mkdir(exist_ok=True)

    def configure(settings="", **more):
        known = {**started_by(str(script)), "env": {"TRACKER_FILE": str(closed)}}
        servers = {"tracker": {**known, **more.pop("tracker", {})}, **more}
        (home / "config.yaml").write_text(json.dumps({"mcp_servers": servers, **json.loads(settings or "{}")}))

    configure.closed = lambda: closed.read_text() if closed.exists() else ""
    configure.script = script
    return configure


def said(server):
    """The answers of the tools as the model got them."""
    return [json.loads(each["content"]) for each in server.bodies[-1]["messages"] if each["role"] == "tool"]


def ask(kept, *calls, flags=(), env=None):
    with LoopbackOpenAI([Says("", tuple(calls)), "done"]) as server:
        ran = kept("run", "go", *MODEL, *flags, env={**server.environment, **(env or {})})
    return ran, server


def test_tools_of_a_trusted_server_are_listed_and_called(kept, tracker, home):
    """They are listed after the tools of kept and need no confirmation; other output of the server goes to its log."""
    tracker(tracker={"approve": True})
    ran, server = ask(kept, call("mcp_tracker_look", number=7), call("mcp_tracker_close_issue", number=7))

    names = [tool["function"]["name"] for tool in server.bodies[0]["tools"]]
    assert names[-4:] == ["mcp_tracker_close_issue", "mcp_tracker_die", "mcp_tracker_look", "mcp_tracker_slow"]
    assert [each["ok"] for each in ran.json["tool_calls"]] == [True, True], ran.err
    assert said(server)[0]["text"] == "issue 7 is open"
    assert tracker.closed() == "closed 7\n"
    assert "hello" not in ran.err
    assert "hello" in (home / "logs" / "mcp-tracker.log").read_text()


def test_a_server_that_is_not_trusted_needs_a_word(kept, tracker):
    """Without a terminal a call is denied, with the command that allows it; a flag lets read-only tools pass."""
    tracker()
    ran, _ = ask(kept, call("mcp_tracker_look", number=7), call("mcp_tracker_close_issue", number=7))
    assert [each["ok"] for each in ran.json["tool_calls"]] == [False, False]
    assert "approve: true" in ran.err

    calls = (call("mcp_tracker_look", number=7), call("mcp_tracker_close_issue", number=7))
    ran, _ = ask(kept, *calls, flags=("--yes-to-reads",))
    assert [each["ok"] for each in ran.json["tool_calls"]] == [True, False]
    assert tracker.closed() == ""


@pytest.mark.parametrize(
    ("mode", "yes_to_reads", "allowed"),
    [("ask", False, [False, False]), ("ask", True, [True, False]), ("auto", False, [True, True]),
     ("deny", True, [False, False])],
)  # fmt: skip
def test_who_is_asked_before_a_foreign_tool_runs(tmp_path, monkeypatch, mode, yes_to_reads, allowed):
    """With no terminal: reads pass by flag, everything by `auto`, nothing against `deny`."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    schema = ToolSchema("mcp_tracker_tool", "", {}, "mcp")
    tools = [Tool(schema, lambda *_: {}, asks=True, only_reads=reads) for reads in (True, False)]
    approve = approver(Workspace(tmp_path), mode, yes_to_reads=yes_to_reads)

    assert [approve(tool, {}) for tool in tools] == allowed


def test_a_person_sees_all_arguments_of_a_foreign_tool(tmp_path, monkeypatch):
    """A field that is called `path` does not hide the others."""
    shown = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("wellkept.cli.chat.loop.note", shown.append)
    monkeypatch.setattr("wellkept.cli.chat.loop._read_answer", lambda: True)
    tool = Tool(ToolSchema("mcp_tracker_tool", "", {}, "mcp"), lambda *_: {}, asks=True)

    assert approver(Workspace(tmp_path), "ask")(tool, {"path": "a.txt", "then": "rm -rf /"})
    assert "rm -rf /" in shown[0]
    assert "a.txt" in shown[0]


def test_a_server_that_is_silent_or_dies_is_an_answer(kept, tracker):
    """The turn continues: the model is told what happened, and the exit is not delayed."""
    tracker(tracker={"approve": True, "timeout": 0.5})
    begun = time.monotonic()
    ran, server = ask(kept, call("mcp_tracker_slow"), call("mcp_tracker_die"), call("mcp_tracker_look", number=1))

    assert ran.code == 0, ran.err
    assert ran.json["answer"] == "done"
    assert time.monotonic() - begun < 90
    late, dead, *_ = said(server)
    assert late["success"] is dead["success"] is False
    assert "tracker" in late["error"]
    assert "tracker" in dead["error"]


def test_servers_that_cannot_be_used_cost_a_warning(kept, tracker, tmp_path, monkeypatch):
    """One prints no protocol, one does not exist, one is configured badly: the good one works beside them."""
    monkeypatch.setattr("wellkept.agent.mcp_tools.CONNECT_SECONDS", 10.0)
    garbage = tmp_path / "garbage.py"
    garbage.write_text(GARBAGE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/mcp"
    tracker(
        tracker={"approve": True},
        garbage={"command": sys.executable, "args": [str(garbage)]},
        gone={"command": "/no/such/command"},
        nobody={"url": nobody},
        odd={"command": sys.executable, "timeout": "soon"},
    )
    ran, server = ask(kept, call("mcp_tracker_look", number=3))

    assert ran.json["answer"] == "done"
    assert said(server)[0]["text"] == "issue 3 is open"
    for name in ("garbage", "gone", "nobody", "odd"):
        assert f"'{name}' cannot be used" in ran.err, ran.err
    assert "Traceback" not in ran.err


def test_names_that_collide_are_left_out_with_a_warning(kept, tracker):
    """Two servers whose names end up the same keep the first one's tools."""
    one = {**started_by(str(tracker.script)), "approve": True}
    tracker(**{"my.server": one, "my_server": one})
    ran, server = ask(kept, call("mcp_my_server_look", number=2))

    names = [tool["function"]["name"] for tool in server.bodies[0]["tools"]]
    assert names.count("mcp_my_server_look") == 1
    assert said(server)[0]["text"] == "issue 2 is open"
    assert "'my_server' is left out" in ran.err


def test_toolsets_leave_servers_alone(kept, tracker):
    """Without `mcp` among them no server is started."""
    tracker('{"toolsets": ["memory"]}')
    ran, server = ask(kept, call("mcp_tracker_look", number=2))

    assert [tool["function"]["name"] for tool in server.bodies[0]["tools"]] == ["memory"]
    assert ran.json["tool_calls"][0]["ok"] is False


def test_a_server_over_http(kept, tracker):
    """A URL is all that is needed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = forks.Popen(
        [sys.executable, str(tracker.script), "--http", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        tracker(web={"url": f"http://127.0.0.1:{port}/mcp", "approve": True})
        ran, server = ask(kept, call("mcp_web_look", number=9))
    finally:
        process.kill()
        process.wait(5)

    assert ran.json["tool_calls"][0]["ok"], ran.err
    assert said(server)[0]["text"] == "issue 9 is open"

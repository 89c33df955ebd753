"""`kept mcp` as a process, driven by the client of the `mcp` package in both eras, and by bare pipes."""

import json
import os
import signal
import subprocess
import sys
import time

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra kept[mcp] is not installed")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests import forks

KEPT = [sys.executable, "-m", "wellkept"]
HANDSHAKE = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize",
     "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
]  # fmt: skip

DEAF = """
import sys
from wellkept.cli.main import main
from wellkept.mcp_server import server
server._leave = lambda number, frame: None  # as if Python had not come to call it
server.LEAVE_SECONDS = 0.5
sys.argv = ["kept", "mcp"]
main()
"""


def lines(*messages):
    return b"".join(json.dumps(one).encode() + b"\n" for one in messages)


def start(*arguments, **more):
    return forks.Popen(
        [*KEPT, *arguments, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
    )


async def use(mode, errors, *arguments):
    """Call every tool well and badly, read the resources and fill the prompts; return what was seen."""
    python, *rest = forks.command("-m", "wellkept", *arguments, "mcp")
    command = StdioServerParameters(command=python, args=rest, env=dict(os.environ))
    seen = {}
    async with Client(stdio_client(command, errlog=errors), mode=mode) as client:
        seen["version"], seen["instructions"] = client.protocol_version, client.instructions
        seen["tools"] = (await client.list_tools()).tools
        calls = {
            "memory": ({"target": "user", "action": "add", "content": "Prefers tea."}, {"target": "nobody"}),
            "memory_read": ({}, {"target": "nobody"}),
            "remember_turn": ({"session": "c", "user": "the okapi eats leaves", "assistant": "yes"}, {"user": 5}),
            "session_search": ({"query": "okapi"}, {"query": {"a": 1}}),
            "skills_list": ({}, {"nothing": "x"}),
            "skill_view": ({"name": "review-memory"}, {"name": "nothing"}),
            "skill_manage": (
                {"action": "create", "name": "feed-okapi", "description": "Use to feed.", "content": "1. Leaves."},
                {"action": "burn"},
            ),
            "forget": ({"query": "okapi"}, {}),
            "unknown": (None, {}),
        }
        for name, (good, bad) in calls.items():
            seen[name] = None if good is None else await client.call_tool(name, good)
            seen[f"bad {name}"] = await client.call_tool(name, bad)
        seen["resources"] = [str(one.uri) for one in (await client.list_resources()).resources]
        seen["page"] = (await client.read_resource("kept://memory/USER.md")).contents[0].text
        seen["recall"] = (await client.get_prompt("recall", {"topic": "okapi"})).messages[0].content.text
    return seen


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28", "auto"])
def test_every_tool_works_for_a_real_client(mode, tmp_path, work):
    """Both eras see the same tools, results, resources and prompts; a failure is one line."""
    with (tmp_path / "errors").open("w+") as errors:
        seen = anyio.run(use, mode, errors)
        errors.seek(0)
        told = errors.read()

    names = [tool.name for tool in seen["tools"]]
    assert seen["version"] == {"legacy": "2025-11-25"}.get(mode, "2026-07-28")
    assert mode == "2026-07-28" or "session_search" in seen["instructions"]
    assert len(names) == 8
    assert [tool.name for tool in seen["tools"] if (tool.meta or {}).get("anthropic/alwaysLoad")] == [
        "memory",
        "session_search",
    ]
    for name in names:
        assert seen[name].is_error is False, (name, seen[name])
    for name in (*names, "unknown"):
        bad = seen[f"bad {name}"]
        assert bad.is_error is True, name
        assert "\n" not in bad.content[0].text
    assert seen["session_search"].structured_content["results"][0]["match_message_id"] > 0
    assert seen["memory_read"].structured_content is None
    assert "Prefers tea." in seen["page"]
    assert "okapi eats leaves" in seen["recall"]
    assert told == ""


def test_another_user_by_as(tmp_path, work, kept):
    """`kept --as kim mcp` serves kim's memory only; an unknown user is one line at the first call."""
    kept("user", "create", "kim")
    kept("memory", "add", "The owner likes tea.")
    with (tmp_path / "errors").open("w+") as errors:
        seen = anyio.run(use, "legacy", errors, "--as", "kim")
    stranger = start("--as", "nobody")
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "memory_read"}}
    out, _ = stranger.communicate(lines(*HANDSHAKE, call), timeout=60)

    assert "owner" not in seen["memory_read"].content[0].text
    assert kept("memory", "show", "--json").json["memory"]["entries"] == ["The owner likes tea."]
    answers = {one.get("id"): one for one in map(json.loads, out.splitlines())}
    assert answers[3]["result"]["isError"] is True
    assert "nobody" in answers[3]["result"]["content"][0]["text"]
    assert stranger.returncode == 0


def test_the_end_of_the_pipe_is_the_end(work, home):
    """Requests sent before the end are answered; exit 0; nothing but the protocol on stdout, nothing on stderr."""
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "session_search"}}
    process = start()
    out, err = process.communicate(lines(*HANDSHAKE, call), timeout=60)

    assert process.returncode == 0
    assert err == b""
    assert sorted(json.loads(line)["id"] for line in out.splitlines()) == [1, 2, 3]


def test_what_a_plugin_prints_does_not_reach_the_protocol(work, home):
    """Prints, writes to the descriptor and children of a plugin go to stderr."""
    script = """
import os, sys
from contextlib import contextmanager
from wellkept.app import open_app
from wellkept.mcp_server.server import serve

@contextmanager
def opener():
    print("a library says hello")
    os.write(1, b"so does C code\\n")
    os.system("echo and a child; cat")
    app = open_app()
    yield app.caller()
    app.close()

serve(opener)
"""
    process = forks.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "memory_read"}}
    out, err = process.communicate(lines(*HANDSHAKE, call), timeout=60)

    assert [json.loads(line)["jsonrpc"] for line in out.splitlines()] == ["2.0"] * 3
    assert b"hello" in err
    assert b"a child" in err
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(work, home, number):
    """Exit 0, no traceback, also while the client keeps the pipe open."""
    process = start()
    process.stdin.write(lines(*HANDSHAKE))
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    process.send_signal(number)
    code = process.wait(timeout=30)
    err = process.stderr.read()
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()

    assert code == 0
    assert b"Traceback" not in err


def test_a_signal_that_the_main_thread_does_not_notice_ends_it_too(work, home):
    """A signal just before a blocking read is not handled until the next line; the process ends all the same."""
    process = forks.Popen(
        [sys.executable, "-c", DEAF], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdin.write(lines(*HANDSHAKE))
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    process.send_signal(signal.SIGTERM)
    _out, err = process.communicate(timeout=60)

    assert process.returncode == 0
    assert b"Traceback" not in err


def test_a_client_that_stops_reading_does_no_harm(work, home):
    """The reader's end of stdout is closed; the server ends with its input and without a traceback."""
    process = start()
    process.stdout.close()
    process.stdin.write(lines(*HANDSHAKE))
    process.stdin.close()
    code = process.wait(timeout=60)
    err = process.stderr.read()
    process.stderr.close()

    assert code == 0
    assert b"Traceback" not in err


@pytest.mark.speed
def test_tools_are_listed_within_a_second(work, home):
    """From the start of the process, warm; median of five."""
    times = []
    for _ in range(6):
        began = time.perf_counter()
        process = start()
        process.stdin.write(lines(*HANDSHAKE))
        process.stdin.flush()
        for _answer in range(2):
            process.stdout.readline()
        times.append(time.perf_counter() - began)
        process.communicate(timeout=60)

    assert sorted(times[1:])[2] <= 1.0

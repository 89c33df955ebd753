"""MCP over HTTP, driven by the client of the official SDK."""

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


def run(served, token, work, mode="auto"):
    """Run `work` with a connected client."""

    async def connect():
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(f"{served.url}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                return await work(client)

    return anyio.run(connect)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_the_tools_over_http(served, mode):
    """Both protocol eras: the tools are listed, one is called, and what it wrote is on the page."""

    async def work(client):
        listed = await client.list_tools()
        done = await client.call_tool("memory", {"action": "add", "target": "user", "content": "lives in Leipzig"})
        return [tool.name for tool in listed.tools], done.is_error

    names, is_error = run(served, served.secret, work, mode)
    assert "session_search" in names
    assert len(names) == 8
    assert not is_error
    assert "Leipzig" in served.client().get("/api/memory").text


def test_each_token_has_its_own_memory(served):
    """A user over MCP sees nothing of the owner, and a reading token writes nothing."""
    served.client().post("/api/memory/user/entries", json={"text": "lives in Leipzig"})
    ann, reader = served.token("ann"), served.token("bob", "read")

    async def read(client):
        return str(await client.call_tool("memory_read", {}))

    async def write(client):
        done = await client.call_tool("memory", {"action": "add", "target": "user", "content": "x"})
        return done.is_error

    assert "Leipzig" not in run(served, ann, read)
    assert run(served, ann, write) is False
    assert run(served, reader, write) is True


def test_a_reading_token_changes_nothing_by_any_tool(served):
    """Every tool that is not marked as reading is refused, whatever it is asked to do."""
    calls = {
        "memory": {"action": "add", "target": "user", "content": "x"},
        "skill_manage": {"action": "create", "name": "x", "content": "---\nname: x\ndescription: y\n---\nz\n"},
        "remember_turn": {"session": "s", "user": "hello", "assistant": "hello"},
        "forget": {"query": "hello"},
    }
    reader = served.token("bob", "read")

    async def call_all(client):
        changing = {tool.name for tool in (await client.list_tools()).tools if not tool.annotations.read_only_hint}
        return changing, {name: str(await client.call_tool(name, calls[name])) for name in changing}

    changing, refused = run(served, reader, call_all)
    assert changing == set(calls)
    assert {name: text for name, text in refused.items() if "write" not in text} == {}


def test_strangers_and_garbage(served):
    """No token: 401. Not JSON-RPC: an error of the protocol. A notification has no answer."""
    client = served.client()
    assert client.post("/mcp", content=b"{").json()["error"]["code"] == -32700
    assert client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
    assert client.get("/mcp").status_code == 405
    assert served.client("").post("/mcp", json={}).status_code == 401

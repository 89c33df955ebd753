"""Messages of both eras, and what is none."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.mcp_server.protocol import INVALID_PARAMS, METHOD_NOT_FOUND, PARSE_ERROR, Message, ProtocolError, parse

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "codex-mcp-client"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
SERVER = "io.modelcontextprotocol/serverInfo"


@pytest.mark.parametrize("asked", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_a_handshake_keeps_the_version_of_the_client(connect, asked):
    """Every released version is answered with itself."""
    answer = connect().ask("initialize", {"protocolVersion": asked, "capabilities": {}})["result"]

    assert answer["protocolVersion"] == asked
    assert answer["serverInfo"]["name"] == "kept"
    assert len(answer["instructions"]) <= 1_500


@pytest.mark.parametrize("asked", ["2031-01-01", 5, None])
def test_an_unknown_version_is_answered_with_the_newest(connect, asked):
    """The client decides whether it continues."""
    answer = connect().ask("initialize", {"protocolVersion": asked})["result"]

    assert answer["protocolVersion"] == "2025-11-25"


def test_a_stateless_request_needs_no_handshake(connect):
    """Each result is complete, names the server and is not cached."""
    wire = connect()
    discovered = wire.ask("server/discover", {"_meta": ENVELOPE})["result"]
    listed = wire.ask("tools/list", {"_meta": ENVELOPE})["result"]
    called = wire.ask("tools/call", {"name": "memory_read", "_meta": ENVELOPE})["result"]

    assert discovered["supportedVersions"] == ["2026-07-28"]
    assert len(discovered["instructions"]) > 500
    assert {one["resultType"] for one in (discovered, listed, called)} == {"complete"}
    assert {one["_meta"][SERVER]["name"] for one in (discovered, listed, called)} == {"kept"}
    assert (listed["ttlMs"], listed["cacheScope"]) == (0, "private")
    assert "ttlMs" not in called


def test_results_of_the_handshake_era_have_no_new_fields(wire):
    """An older client sees only what its version defines."""
    listed = wire.ask("tools/list")["result"]

    assert set(listed) == {"tools"}


def test_a_newer_stateless_version_is_refused_with_the_known_ones(connect):
    """The client can try again with a version that both speak."""
    newer = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    error = connect().ask("tools/list", {"_meta": newer})["error"]

    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


def test_a_half_envelope_is_refused(connect):
    """Without capabilities a stateless request is invalid."""
    half = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}

    assert connect().ask("tools/list", {"_meta": half})["error"]["code"] == INVALID_PARAMS


def test_garbage_is_answered_and_the_server_continues(wire):
    """Broken JSON, a batch, a missing method, wrong params and unknown methods are errors with the id, if there is one."""
    wire.send(b"{not json")
    assert (answer := wire.receive())["error"]["code"] == PARSE_ERROR
    assert answer["id"] is None
    wire.send([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
    assert "batches" in wire.receive()["error"]["message"]
    wire.send({"jsonrpc": "2.0", "id": 7})
    assert wire.receive()["id"] == 7
    wire.send({"jsonrpc": "2.0", "id": "a", "method": "tools/list", "params": [1]})
    assert wire.receive() == {
        "jsonrpc": "2.0",
        "id": "a",
        "error": {"code": INVALID_PARAMS, "message": "params must be an object"},
    }
    assert wire.ask("nothing/here")["error"]["code"] == METHOD_NOT_FOUND
    assert wire.ask("tools/call", {"name": ""})["error"]["code"] == INVALID_PARAMS
    assert wire.ask("tools/call", {"name": "memory", "arguments": "x"})["error"]["code"] == INVALID_PARAMS
    wire.send(b"\xff\xfe\n\n")
    assert wire.receive()["error"]["code"] == PARSE_ERROR
    wire.send({"jsonrpc": "2.0", "id": 9, "result": {}})
    wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}})
    assert wire.ask("ping")["result"] == {}


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_no_line_breaks_the_parser(line):
    """Whatever comes, it is a message, an answer of the client, or a protocol error."""
    with contextlib.suppress(ProtocolError):
        assert isinstance(parse(line), Message | None)

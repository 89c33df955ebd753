"""A server in this process, at the other end of two pipes."""

import json
import os
from contextlib import contextmanager

import pytest

from wellkept.app import open_app
from wellkept.core.threads import start_job
from wellkept.mcp_server.server import Server


class Wire:
    """The client's end: sends lines, reads answers."""

    def __init__(self, server, source, target):
        self._source, self._target, self._number = source, target, 0
        self.job = start_job(server.run, name="server")

    def send(self, message):
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self._source.write(line + b"\n")
        self._source.flush()

    def receive(self):
        return json.loads(self._target.readline())

    def ask(self, method, params=None, *, number=None):
        self._number = self._number + 1 if number is None else number
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}})
        return self.receive()

    def call(self, name, /, **arguments):
        return self.ask("tools/call", {"name": name, "arguments": arguments})["result"]

    def value(self, name, /, **arguments):
        result = self.call(name, **arguments)
        assert result["isError"] is False, result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    def text(self, name, /, **arguments):
        result = self.call(name, **arguments)
        assert result["isError"] is False, result
        assert "structuredContent" not in result
        return result["content"][0]["text"]

    def failure(self, name, /, **arguments):
        """The text of a result that is an error; always one line."""
        result = self.call(name, **arguments)
        assert result["isError"] is True, result
        (part,) = result["content"]
        assert "\n" not in part["text"]
        return part["text"]

    def close(self):
        self._source.close()
        assert self.job.wait(30)
        self.job.value()


@pytest.fixture
def connect(home):
    """Opens connections to servers on the test's home, for the owner or another user."""
    wires = []

    def connect(user="owner", *, opener=None):
        @contextmanager
        def open_caller():
            app = open_app()
            try:
                yield app.caller(user)
            finally:
                app.close()

        to_server, from_server = os.pipe(), os.pipe()
        server = Server(opener or open_caller, os.fdopen(to_server[0], "rb"), os.fdopen(from_server[1], "wb"))
        wire = Wire(server, os.fdopen(to_server[1], "wb"), os.fdopen(from_server[0], "rb"))

        wires.append((wire, server))
        return wire

    yield connect
    for wire, server in wires:
        if not wire._source.closed:
            wire._source.close()
            wire.job.wait(30)
        for stream in (server._source, server._target, wire._target):
            stream.close()


@pytest.fixture
def wire(connect):
    """A connection of the owner, after the handshake."""
    opened = connect()
    opened.ask("initialize", {"protocolVersion": "2025-11-25", "clientInfo": {"name": "claude-code"}})
    opened.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return opened

"""A real server on a port of its own, and clients with and without tokens."""

import socket
import threading
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
import uvicorn

from wellkept.app import open_app
from wellkept.gateway.limits import limit
from wellkept.gateway.server import build_application
from wellkept.gateway.state import tokens
from wellkept.mcp_server.server import answer_body
from wellkept.operations import users


class Served:
    """One server with its home."""

    def __init__(self, app, url, server):
        self.app = app
        self.url = url
        self.server = server
        self.owner = app.caller()

    @property
    def secret(self):
        """The start-up token, which needs no database."""
        return tokens.ensure_start_token(self.app).secret

    @property
    def proxy(self):
        """Return the base URL of the proxy, with the token in its path."""
        return f"{self.url}/proxy/{self.secret}"

    def client(self, token=None, **headers):
        """Return a client with a token: that of the start-up if none is given, and none if it is empty."""
        token = self.secret if token is None else token
        own = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx2.Client(base_url=self.url, headers={**own, **headers}, timeout=60)

    def browser(self, user="owner"):
        """Return a client that a person has signed in by a link."""
        client = self.client("", Accept="text/html")
        assert client.get("/sign-in", params={"link": tokens.create_link(self.owner, user)}).status_code == 303
        return client

    def token(self, user="owner", *scopes):
        """Create a token; the user too if needed."""
        if user != "owner":
            users.create_user(self.owner, user)
        return tokens.create_token(self.owner, user, scopes=scopes).secret


class QuickServer(uvicorn.Server):
    """Looks more often than ten times a second whether it shall stop: most tests start a server of their own."""

    async def main_loop(self):
        while not await self.on_tick(0):  # noqa: ASYNC110 - uvicorn sets a flag, from another thread
            await anyio.sleep(0.01)


@contextmanager
def serve(home, environ=None, host="127.0.0.1"):
    """Serve a home until the end of the block."""
    app = open_app(str(home), environ={"HOME": str(Path(home).parent), **(environ or {})})
    app.folder = Path("/")
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        build_application(app, host=host, answer_mcp=answer_body), http=limit(app.settings.serve), ws="none", log_config=None, access_log=False,
        h11_max_incomplete_event_size=65_536,
    )  # fmt: skip
    server = QuickServer(config)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(0.01)
    try:
        yield Served(app, f"http://127.0.0.1:{listener.getsockname()[1]}", server)
    finally:
        server.should_exit = True
        thread.join(30)
        app.close()


@pytest.fixture
def served(home):
    """A server on an empty home, without a model."""
    with serve(home) as found:
        yield found

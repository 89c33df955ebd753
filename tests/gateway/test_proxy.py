"""The proxy against endpoints on loopback: bytes, additions that stay in place, faults, and what is stored."""

import gzip
import json
import threading
import time
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from kept.operations import pages, sessions

from .conftest import serve

KEY = "sk-ant-secret-0123456789-abcdefghij"
FACT = "The staging server is called heron and listens on port 4471"
QUESTION = "what is the staging server called and on which port"


class Endpoint:
    """A server that records each request byte for byte, and answers with the bytes of a plan."""

    def __init__(self):
        self.received = []
        self.plan = lambda _request: None
        self.left = threading.Event()
        """Set when a client left while an answer was sent."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args):
                pass

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                pairs = [(name.lower(), value) for name, value in self.headers.items()]
                outer.received.append((self.command, self.path, pairs, body))
                status, headers, chunks = outer.plan(outer.received[-1]) or outer.say(body)
                self.send_response_only(status)
                for name, value in headers:
                    self.send_header(name, value)
                is_chunked = not any(name.lower() == "content-length" for name, _ in headers)
                if is_chunked:
                    self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    for chunk in chunks:
                        if chunk is None:  # the connection breaks
                            self.wfile.flush()
                            self.connection.shutdown(2)
                            self.close_connection = True
                            return
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if is_chunked else chunk)
                        self.wfile.flush()
                    if is_chunked:
                        self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    outer.left.set()
                    self.close_connection = True

            do_GET = do_POST = do_DELETE = do_HEAD = handle_any

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_args):
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def say(self, body, text=None):
        """Return an answer in the form of Anthropic's messages."""
        number = len(self.received)
        answer = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
        answer["content"] = [{"type": "text", "text": text or f"answer {number}"}]
        answer["usage"] = {"input_tokens": 7, "output_tokens": 3}
        data = json.dumps(answer).encode()
        return 200, [("Content-Type", "application/json"), ("Content-Length", str(len(data)))], [data]

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_error):
        self._server.shutdown()
        self._server.server_close()


class World:
    """A proxy between clients and one endpoint."""

    def __init__(self, served, endpoint):
        self.served = served
        self.endpoint = endpoint
        self.caller = served.owner

    def post(self, body, path="v1/messages", headers=None, upstream="anthropic"):
        """Send a request as an SDK would; `body` is bytes, or is written as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        own = {"x-api-key": KEY, "content-type": "application/json", **(headers or {})}
        with httpx2.Client(timeout=60) as client:
            return client.post(f"{self.served.url}/proxy/{upstream}/{path}", content=content, headers=own)

    def ask(self, *texts, **more):
        """Ask with a history of texts, the person first."""
        messages = [
            {"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)
        ]
        return self.post({"model": "m", "max_tokens": 99, "messages": messages, **more})

    @property
    def sent(self):
        """Return the bodies that arrived at the endpoint."""
        return [body for _method, _path, _headers, body in self.endpoint.received]

    def stored(self, count=None):
        """Return the texts of every session, the oldest first; waits until there are `count` messages."""
        deadline = time.monotonic() + 20
        while True:
            with self.served.client() as client:
                listed = client.get("/api/sessions").json()
                shown = [client.get(f"/api/sessions/{one['session_id']}").json()["messages"] for one in reversed(listed)]
            found = [[(row["role"], row["content"]) for row in rows] for rows in shown]
            if count is None or sum(map(len, found)) >= count or time.monotonic() > deadline:
                return found
            time.sleep(0.02)

    def remember(self, text=FACT):
        """Let the memory hold a past conversation."""
        self.ask(text, system="earlier")
        self.stored(2)


@contextmanager
def proxied(home, **settings):
    """Serve a proxy whose time is not measured, unless a test says so."""
    with Endpoint() as endpoint:
        environ = {
            "KEPT_SERVE__PROXY__ENABLED": "true",
            "KEPT_SERVE__PROXY__WAIT_MILLISECONDS": "10000",
            "KEPT_SERVE__PROXY__UPSTREAMS": json.dumps({"anthropic": endpoint.url, "openai": f"{endpoint.url}/v1"}),
            **settings,
        }
        with serve(home, environ) as served:
            yield World(served, endpoint)


@pytest.fixture
def world(home):
    with proxied(home) as made:
        yield made


def test_first(world):
    world.remember()
    done = world.ask(QUESTION)
    print(done.headers, done.text)
    print(world.sent[-1].decode())
    print(world.stored(4))
    assert 0

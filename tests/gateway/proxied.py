"""A proxy between clients and an endpoint on loopback that records every byte."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2

from .conftest import serve

KEY = "sk-ant-secret-0123456789-abcdefghij"
FACT = "The staging server is called heron and listens on port 4471"
QUESTION = "what is the staging server called and on which port"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_args):
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        pass

    def do_POST(self):
        endpoint = self.server.endpoint
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        pairs = [(name.lower(), value) for name, value in self.headers.items()]
        endpoint.received.append((self.command, self.path, pairs, body))
        status, headers, chunks = endpoint.plan(endpoint.received[-1]) or endpoint.say()
        self.send_response_only(status)
        is_chunked = not any(name.lower() == "content-length" for name, _ in headers)
        for name, value in [*headers, *([("Transfer-Encoding", "chunked")] if is_chunked else [])]:
            self.send_header(name, value)
        self.end_headers()
        try:
            self.write(chunks, is_chunked=is_chunked)
        except OSError:
            endpoint.left.set()
            self.close_connection = True

    do_GET = do_DELETE = do_HEAD = do_POST  # noqa: N815 - names of the base class

    def write(self, chunks, *, is_chunked):
        for chunk in chunks:
            if chunk is None:  # the connection breaks
                self.connection.shutdown(2)
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if is_chunked else chunk)
        if is_chunked:
            self.wfile.write(b"0\r\n\r\n")


class Endpoint:
    """A server that records each request byte for byte, and answers with the bytes of a plan."""

    def __init__(self):
        self.received = []
        self.plan = lambda _request: None
        """Returns status, headers and chunks for a request; None for an answer that is numbered."""
        self.left = threading.Event()
        """Set when a client left while an answer was sent."""
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.endpoint = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def say(self, text=None):
        """Return an answer in the form of Anthropic's messages."""
        number = len(self.received)
        content = [{"type": "text", "text": text or f"answer {number}"}]
        answer = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": content}
        return reply_json({**answer, "stop_reason": "end_turn", "usage": {"input_tokens": 7, "output_tokens": 3}})

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_error):
        self._server.shutdown()
        self._server.server_close()


def reply_json(value, status=200):
    """Return a reply with one object."""
    data = json.dumps(value).encode()
    return status, [("Content-Type", "application/json"), ("Content-Length", str(len(data)))], [data]


class World:
    """A proxy between clients and one endpoint."""

    def __init__(self, served, endpoint):
        self.served = served
        self.endpoint = endpoint

    def post(self, body, path="v1/messages", headers=None, upstream="anthropic", *, has_token=True):
        """Send a request as an SDK would; `body` is bytes, or is written as JSON."""
        place = self.served.proxy if has_token else f"{self.served.url}/proxy"
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        own = {"x-api-key": KEY, "content-type": "application/json", **(headers or {})}
        with httpx2.Client(timeout=60) as client:
            return client.post(f"{place}/{upstream}/{path}", content=content, headers=own)

    def ask(self, *texts, **more):
        """Ask with a history of texts, the person first."""
        messages = [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)]
        return self.post({"model": "m", "max_tokens": 99, "messages": messages, **more})

    @property
    def sent(self):
        """Return the bodies that arrived at the endpoint."""
        return [body for _method, _path, _headers, body in self.endpoint.received]

    def settle(self):
        """Wait until every exchange has ended and is stored."""
        proxy = self.served.server.config.app._app.state.proxy
        deadline = time.monotonic() + 30
        while proxy._running or proxy._waiting:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def stored(self):
        """Return the texts of every session, the oldest first, when all is stored."""
        self.settle()
        with self.served.client() as client:
            listed = [one["session_id"] for one in reversed(client.get("/api/sessions").json())]
            shown = [client.get(f"/api/sessions/{name}").json()["messages"] for name in listed]
        return [[(row["role"], row["content"]) for row in rows] for rows in shown]

    def note(self, text):
        """Write an entry to the page about the person."""
        with self.served.client() as client:
            assert client.post("/api/memory/user/entries", json={"text": text}).is_success

    def remember(self, text=FACT):
        """Let the memory hold a past conversation."""
        self.ask(text, system="earlier")
        self.settle()


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

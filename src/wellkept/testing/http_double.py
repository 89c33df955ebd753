"""A loopback double of a JSON back end: routes in a table, requests recorded, faults on demand."""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct


class DoubleRequest(Struct, frozen=True):
    """One request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any
    groups: tuple[str, ...] = ()
    """What the route's expression captured of the path."""


class Fault(Struct, frozen=True):
    """An answer that replaces the usual one."""

    status: int = 500
    body: bytes = b'{"error": "down"}'
    content_type: str = "application/json"
    seconds: float = 0.0
    """Silence before the answer."""
    location: str = ""
    """Where a redirect leads."""
    drip_seconds: float = 0.0
    """Silence after each byte of the body."""


Answer = tuple[int, Any]
Handler = Callable[[DoubleRequest], Answer]


class HttpDouble:
    """The server; a context manager. A subclass adds routes with `route` and keeps its state in attributes.

    `faults` are used up one per request; `outage` is used for every request while it is set.
    """

    def __init__(self) -> None:
        self.requests: list[DoubleRequest] = []
        self.faults: list[Fault] = []
        self.outage: Fault | None = None
        self.lost_answers: list[str] = []
        """Expressions of paths: the next request to one is carried out, and its answer lost."""
        self.guard = threading.RLock()
        self.stopped = threading.Event()
        self._routes: list[tuple[str, re.Pattern[str], Handler]] = []
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    def route(self, method: str, pattern: str, handler: Handler) -> None:
        """Answer `method` on a path that matches the whole expression."""
        self._routes.append((method, re.compile(pattern), handler))

    def check(self, request: DoubleRequest) -> Answer | None:
        """Return a refusal for a request without the right key, None for a good one."""
        del request
        return None

    @property
    def url(self) -> str:
        """Return the address."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen, on the same port as before if it was stopped."""
        self.stopped.clear()
        handler = type("Handler", (_Handler,), {"double": self})
        self._server = _Server(("127.0.0.1", self._port), handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening: the next request finds nobody."""
        self.stopped.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def answer(self, request: DoubleRequest) -> Answer | Fault:
        """Record the request and return its answer."""
        with self.guard:
            self.requests.append(request)
            if self.outage is not None:
                return self.outage
            if self.faults:
                return self.faults.pop(0)
            refused = self.check(request)
            if refused is not None:
                return refused
            for method, pattern, handler in self._routes:
                found = pattern.fullmatch(request.path)
                if found is not None and method == request.method:
                    groups = tuple(unquote(group) for group in found.groups())
                    return handler(
                        DoubleRequest(
                            request.method, request.path, request.query, request.headers, request.body, groups
                        )
                    )
        return 404, {"error": f"no route {request.method} {request.path}"}

    def loses_answer(self, method: str, path: str) -> bool:
        """Whether the answer to this request gets lost; each expression counts once."""
        with self.guard:
            found = [answer for answer in self.lost_answers if method == "POST" and re.fullmatch(answer, path)]
            if found:
                self.lost_answers.remove(found[0])
            return bool(found)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Handler(BaseHTTPRequestHandler):
    double: HttpDouble

    def log_message(self, *_args: object) -> None:
        """Print nothing."""

    def _handle(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        headers = {name.lower(): value for name, value in self.headers.items()}
        found = self.double.answer(
            DoubleRequest(self.command, address.path, dict(parse_qsl(address.query)), headers, body)
        )
        if self.double.loses_answer(self.command, address.path):
            self.close_connection = True
        elif isinstance(found, Fault):
            self.double.stopped.wait(found.seconds)  # ends early with the double, so that no thread outlives its test
            self._send(found.status, found.body, found.content_type, fault=found)
        else:
            status, value = found
            self._send(status, b"" if value is None else json.dumps(value).encode(), "application/json")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 - the names of http.server

    def _send(self, status: int, body: bytes, content_type: str, *, fault: Fault | None = None) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            if fault is not None and fault.location:
                self.send_header("Location", fault.location)
            self.end_headers()
            step = 1 if fault is not None and fault.drip_seconds else max(1, len(body))
            for start in range(0, len(body), step):
                self.wfile.write(body[start : start + step])
                time.sleep(fault.drip_seconds if fault is not None else 0)
        except OSError:  # the client has given up
            self.close_connection = True

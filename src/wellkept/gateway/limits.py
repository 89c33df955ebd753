"""The limits of the server: connections; and before every request Host and Origin, size and speed, rate, and token."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio
from msgspec import Struct, field
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from wellkept.agent.offload import offload
from wellkept.core.errors import KeptError, StorageError
from wellkept.gateway.identity import TOKEN_HEADER, deliverer, is_screen
from wellkept.gateway.requests import failure, problem
from wellkept.gateway.routes.v1 import PROXY, write_problem
from wellkept.gateway.state import tokens
from wellkept.gateway.web.frame import SIGN_IN, show_plain_problem, wants_page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from wellkept.config.settings import ServeSettings
    from wellkept.gateway.identity import Gate, Principal
    from wellkept.gateway.metrics import Metrics

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/api/hello"})
"""Paths that need no token: they only show that the server runs."""
STATIC = "/static/"
"""Styles and scripts of the pages, without user data."""
HOOKS = "/hooks/"
"""Below this path requests are signed and need no token."""
_PROXY_SECONDS = 0.1
"""How long the proxy waits for the database to identify a caller who is cached."""
_MOST_HEADERS = 100
_MOST_HEADER_BYTES = 32_768
_SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Rates:
    """Counts the requests of each principal: how many run, and a bucket that refills over a minute."""

    def __init__(self, *, per_minute: int, at_once: int) -> None:
        self._per_minute = per_minute
        self._at_once = at_once
        self._running: Counter[str] = Counter()
        self._buckets: dict[str, tuple[float, float]] = {}

    def admit(self, name: str) -> float | None:
        """Count one request; return the seconds to wait if it is one too many."""
        if self._running[name] >= self._at_once:
            return 1.0
        now = time.monotonic()
        left, since = self._buckets.get(name, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - since) * self._per_minute / 60)
        if left < 1:
            self._buckets[name] = (left, now)
            return (1 - left) * 60 / self._per_minute
        self._buckets[name] = (left - 1, now)
        self._running[name] += 1
        if len(self._buckets) > 10_000:  # full buckets carry no information
            self._buckets = {each: kept for each, kept in self._buckets.items() if kept[0] < self._per_minute - 1}
        return None

    def release(self, name: str) -> None:
        """Count the end of a request."""
        self._running[name] -= 1
        if self._running[name] <= 0:
            del self._running[name]


class Entrance:
    """The outermost layer of the server."""

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        settings: ServeSettings,
        metrics: Metrics,
        *,
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self._app = app
        self._gate = gate
        self._settings = settings
        self._metrics = metrics
        self.drain = drain
        self._rates = Rates(per_minute=settings.requests_per_minute, at_once=settings.requests_at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        _take_path_token(scope)
        headers = Headers(scope=scope)
        secure = _add_headers(send, self._metrics)
        refused = self._refuse(scope, headers)
        if refused is not None:
            await _tell(scope, headers, refused)(scope, receive, secure)
            return
        if scope["path"] in OPEN_PATHS or scope["path"].startswith(STATIC):
            await self._app(scope, receive, secure)
            return
        if scope["path"].startswith(HOOKS) or scope["path"] == SIGN_IN:
            await self._run(scope, receive, secure, deliverer(scope.get("client")))
            return
        began = time.monotonic()
        try:
            principal = await self._identify(scope, headers)
        except KeptError as error:
            await _tell(scope, headers, failure(error))(scope, receive, secure)
            return
        scope.setdefault("state", {})["identity_seconds"] = time.monotonic() - began
        await self._run(scope, receive, secure, principal)

    async def _identify(self, scope: Scope, headers: Headers) -> Principal:
        """Return the caller. A request to the proxy does not wait for a locked, damaged or slow database."""
        client = scope.get("client")
        address = client[0] if client else ""
        if not scope["path"].startswith(PROXY):
            allows_cookie = is_screen(scope["path"])
            identify = partial(self._gate.identify, headers, address=address, allows_cookie=allows_cookie)
            return await offload(identify, reserved=True)
        identify = partial(self._gate.identify_proxied, headers, address=address)
        try:
            with anyio.fail_after(_PROXY_SECONDS):
                return await offload(identify, abandon=True, reserved=True)
        except (TimeoutError, StorageError) as error:
            known = self._gate.remember_proxied(headers)
            if known is not None:
                return known
            if isinstance(error, StorageError):
                raise
        return await offload(identify, reserved=True)  # not cached: wait for the database

    def _limit_of(self, path: str) -> int:
        """Return how many bytes a body may have."""
        return self._settings.proxy.max_body_bytes if path.startswith(PROXY) else self._settings.max_body_bytes

    def _refuse(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the problem of a request that is invalid with any token."""
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if len(scope["headers"]) > _MOST_HEADERS or size > _MOST_HEADER_BYTES:
            return problem(431, f"a request may have at most {_MOST_HEADERS} headers and {_MOST_HEADER_BYTES} bytes")
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._gate.accepts_host(hosts[0]):
            return problem(421, "this server does not answer under that name", "add the name to serve.hosts")
        if not self._is_own_page(headers, hosts[0]):
            return problem(403, "pages of other sites cannot call this server")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            return problem(400, "Content-Length is not a number")
        if int(length) > self._limit_of(scope["path"]):
            return problem(413, f"a body may have at most {self._limit_of(scope['path']):,} bytes")
        return None

    def _is_own_page(self, headers: Headers, host: str) -> bool:
        """Whether a request comes from a program, or from a page of this server."""
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site", "none") in {"none", "same-origin"}
        return self._gate.accepts_origin(origin, host)

    async def _run(self, scope: Scope, receive: Receive, send: Send, principal: Principal) -> None:
        wait = self._rates.admit(principal.name)
        if wait is not None:
            headers = {"Retry-After": str(max(1, round(wait)))}
            answer = problem(429, "too many requests at once or per minute", "wait and try again", headers=headers)
            await _tell(scope, Headers(scope=scope), answer)(scope, receive, send)
            return
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        state["principal"] = principal
        state["caller"] = self._gate.caller(principal)
        body = BodyLimit(receive, most=self._limit_of(scope["path"]), seconds=self._settings.body_seconds)
        try:
            await self._app(scope, body.receive, send)
        finally:
            self._rates.release(principal.name)


def _take_path_token(scope: Scope) -> None:
    """Move the token of `/proxy/TOKEN/NAME/…` into its header, so that nothing behind this layer sees it in the path.

    The header of a request counts more than the address that its client was configured with.
    """
    head, _, rest = scope["path"].removeprefix(PROXY).partition("/")
    if not scope["path"].startswith(PROXY) or not tokens.is_token(head):
        return
    _, _, _, *raw = scope["raw_path"].split(b"/", 3)
    scope["path"], scope["raw_path"] = PROXY + rest, PROXY.encode() + b"".join(raw)
    name = TOKEN_HEADER.encode()
    if not any(header == name and value for header, value in scope["headers"]):
        others = [pair for pair in scope["headers"] if pair[0] != name]
        scope["headers"] = [*others, (name, head.encode("latin-1", "replace"))]


def _tell(scope: Scope, headers: Headers, problem: Response) -> Response:
    """Return a problem in the form that its client expects: a browser is redirected to the sign-in page."""
    if not is_screen(scope["path"]) or not wants_page(headers):
        return write_problem(scope["path"], problem)
    if problem.status_code == 401:
        query = scope["query_string"].decode("latin-1")
        back = quote(scope["path"] + (f"?{query}" if query else ""), safe="")
        to = f"?to={back}" if scope["method"] == "GET" and scope["path"] != "/" else ""
        return RedirectResponse(f"{SIGN_IN}{to}", 303, headers={"Cache-Control": "no-store"})
    return show_plain_problem(json.loads(bytes(problem.body)), problem.status_code, problem.headers.get("retry-after"))


class BodyLimit:
    """Counts the bytes of a body and the time until it is complete."""

    def __init__(self, receive: Receive, *, most: int, seconds: float) -> None:
        self._receive = receive
        self._most = most
        self._deadline = time.monotonic() + seconds
        self._bytes = 0
        self._is_complete = False

    async def receive(self) -> Message:
        """Return the next part; raises HTTPException. After the body, wait for a disconnect without a limit."""
        if self._is_complete:
            return await self._receive()
        message: Message | None = None
        with anyio.move_on_after(max(0.0, self._deadline - time.monotonic())):
            message = await self._receive()
        if message is None:
            raise HTTPException(408, "the body of the request did not arrive in time")
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._is_complete = not message.get("more_body", False)
            if self._bytes > self._most:
                raise HTTPException(413, f"a body may have at most {self._most:,} bytes")
        return message


def _add_headers(send: Send, metrics: Metrics) -> Send:
    """Return a function that counts an answer and adds the security headers that it does not set itself."""

    async def send_secure(message: Message) -> None:
        if message["type"] == "http.response.start":
            metrics.requests[message["status"]] += 1
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_secure


BACKLOG = 64
"""How many new connections are accepted before one of them is looked at."""
_MOST_RESERVED_FILES = 192
"""Files of the process that are not connections: databases, logs, endpoints, and the accepted connections above."""
WRITE_SECONDS = 60.0
"""How long a client may take to receive a part of its answer."""
UNREAD_SECONDS = 2.0
"""After how long a client that does not read makes room for another one."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)  # fmt: skip


class Connections(Struct):
    """All connections of a server."""

    most: int
    per_address: int
    header_seconds: float
    _open: dict[LimitedProtocol, None] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: ServeSettings) -> Connections:
        """Return the table for a server with these settings, in what the process may open."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = settings.connections
        if files != resource.RLIM_INFINITY:
            most = max(8, min(most, files - min(_MOST_RESERVED_FILES, files // 2)))
        return cls(most, min(most, settings.connections_per_address), settings.header_seconds)

    def admit(self, new: LimitedProtocol) -> bool:
        """Add a connection, and close the longest waiting one if there are too many; False if all are in use."""
        others = [connection for connection in self._open if connection.address == new.address]
        if len(others) >= self.per_address and not self._make_room(others):
            return False
        if len(self._open) >= self.most and not self._make_room(self._open):
            return False
        self._open[new] = None
        return True

    def remove(self, gone: LimitedProtocol) -> None:
        """Remove a connection that was closed."""
        self._open.pop(gone, None)

    def _make_room(self, candidates: Iterable[LimitedProtocol]) -> bool:
        idle = [candidate for candidate in candidates if candidate.is_waiting or candidate.is_unread]
        if not idle:
            return False
        longest = min(idle, key=lambda each: (not each.is_waiting, each.since))
        self.remove(longest)
        longest.transport.abort()
        return True


class LimitedProtocol(H11Protocol):
    """A connection that is closed if it sends no request, half of one, or does not read its answer."""

    table: Connections
    """Set by `limit`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.since = self.loop.time()
        """Since when it waits for a request, or for its client to read, if it does."""
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """Return the address of the client."""
        return self.client[0] if self.client else ""

    @property
    def is_waiting(self) -> bool:
        """Whether no request runs on it."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_unread(self) -> bool:
        """Whether a part of an answer has waited for its client, for longer than a slow network explains."""
        return self._write_timer is not None and self.loop.time() - self.since >= UNREAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for a request, or refuse the connection."""
        super().connection_made(transport)
        if not self.table.admit(self):
            transport.write(_FULL)
            self._close()
            return
        self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self.table.remove(self)
        self._stop_header_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle data; the time for the headers does not begin anew with each part of them."""
        super().data_received(data)
        self._watch_headers()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.since = self.loop.time()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, also if its client does not read."""
        self._close()

    def pause_writing(self) -> None:
        """Give the client some time to read."""
        super().pause_writing()
        self.since = self.loop.time()
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the client reads."""
        self._stop_write_timer()
        super().resume_writing()

    def _watch_headers(self) -> None:
        if not self.is_waiting:
            self._stop_header_timer()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.table.header_seconds, self._close)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _close(self) -> None:
        """Close the connection after what was written, which must not take long either."""
        self.transport.close()
        self.loop.call_later(self.table.header_seconds, self.transport.abort)


def limit(settings: ServeSettings) -> type[LimitedProtocol]:
    """Return the protocol of a server with these settings."""
    return type("LimitedProtocol", (LimitedProtocol,), {"table": Connections.of(settings)})

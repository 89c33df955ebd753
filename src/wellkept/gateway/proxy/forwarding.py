"""Forwarding: send a request to its endpoint and return the reply, byte for byte."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import anyio
import httpx2
from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response

from wellkept.core.errors import ConfigError
from wellkept.gateway.identity import COOKIE
from wellkept.gateway.proxy.replies import Copy
from wellkept.gateway.state import tokens
from wellkept.gateway.streams import finish_or_abandon

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

BUILT_IN = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com"}
"""The endpoints that need no setting."""
CONNECT_SECONDS = 10.0
"""The connect time-out; the client decides how long an answer may take."""
_CLOSE_SECONDS = 2.0
_HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Hop-by-hop headers, which are not forwarded (RFC 9110, 7.6.1)."""
_OURS = "x-kept"
"""The prefix of headers for kept."""
_REPLACED = frozenset({"host", "content-length", "expect"})
_OF_THE_ORIGIN = frozenset(
    {
        b"set-cookie", b"set-cookie2", b"clear-site-data", b"content-security-policy", b"service-worker-allowed",
        b"content-security-policy-report-only", b"refresh", b"strict-transport-security", b"alt-svc",
    }
)  # fmt: skip
"""Headers of a reply that would speak for this server, whose address the reply has in a browser."""
_CORS = b"access-control-"
_OTHER_PATHS = frozenset({"api/hello"})
"""Paths outside `v1` with which clients check whether the endpoint is up."""

_PLAIN_PATH = re.compile(rb"[A-Za-z0-9/._~!$&'()*+,;=:@%-]*")
"""What a path may consist of (RFC 3986, 3.3)."""

Pairs = list[tuple[bytes, bytes]]


def load_upstreams(settings: Mapping[str, str]) -> dict[str, httpx2.URL]:
    """Return the endpoints that requests may be forwarded to; raises ConfigError for an invalid address."""
    return {name: _read_address(name, address) for name, address in {**BUILT_IN, **settings}.items()}


def _read_address(name: str, address: str) -> httpx2.URL:
    place = f"serve.proxy.upstreams.{name}"
    if name.startswith("kept_") or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"{place}: an endpoint cannot have this name", "use letters, digits, - and _")
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(f"{place}: {address!r} is not the address of an endpoint", "write it like https://host/v1")
    return httpx2.URL(address.rstrip("/").removesuffix("/v1"))


def find_target(upstream: httpx2.URL, scope: Scope) -> httpx2.URL | None:
    """Return where a request below `/proxy/NAME/` goes; None for a path that is not forwarded.

    Path and query keep their bytes. Only paths below `v1` are forwarded: an endpoint may have other interfaces.
    """
    rest = scope["raw_path"].split(b"/", 3)[3]
    if not _PLAIN_PATH.fullmatch(rest):
        return None
    segments = unquote(rest.decode("ascii", "replace")).replace("\\", "/").split("/")
    if any(segment in {"", ".", ".."} for segment in segments):
        return None
    if segments[0] != "v1" and "/".join(segments) not in _OTHER_PATHS:
        return None
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    return upstream.copy_with(raw_path=upstream.raw_path.rstrip(b"/") + b"/" + rest + query)


def select_request_headers(given: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """Return the headers of a request to forward, without our own cookie."""
    pairs = [(name, _leave_cookie(value) if name.lower() == b"cookie" else value) for name, value in given]
    return [
        (name, value)
        for name, value in _leave_hops(pairs)
        if name.decode("latin-1").lower() not in _REPLACED
        and not name.decode("latin-1").lower().startswith(_OURS)
        and (value or name.lower() != b"cookie")
    ]


def contains_token(target: httpx2.URL, headers: Pairs) -> bool:
    """Whether a request would take a token of kept to its endpoint, in its address or in any header."""
    values = [value.decode("latin-1") for _, value in headers]
    return any(tokens.contains_token(text) for text in (unquote(str(target)), *values, *map(_decode_basic, values)))


def _decode_basic(value: str) -> str:
    """Return user and password of an `Authorization: Basic …`, empty for any other header."""
    kind, _, encoded = value.partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(encoded).decode("latin-1")
    except ValueError:
        return ""


def _leave_cookie(value: bytes) -> bytes:
    own = f"{COOKIE}=".encode()
    return b";".join(part for part in value.split(b";") if not part.strip().startswith(own)).strip()


def select_reply_headers(given: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """Return the headers of a reply to forward: none with which an endpoint could act as a page of this server."""
    pairs = [(name.lower(), value) for name, value in _leave_hops(given)]
    return [
        *((name, value) for name, value in pairs if name not in _OF_THE_ORIGIN and not name.startswith(_CORS)),
        (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'none'"),
    ]


def _leave_hops(given: Iterable[tuple[bytes, bytes]]) -> Pairs:
    pairs = list(given)
    named = b",".join(value for name, value in pairs if name.lower() == b"connection").decode("latin-1").lower()
    hops = _HOP_BY_HOP | {word.strip() for word in named.split(",")}
    return [(name, value) for name, value in pairs if name.decode("latin-1").lower() not in hops]


def open_client() -> httpx2.AsyncClient:
    """Return the client for all endpoints; it never follows redirects, retries or adds headers."""
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
        follow_redirects=False,
    )


class Outcome(Struct):
    """The outcome of a forwarded request, with a copy of what the client was sent."""

    status: int = 0
    """0 if there was no reply."""
    content_type: str = ""
    coding: str = ""
    copy: Copy = field(default_factory=Copy)
    is_whole: bool = False


class ForwardedReply(Response):
    """The reply to a request, streamed to the client; if the client disconnects, the request is cancelled."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        request: httpx2.Request,
        *,
        headers: Mapping[str, str],
        on_failure: Callable[[int, str], Response],
        on_end: Callable[[Outcome], None],
    ) -> None:
        super().__init__()
        self._client = client
        self._request = request
        self._own_headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._on_failure = on_failure
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the request and write its reply."""
        outcome = Outcome()
        try:
            await finish_or_abandon(Request(scope, receive), lambda: self._exchange(scope, receive, send, outcome))
        finally:
            self._on_end(outcome)

    async def _exchange(self, scope: Scope, receive: Receive, send: Send, outcome: Outcome) -> None:
        try:
            reply = await self._client.send(self._request, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            # the error message may quote a header, and with it a key
            kind = type(error).__name__
            log.warning("the endpoint %s cannot be reached: %s", self._request.url.host, kind)
            status = 504 if isinstance(error, httpx2.TimeoutException) else 502
            told = self._on_failure(status, f"kept cannot reach {self._request.url.host}: {kind}")
            told.headers.update({name.decode(): value.decode() for name, value in self._own_headers})
            await told(scope, receive, send)
            return
        try:
            await self._pass_on(reply, send, outcome)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_SECONDS):
                await reply.aclose()

    async def _pass_on(self, reply: httpx2.Response, send: Send, outcome: Outcome) -> None:
        outcome.status = reply.status_code
        outcome.content_type = reply.headers.get("content-type", "")
        outcome.coding = reply.headers.get("content-encoding", "")
        headers = [*select_reply_headers(reply.headers.raw), *self._own_headers]
        await send({"type": "http.response.start", "status": reply.status_code, "headers": headers})
        try:
            async for chunk in reply.aiter_raw():
                outcome.copy.add(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except httpx2.HTTPError as error:
            # end the client's connection without the end of the body, as the endpoint did
            log.warning("the endpoint %s broke off: %s", self._request.url.host, type(error).__name__)
            return
        outcome.is_whole = True
        await send({"type": "http.response.body", "body": b"", "more_body": False})

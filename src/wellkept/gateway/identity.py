"""Authentication: the token of a request, the user it acts for, the back-off for bad tokens, and Host and Origin."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from wellkept.app import Scope
from wellkept.core.errors import ConfigError, KeptError, NotFound
from wellkept.core.ids import OWNER, UserId
from wellkept.gateway.state import tokens
from wellkept.operations import users

if TYPE_CHECKING:
    from wellkept.app import App, Caller
    from wellkept.gateway.state.tokens import StartToken, Token

log = logging.getLogger(__name__)

COOKIE = "kept_session"
"""The cookie that holds the token of a browser; programs send a header instead."""
TOKEN_HEADER = "x-kept-token"  # noqa: S105 - the name of a header
"""Our token in a request to the proxy: the usual headers contain the key of the endpoint."""
START_HINT = "on this machine `kept serve token show` prints one"
_FORWARDED = re.compile(
    r"forwarded|(?:real|client|connecting|proxyuser)-?ip$|^via$|^cdn-loop$|^cf-|^tailscale-|-external-addr"
)
"""A request with such a header comes through a reverse proxy or a tunnel, perhaps from far away."""
FAILURES_PER_MINUTE = 30
"""How many bad tokens one address may send in a minute; further ones are not looked up."""
BAD_SECONDS = 60.0
"""How long a bad token is refused without another look-up."""
_MOST_FAILURES = 10_000
_EVERYBODY = "*"
"""All addresses together may send ten times as many."""
LEAST_JWT_SECRET = 16
"""The fewest characters of the secret: a shorter one can be guessed from one signed header."""
REMEMBERED_SECONDS = 3_600.0
"""How long the proxy caches callers, for times when the database cannot be read."""
_MOST_REMEMBERED = 1_000
USER_HEADER = "x-kept-user"
FRONT_END_HEADERS = (USER_HEADER, "x-openwebui-user-id", "x-librechat-user-id")
"""Headers in which a front end names its user; they are honoured only with the scope `act-as`."""
JWT_HEADER = "x-openwebui-user-jwt"
JWT_VARIABLE = "KEPT_JWT_SECRET"
"""The variable with the secret with which the front end signs its users, in the environment or in `.env`."""
_LATE_SECONDS = 60.0
"""How far the clocks of the front end and of this machine may differ."""
_MOST_JWT_CHARACTERS = 8_000
_INTERFACES = ("/api/", "/v1/", "/mcp", "/hooks/", "/proxy/", "/metrics", "/healthz", "/readyz")
"""Paths for programs: a cookie is never accepted there, so that no page of another site can use it."""


def is_screen(path: str) -> bool:
    """Whether a path belongs to the web app and not to an interface for programs."""
    return not path.startswith(_INTERFACES)


class Unauthorized(KeptError):
    """The request has no valid token."""

    http_status = 401


class SentAsKey(Unauthorized):
    """A request to the proxy has a token of kept where the endpoint would see it."""

    def __init__(self) -> None:
        super().__init__(
            "a kept token was sent in place of the endpoint's key",
            f"send it in the header {TOKEN_HEADER}, or in the path: /proxy/TOKEN/NAME, and nowhere else",
        )


class TooManyFailures(Unauthorized):
    """Too many bad tokens came from this address."""

    http_status = 429

    def __init__(self, seconds: float) -> None:
        super().__init__("too many bad tokens came from this address", "send a valid one, and wait a moment")
        self.retry_after_seconds = seconds


class Forbidden(KeptError):
    """The token does not allow this."""

    http_status = 403


class Principal(Struct, frozen=True):
    """The user of a request, and what the request may do."""

    user: UserId
    scopes: frozenset[Scope]
    token_id: str = ""
    """Empty for the owner on this machine where `serve.require_token` is off and no token exists."""

    @property
    def name(self) -> str:
        """Return the key by which limits are counted."""
        return f"{self.token_id}:{self.user}"


def deliverer(address: tuple[str, int] | None) -> Principal:
    """Return the principal of a signed delivery: without any scope, and with the limits of its address."""
    return Principal(OWNER, frozenset(), f"delivery from {address[0] if address else 'nobody'}")


class Failures:
    """Remembers tokens that were looked up, so that bad ones cost no reading of the database.

    A token that was bad stays bad for a minute. An address that sends many different ones must wait; tokens that
    were valid before are still looked up, so that a guesser cannot lock out the other clients of his address.
    """

    def __init__(self) -> None:
        self._good: dict[bytes, None] = {}
        self._bad: dict[bytes, float] = {}
        self._buckets: dict[str, tuple[float, float]] = {}

    def knows_bad(self, address: str, secret: str) -> bool:
        """Whether the token was found to be bad a moment ago; raises TooManyFailures if it must not be looked up."""
        mark = _digest(secret)
        if mark in self._good:
            return False
        if self._bad.get(mark, 0.0) > time.monotonic():
            return True
        for bucket in (address, _EVERYBODY):  # an address can be claimed by a header
            left = self._left(bucket)
            if left < 1:
                raise TooManyFailures((1 - left) * 60 / _most_failures(bucket))
        return False

    def note(self, address: str, secret: str, *, is_good: bool) -> None:
        """Remember the outcome of a look-up."""
        for marks in (self._good, self._bad, self._buckets):
            if len(marks) >= _MOST_FAILURES:
                marks.clear()
        mark, now = _digest(secret), time.monotonic()
        if is_good:
            self._good[mark] = None
            return
        self._good.pop(mark, None)
        self._bad[mark] = now + BAD_SECONDS
        for bucket in (address, _EVERYBODY):
            self._buckets[bucket] = (self._left(bucket) - 1, now)

    def _left(self, bucket: str) -> float:
        most = _most_failures(bucket)
        left, since = self._buckets.get(bucket, (float(most), 0.0))
        return min(float(most), left + (time.monotonic() - since) * most / 60)


def _most_failures(bucket: str) -> int:
    return FAILURES_PER_MINUTE * (10 if bucket == _EVERYBODY else 1)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


class Gate:
    """Identifies the caller of each request."""

    def __init__(
        self, app: App, *, is_loopback: bool, hosts: frozenset[str], start_token: StartToken | None = None
    ) -> None:
        self._app = app
        self._is_loopback = is_loopback
        self._hosts = hosts
        self._start_token = start_token
        self._failures = Failures()
        self._jwt_secret = read_jwt_secret(app)
        self._proxied: dict[bytes, tuple[float, Principal]] = {}

    def identify(self, headers: Mapping[str, str], *, address: str = "", allows_cookie: bool = False) -> Principal:
        """Return the caller; raises Unauthorized or Forbidden. Reads the database.

        With `allows_cookie` a browser's cookie is accepted too: for pages, whose forms have a CSRF token.
        """
        secret = _read_secret(headers)
        cookie = read_cookie(headers) if secret is None and allows_cookie else None
        if cookie is not None:
            token = self._look_up(tokens.find_browser, cookie, address)
            if token is not None:
                return self._act_as(Principal(token.user, token.rights, token.id), headers)
        return self._act_as(self._identify(secret, headers, address), headers)

    def identify_proxied(self, headers: Mapping[str, str], *, address: str = "") -> Principal:
        """Return the caller of the proxy. A kept token in place of the endpoint's key is refused: it must stay here."""
        if tokens.is_token(_read_secret(headers) or ""):
            raise SentAsKey
        secret = headers.get(TOKEN_HEADER, "").strip() or None
        ways = f"`{TOKEN_HEADER}: …`, or in the path: /proxy/TOKEN/NAME/v1"
        principal = self._act_as(self._identify(secret, headers, address, ways), headers)
        if len(self._proxied) >= _MOST_REMEMBERED:
            self._proxied.clear()
        self._proxied[_mark_of(headers)] = (time.monotonic(), principal)
        return principal

    def remember_proxied(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the cached caller of these headers; None if it has expired. Does not read the database."""
        when, found = self._proxied.get(_mark_of(headers), (0.0, None))
        return found if time.monotonic() - when < REMEMBERED_SECONDS else None

    def _identify(
        self, secret: str | None, headers: Mapping[str, str], address: str, ways: str = "`Authorization: Bearer …`"
    ) -> Principal:
        is_token = secret is not None and tokens.is_token(secret)
        # clients require some key: where no token is needed, any value that does not look like one is accepted
        if not is_token and self._is_open() and not tokens.has_tokens(self._app):
            if is_forwarded(headers):
                raise Unauthorized("a request through a reverse proxy needs a token", f"send it as {ways}")
            return Principal(OWNER, tokens.START_SCOPES)
        token = self.find_token(secret, address) if secret else None
        if token is None or not self._exists(token.user):
            raise Unauthorized("a valid token is needed", f"send it as {ways}; {START_HINT}")
        return Principal(token.user, token.rights, token.id)

    def _is_open(self) -> bool:
        """Whether this machine may call without a token."""
        return self._is_loopback and not self._app.settings.serve.require_token and not self._hosts

    def find_token(self, secret: str, address: str) -> Token | None:
        """Return the valid token of a program, or the start-up token; raises TooManyFailures."""
        if self._start_token is not None and self._start_token.matches(secret):
            return self._start_token.as_token()
        return self._look_up(tokens.find_token, secret, address)

    def _look_up(self, find: Callable[[App, str], Token | None], secret: str, address: str) -> Token | None:
        mark = f"{find.__name__} {secret}"  # a browser's token is bad as a program's, and still good in its cookie
        if self._failures.knows_bad(address, mark):
            return None
        token = find(self._app, secret)
        self._failures.note(address, mark, is_good=token is not None)
        return token

    def _exists(self, user: UserId) -> bool:
        try:
            users.require_user(self._app.caller(), user)
        except NotFound:
            return False
        return True

    def _act_as(self, base: Principal, headers: Mapping[str, str]) -> Principal:
        """Return the principal for the user that a front end names."""
        signed = headers.get(JWT_HEADER)
        if signed and self._jwt_secret:
            named = read_jwt(signed, self._jwt_secret, now=self._app.clock.now().timestamp())
            if named is None:
                raise Forbidden("the signature of the user is not valid", f"check {JWT_VARIABLE} on both sides")
        elif Scope.ACT_AS in base.scopes:
            named = next((headers[name] for name in FRONT_END_HEADERS if headers.get(name)), None)
        elif headers.get(USER_HEADER):
            raise Forbidden("this token cannot act for another user", "create one with --scope act-as")
        else:
            named = None  # unauthenticated headers of a front end are ignored
        if named is None:
            return Principal(base.user, base.scopes - {Scope.ACT_AS}, base.token_id)
        user = users.check_user_id(named)
        if user == OWNER:  # a user of the front end may have chosen this name
            raise Forbidden("nobody can act for the owner", "use a token of the owner")
        if not self._exists(user):
            users.create_user(self._app.caller(), user)
        return Principal(user, base.scopes & {Scope.READ, Scope.WRITE, Scope.SPEAK}, base.token_id)

    def caller(self, principal: Principal) -> Caller:
        """Return the caller of operations for a principal."""
        return self._app.caller(principal.user, scopes=principal.scopes)

    # Host and Origin

    def accepts_host(self, host: str) -> bool:
        """Whether a Host header names this server: a page of another site cannot reach it under its own name."""
        name = read_host(host)
        return name is not None and (name in self._hosts or _is_loopback(name))

    def accepts_origin(self, origin: str, host: str) -> bool:
        """Whether a page of this origin may call: the server's own pages only."""
        try:
            address = urlsplit(origin)
        except ValueError:
            return False
        return address.scheme in {"http", "https"} and address.netloc.lower() == host.lower()


def read_jwt_secret(app: App) -> str:
    """Return the secret that signs users, empty if there is none; raises ConfigError for a short one."""
    secret = app.environ.get(JWT_VARIABLE) or ""
    if 0 < len(secret) < LEAST_JWT_SECRET:
        raise ConfigError(
            f"{JWT_VARIABLE} has fewer than {LEAST_JWT_SECRET} characters", "make one with: openssl rand -hex 32"
        )
    return secret


def is_forwarded(headers: Mapping[str, str]) -> bool:
    """Whether a request comes through a reverse proxy."""
    return any(_FORWARDED.search(name) for name in headers)


def _mark_of(headers: Mapping[str, str]) -> bytes:
    """Return a hash that identifies callers of the proxy, so that their tokens are not kept."""
    named = "\0".join(headers.get(name, "") for name in (TOKEN_HEADER, JWT_HEADER, *FRONT_END_HEADERS))
    return hashlib.sha256(named.encode("utf-8", "replace")).digest()


def _read_secret(headers: Mapping[str, str]) -> str | None:
    """Return the token of a request: a bearer token, or the key header of Anthropic's clients."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and value.strip():
        return value.strip()
    return headers.get("x-api-key", "").strip() or None


def read_cookie(headers: Mapping[str, str]) -> str | None:
    """Return the token that a browser got when somebody signed in."""
    pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
    return next((value.strip('"') for name, _, value in pairs if name == COOKIE and value), None)


def read_host(host: str) -> str | None:
    """Return the name in a Host header, without its port; None if it is invalid."""
    try:
        address = urlsplit(f"//{host}")
        _ = address.port  # raises if the port is not a number
    except ValueError:
        return None
    if address.path or address.query or address.fragment or address.username is not None:
        return None
    return address.hostname


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_loopback_address(address: str) -> bool:
    """Whether only programs of this machine reach a server that is bound to this address."""
    return _is_loopback(address)


def read_jwt(text: str, secret: str, *, now: float) -> str | None:
    """Return the subject of a token signed with HS256; None if the signature is wrong or the token is not valid now."""
    parts = text.split(".")
    if len(text) > _MOST_JWT_CHARACTERS or len(parts) != 3:
        return None
    try:
        header, payload = json.loads(_decode(parts[0])), json.loads(_decode(parts[1]))
        signature = _decode(parts[2])
    except ValueError:
        return None
    if not isinstance(header, dict) or header.get("alg") != "HS256" or not isinstance(payload, dict):
        return None
    expected = hmac.new(secret.encode(), f"{parts[0]}.{parts[1]}".encode(), hashlib.sha256).digest()
    if not hmac.compare_digest(signature, expected) or not _is_valid_now(payload, now):
        return None
    subject = payload.get("sub")
    return subject if isinstance(subject, str) and subject else None


def _is_valid_now(payload: Mapping[str, object], now: float) -> bool:
    expires, begins = payload.get("exp"), payload.get("nbf", 0)
    if isinstance(expires, bool) or not isinstance(expires, int | float) or not isinstance(begins, int | float):
        return False  # a token without an expiry could be replayed forever
    return begins - _LATE_SECONDS <= now <= expires + _LATE_SECONDS


def _decode(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))

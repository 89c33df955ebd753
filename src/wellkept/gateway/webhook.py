"""The signed webhook: any chat platform that delivers messages to `/hooks/NAME` and receives the replies.

A request is signed with HMAC-SHA256 over its timestamp, a dot and its body. The reply is in the answer to the request;
with `reply_url` it is sent there, signed in the same way.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from msgspec import Struct
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from starlette.responses import Response

from wellkept.core.errors import ConfigError
from wellkept.core.text import JSON, dumps
from wellkept.core.values import hide
from wellkept.gateway.identity import Unauthorized
from wellkept.gateway.platforms import HookAnswer, HookRequest, Undelivered, check_fields, read_secret
from wellkept.gateway.requests import json_response
from wellkept.gateway.state.conversation_keys import Chat
from wellkept.gateway.state.platform_messages import PlatformMessage

if TYPE_CHECKING:
    import httpx2

    from wellkept.app import App
    from wellkept.gateway.platforms import FileContent, Known, Platform, Receive, Reply
    from wellkept.gateway.switchboard import Switchboard

router = APIRouter()

TIMESTAMP = "x-kept-timestamp"
SIGNATURE = "x-kept-signature"
WINDOW_SECONDS = 300.0
"""How old a signed request may be, or how far clocks may differ; within it, repeats are recognised by message id."""
NOT_SIGNED = ("the delivery is not signed as agreed", "see docs/gateway.md, Chat platforms")
_LEAST_SECRET = 16
_SEND_SECONDS = 20.0
_RESERVED = frozenset({"cli", "api", "chat"})
"""Reserved names: sources of sessions that are not platforms; the first has tools that are not for the network."""
_TEMPORARY = frozenset({408, 409, 425, 429})
_SETTINGS: Known = {
    "secret_env": (str,), "reply_url": (str,), "shares_groups": (bool,), "draft_seconds": (int, float),
}  # fmt: skip


class HookMessage(BaseModel):
    """The body of a delivery."""

    id: Annotated[str, Field(min_length=1, max_length=200)]
    user: Annotated[str, Field(min_length=1, max_length=200)]
    text: Annotated[str, Field(min_length=1, max_length=1_000_000)]
    chat_type: Annotated[str, Field(min_length=1, max_length=50, pattern="^[a-z][a-z0-9_-]*$")] = "dm"
    chat: Annotated[str, Field(max_length=500)] = ""
    thread: Annotated[str, Field(max_length=500)] = ""
    user_name: Annotated[str, Field(max_length=200)] = ""
    chat_name: Annotated[str, Field(max_length=200)] = ""


@cache
def _reader() -> TypeAdapter[HookMessage]:
    return TypeAdapter(HookMessage)


class Webhook(Struct):
    """One configured webhook."""

    name: str
    secret: bytes
    reply_url: str | None = None
    shares_groups: bool = False
    draft_seconds: float | None = None
    refresh_seconds: float | None = None
    _client: httpx2.AsyncClient | None = None

    __repr__ = hide("secret", "_client")

    @property
    def sends(self) -> bool:
        """Return whether replies are sent to a separate address."""
        return self.reply_url is not None

    @asynccontextmanager
    async def connect(self, _receive: Receive, _tell: Callable[[str], None]) -> AsyncIterator[None]:
        """Hold the connections for replies inside the block; messages arrive at our route."""
        if self.reply_url is None:
            yield
            return
        import httpx2

        # a redirect could send the reply anywhere
        async with httpx2.AsyncClient(timeout=_SEND_SECONDS, follow_redirects=False, trust_env=False) as client:
            self._client = client
            yield
        self._client = None

    def read(self, headers: Mapping[str, str], body: bytes, *, now: float) -> PlatformMessage:
        """Return the message of a delivery; raises Unauthorized or RequestValidationError."""
        check_signature(self.secret, headers, body, now=now)
        try:
            message = _reader().validate_json(body)
        except ValidationError as error:
            raise RequestValidationError(
                [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
            ) from error
        chat = Chat(self.name, message.chat_type, message.chat, message.thread, message.user)
        return PlatformMessage(message.id, message.text, chat, message.user_name, chat_name=message.chat_name)

    async def take_request(self, request: HookRequest, receive: Receive) -> HookAnswer:
        """Handle a signed delivery."""
        message = self.read(request.headers, request.body, now=request.now)
        reply = await receive(message)
        if reply is None:
            return HookAnswer({"id": message.delivery, "accepted": True}, 202)
        return HookAnswer(reply_json(reply))

    async def read_files(self, _message: PlatformMessage) -> Sequence[FileContent]:
        """Return nothing: deliveries have no files."""
        return ()

    async def send(self, reply: Reply) -> None:
        """Send a whole reply."""
        await self._post("message", reply)

    async def show_draft(self, reply: Reply) -> None:
        """Send the answer so far."""
        await self._post("draft", reply)

    async def _post(self, kind: str, reply: Reply) -> None:
        import time

        import httpx2

        assert self.reply_url is not None, "only a webhook with an address sends"
        if self._client is None:
            raise Undelivered("the server is about to stop", is_temporary=True)
        body = dumps({"type": "error" if reply.is_error else kind, **reply_json(reply)}).encode("utf-8", "replace")
        stamp = str(int(time.time()))
        headers = {"Content-Type": "application/json", "User-Agent": "kept"}
        headers |= {TIMESTAMP: stamp, SIGNATURE: sign(self.secret, stamp, body)}
        try:
            answer = await self._client.post(self.reply_url, content=body, headers=headers)
        except httpx2.HTTPError as error:
            what = f"the reply did not reach serve.platforms.{self.name}.reply_url: {type(error).__name__}"
            raise Undelivered(what, is_temporary=True) from error
        if not answer.is_success:
            is_temporary = answer.status_code >= 500 or answer.status_code in _TEMPORARY
            what = f"serve.platforms.{self.name}.reply_url answered {answer.status_code}"
            after = answer.headers.get("retry-after", "")
            seconds = min(float(after), 3_600.0) if after.isascii() and after.isdigit() else 0.0
            raise Undelivered(what, is_temporary=is_temporary, after_seconds=seconds)


def reply_json(reply: Reply) -> dict[str, JSON]:
    """Return a reply with the chat that it belongs to; `id` is that of the message it answers."""
    chat = reply.message.chat
    return {
        "id": reply.message.delivery,
        "text": reply.text,
        "session_id": reply.session_id,
        "paired": reply.is_paired,
        "chat_type": chat.chat_type,
        "chat": chat.chat,
        "thread": chat.thread,
        "user": chat.user,
    }


def sign(secret: bytes, stamp: str, body: bytes) -> str:
    """Return the signature of a body at a time, given in whole seconds since 1970."""
    return "v1=" + hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def check_signature(secret: bytes, headers: Mapping[str, str], body: bytes, *, now: float) -> None:
    """Raise Unauthorized unless the body was signed with the secret within the window."""
    stamp, given = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
    is_number = stamp.isascii() and stamp.isdigit() and len(stamp) <= 12
    is_recent = is_number and abs(now - int(stamp)) <= WINDOW_SECONDS
    expected = sign(secret, stamp if is_number else "0", body)
    # always compared, so that timing does not reveal which check failed
    is_equal = hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
    if not (is_equal and is_recent):
        raise Unauthorized(*NOT_SIGNED)


def load_platforms(app: App) -> dict[str, Platform]:
    """Return the platforms of the settings; raises ConfigError for one that cannot work."""
    return {name: _load(app, name, dict(fields)) for name, fields in app.settings.serve.platforms.items()}


def _load(app: App, name: str, fields: dict[str, Any]) -> Platform:
    place = f"serve.platforms.{name}"
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii() or name in _RESERVED:
        raise ConfigError(
            f"{place}: a platform cannot have this name", "use letters, digits, - and _; not cli, api, chat"
        )
    kind = fields.pop("kind", "webhook")
    if kind not in KINDS:
        raise ConfigError(f"{place}.kind: there is no platform {kind!r}", f"use one of: {', '.join(KINDS)}")
    return KINDS[kind](app, name, fields)


def _load_webhook(app: App, name: str, fields: dict[str, Any]) -> Platform:
    check_fields(name, fields, _SETTINGS, page="docs/gateway.md, Chat platforms")
    secret = read_secret(app.environ, name, "secret_env", fields.pop("secret_env", ""), _LEAST_SECRET)
    url = fields.get("reply_url")
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigError(
            f"serve.platforms.{name}.reply_url: {url!r} is not a valid URL", "use one that begins with https://"
        )
    return Webhook(name, secret.encode(), **fields)


def _load_telegram(app: App, name: str, fields: dict[str, Any]) -> Platform:
    from wellkept.gateway.telegram.bot import load_telegram  # slow to load, and most servers have no bot

    return load_telegram(app, name, fields)


KINDS: dict[str, Callable[[App, str, dict[str, Any]], Platform]] = {
    "webhook": _load_webhook,
    "telegram": _load_telegram,
}
"""How each kind of platform is built from its settings."""


@router.post("/hooks/{name}", include_in_schema=False, response_model=None)
async def receive_hook(request: Request, name: str) -> Response:
    """Handle a delivery of a platform. An unknown name and a wrong signature get the same answer."""
    switchboard: Switchboard = request.app.state.switchboard
    body, now = await request.body(), request.app.state.app.clock.now().timestamp()
    platform = switchboard.platforms.get(name)
    if platform is None:
        raise Unauthorized(*NOT_SIGNED)
    answer = await platform.take_request(HookRequest(request.headers, body, now), switchboard.receiver(platform))
    return json_response(answer.value, answer.status)

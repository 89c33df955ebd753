"""A bot: connects to Telegram by long polling or webhook, and passes messages on."""

from __future__ import annotations

import hmac
import json
import logging
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, assert_never
from urllib.parse import urlsplit

import anyio
from msgspec import Struct

from wellkept.core.errors import ConfigError, KeptError
from wellkept.core.values import hide
from wellkept.gateway.identity import Unauthorized, is_loopback_address
from wellkept.gateway.platforms import HookAnswer, Moved, Stopped, Undelivered, check_fields, read_secret
from wellkept.gateway.slash import COMMANDS
from wellkept.gateway.state.platform_messages import PlatformMessage
from wellkept.gateway.streams import run_guarded
from wellkept.gateway.telegram.api import ApiError, BotApi, Unreachable
from wellkept.gateway.telegram.replies import Replies
from wellkept.gateway.telegram.updates import ALLOWED, Bot, NotAnUpdate, Reader, StoppedDraft

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    import httpx2

    from wellkept.app import App
    from wellkept.core.text import JSON
    from wellkept.gateway.platforms import FileContent, HookRequest, Known, Platform, Receive, Reply

log = logging.getLogger(__name__)

API_URL = "https://api.telegram.org"
TOKEN_VARIABLE = "TELEGRAM_BOT_TOKEN"  # noqa: S105 - the name of a variable
SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 - the name of a header
POLL_SECONDS = 50
"""How long Telegram holds a request until there is an update."""
_PAUSES = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Seconds before the next attempt while Telegram cannot be reached; the last one repeats."""
_CONFLICT_PAUSES = (5.0, 30.0)
"""A killed process's poll may last a while; after this many conflicts, another program must be polling."""
_SETTINGS: Known = {
    "token_env": (str,), "webhook_url": (str,), "secret_env": (str,), "shares_groups": (bool,), "groups": (str,),
    "draft_seconds": (int, float), "api_url": (str,),
}  # fmt: skip
_TOKEN = re.compile(r"\d{1,20}:[\w-]{20,100}", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
_PAGE = "docs/telegram.md"


class Hook(Struct, frozen=True):
    """Where Telegram delivers updates, and the secret that authenticates them."""

    url: str
    secret: str

    __repr__ = hide("secret")


class Telegram(Struct):
    """One configured bot."""

    name: str
    token: str
    hook: Hook | None = None
    """None for long polling."""
    shares_groups: bool = False
    answers_all: bool = False
    draft_seconds: float | None = 1.0
    api_url: str = API_URL
    sends: bool = True
    refresh_seconds: float | None = 4.5
    """Telegram shows the typing indicator for five seconds."""
    _replies: Replies | None = None
    _reader: Reader | None = None

    __repr__ = hide("token", "_replies", "_reader")

    @asynccontextmanager
    async def connect(self, receive: Receive, tell: Callable[[str], None]) -> AsyncIterator[None]:
        """Receive updates inside the block. The server starts even if Telegram is unreachable for a while."""
        async with _open_client(self.api_url, tell) as client, anyio.create_task_group() as group:
            api = BotApi(self.token, self.api_url, client)
            self._replies = Replies(self.name, api, receive)
            group.start_soon(run_guarded, "the connection to Telegram", lambda: self._run(api, receive, tell))
            yield
            group.cancel_scope.cancel()
        self._replies = self._reader = None

    async def _run(self, api: BotApi, receive: Receive, tell: Callable[[str], None]) -> None:
        try:
            me = await self._insist(api, "getMe")
            number, username = (me.get("id"), me.get("username")) if isinstance(me, dict) else (None, None)
            if not isinstance(number, int) or not isinstance(username, str):
                raise Unreachable("Telegram did not return the bot's name")
            self._reader = Reader(self.name, Bot(number, username), self.answers_all)
            commands: JSON = [{"command": name, "description": other.words} for name, other in COMMANDS.items()]
            await self._insist(api, "setMyCommands", {"commands": commands})
            if self.hook is None:
                await self._insist(api, "deleteWebhook")
                tell(f"{self.name}: connected to Telegram as @{username}")
                await self._poll(api, receive)
            else:
                # one connection, so that updates arrive in order; each is answered as soon as it is stored
                given: dict[str, JSON] = {"url": self.hook.url, "secret_token": self.hook.secret, "max_connections": 1}
                await self._insist(api, "setWebhook", {**given, "allowed_updates": list(ALLOWED)})
                tell(f"{self.name}: Telegram delivers for @{username} to {self.hook.url}")
        except KeptError as error:
            log.error("%s: %s", self.name, error)  # noqa: TRY400 - the cause may contain the URL
            tell(f"{self.name}: {error.message}{f' ({error.remedy})' if error.remedy else ''}")

    async def _insist(self, api: BotApi, method: str, parameters: Mapping[str, JSON] | None = None) -> JSON:
        """Call a method until Telegram answers; raises ConfigError if it refuses the token or the settings."""
        attempt = 0
        while True:
            try:
                return await api.call(method, parameters)
            except (ApiError, Unreachable) as error:
                code = error.code if isinstance(error, ApiError) else 500
                if code in {401, 404} and method == "getMe":
                    remedy = f"take it from @BotFather; {_PAGE}"
                    raise ConfigError("Telegram does not recognise the token of this bot", remedy) from None
                if code < 500 and code != 429:
                    raise
                log.warning("%s: %s", self.name, error)
                wait = error.retry_after if isinstance(error, ApiError) else 0.0
                await anyio.sleep(max(wait, _PAUSES[min(attempt, len(_PAUSES) - 1)]))
                attempt += 1

    # long polling

    async def _poll(self, api: BotApi, receive: Receive) -> None:
        """Poll for updates forever. Polling with a higher offset confirms stored updates."""
        offset: int | None = None
        troubles = conflicts = 0
        while True:
            try:
                asked: dict[str, JSON] = {"limit": 100, "timeout": POLL_SECONDS, "allowed_updates": list(ALLOWED)}
                asked["offset"] = offset
                updates = await api.call("getUpdates", asked, seconds=POLL_SECONDS + 15)
                # without updates everything is confirmed; the offset must be dropped then, because Telegram may choose
                # any next number after a week without updates
                offset = await self._take_all(updates, receive) if updates else None
                troubles = conflicts = 0
            except (ApiError, Unreachable, KeptError) as error:
                is_conflict = isinstance(error, ApiError) and error.code == 409
                conflicts += is_conflict
                if conflicts > len(_CONFLICT_PAUSES) or (isinstance(error, ApiError) and error.code in {401, 404}):
                    raise _explain(error) from None
                log.warning("%s: %s", self.name, error)
                wait = error.retry_after if isinstance(error, ApiError) else 0.0
                pauses = _CONFLICT_PAUSES if is_conflict else _PAUSES
                await anyio.sleep(max(wait, pauses[min(conflicts - 1 if is_conflict else troubles, len(pauses) - 1)]))
                troubles += not is_conflict

    async def _take_all(self, found: JSON, receive: Receive) -> int | None:
        """Handle updates in the order of their numbers; return the offset that confirms them."""
        numbered = [
            (value["update_id"], value)
            for value in (found if isinstance(found, list) else [])
            if isinstance(value, dict) and isinstance(value.get("update_id"), int)
        ]
        for _, value in sorted(numbered, key=lambda one: one[0]):
            try:
                await self._take(value, receive)
            except NotAnUpdate as error:
                log.warning("%s: an update could not be parsed: %s", self.name, error.message)
        return max((number for number, _ in numbered), default=-1) + 1 or None

    async def _take(self, value: object, receive: Receive) -> None:
        assert self._reader is not None, "updates are taken once the bot is known"
        incoming = self._reader.read(value).incoming
        match incoming:
            case None:
                return
            case StoppedDraft(chat, draft_id):
                delivery = self._replies.find_drafted(draft_id) if self._replies is not None else None
                if delivery is not None:
                    await receive(Stopped(chat, delivery))
            case PlatformMessage() | Moved() | Stopped():
                await receive(incoming)
            case _:
                assert_never(incoming)

    # webhook

    async def take_request(self, request: HookRequest, receive: Receive) -> HookAnswer:
        """Handle an update that Telegram delivers; it is delivered again unless the answer is 200."""
        given = request.headers.get(SECRET_HEADER, "").encode("utf-8", "replace")
        expected = self.hook.secret if self.hook is not None else ""
        if not hmac.compare_digest(given, expected.encode()) or not expected:
            raise Unauthorized("the delivery is not signed as agreed", "see docs/gateway.md, Chat platforms")
        try:
            value = json.loads(request.body)
        except (ValueError, RecursionError):
            raise NotAnUpdate("the body is not JSON", "send updates of the Bot API only") from None
        if self._reader is None:
            raise Unreachable("the bot is not connected yet", "deliver it again in a moment")
        await self._take(value, receive)
        return HookAnswer({"ok": True})

    # outgoing

    def _writer(self) -> Replies:
        if self._replies is None:
            raise Undelivered("the server is about to stop", is_temporary=True)
        return self._replies

    async def send(self, reply: Reply) -> None:
        """Send a whole reply."""
        await self._writer().send(reply)

    async def show_draft(self, reply: Reply) -> None:
        """Show the answer so far."""
        await self._writer().show_draft(reply)

    async def read_files(self, message: PlatformMessage) -> Sequence[FileContent]:
        """Return the contents of the files of a message."""
        return await self._writer().read_files(message)


def _open_client(url: str, tell: Callable[[str], None]) -> httpx2.AsyncClient:
    """Return a client that uses the proxy of the environment, except on this machine."""
    import httpx2

    is_local = is_loopback_address(urlsplit(url).hostname or "")
    try:
        return httpx2.AsyncClient(follow_redirects=False, trust_env=not is_local)
    except (ImportError, ValueError):  # a SOCKS proxy without its package, or an invalid address
        tell("the proxy of the environment cannot be used for Telegram (a SOCKS proxy needs: pip install socksio)")
        return httpx2.AsyncClient(follow_redirects=False, trust_env=False)


def _explain(error: KeptError) -> ConfigError:
    if isinstance(error, ApiError) and error.code == 409:
        return ConfigError(
            "another program polls Telegram for the messages of this bot, so this server has stopped polling",
            "end the other program, or get another token from @BotFather; then start kept serve again",
        )
    return ConfigError("Telegram no longer recognises the token of this bot", f"take it from @BotFather; {_PAGE}")


# settings


def load_telegram(app: App, name: str, fields: dict[str, Any]) -> Platform:
    """Return the bot of the settings; raises ConfigError."""
    place = f"serve.platforms.{name}"
    check_fields(name, fields, _SETTINGS, page=_PAGE)
    variable = fields.get("token_env", TOKEN_VARIABLE)
    token = read_secret(app.environ, name, "token_env", variable, 1)
    if _TOKEN.fullmatch(token) is None:
        raise ConfigError(f"{place}: {variable} is not a bot token", f"@BotFather gives you one; {_PAGE}")
    groups = fields.get("groups", "addressed")
    if groups not in {"addressed", "all"}:
        raise ConfigError(f"{place}.groups: {groups!r} is not valid", "use addressed or all")
    seconds = float(fields.get("draft_seconds", 1.0))
    url = str(fields.get("api_url", API_URL)).rstrip("/")
    _check_url(f"{place}.api_url", url)
    return Telegram(
        name,
        token,
        _load_hook(app, name, fields),
        shares_groups=fields.get("shares_groups", False),
        answers_all=groups == "all",
        draft_seconds=max(seconds, 0.2) if seconds > 0 else None,
        api_url=url,
    )


def _load_hook(app: App, name: str, fields: dict[str, Any]) -> Hook | None:
    place, url = f"serve.platforms.{name}", fields.get("webhook_url")
    if url is None:
        if "secret_env" in fields:
            raise ConfigError(f"{place}.secret_env: only a webhook has a secret", f"set {place}.webhook_url too")
        return None
    _check_url(f"{place}.webhook_url", url)
    secret = read_secret(app.environ, name, "secret_env", fields.get("secret_env", ""), 16)
    if _SECRET.fullmatch(secret) is None:
        raise ConfigError(f"{place}: the secret has characters other than A-Z, a-z, 0-9, _ and -", "choose another one")
    return Hook(url, secret)


def _check_url(place: str, url: str) -> None:
    """Raise ConfigError unless it is an https URL; plain http is allowed only on this machine."""
    try:
        found = urlsplit(url)
        host = found.hostname or ""
    except ValueError:
        host, found = "", urlsplit("")
    is_open = found.scheme == "http" and host and is_loopback_address(host)
    if not host or (found.scheme != "https" and not is_open) or found.username is not None or found.query:
        raise ConfigError(f"{place}: {url!r} is not a valid URL", "use one that begins with https://")

"""The Bot API over HTTP: calls, their errors, files, and the limits of Telegram for each chat.

The token is part of every URL, so no URL and no message of the HTTP client may reach an error or a log.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from wellkept.core.errors import KeptError
from wellkept.core.values import hide

if TYPE_CHECKING:
    import httpx2

    from wellkept.core.text import JSON

_CALL_SECONDS = 20.0
_MOST_DESCRIPTION = 200
MOST_FILE_BYTES = 20_000_000
"""The largest file that a bot can fetch."""


class ApiError(KeptError):
    """The Bot API refused a call."""

    http_status = 502

    def __init__(self, method: str, code: int, description: str, parameters: Mapping[str, object]) -> None:
        super().__init__(f"Telegram refused {method}: {code} {description}")
        self.code = code
        self.description = description.lower()
        self.retry_after = _read_number(parameters.get("retry_after"))
        value = parameters.get("migrate_to_chat_id")

        self.migrate_to = str(value) if isinstance(value, int) and not isinstance(value, bool) else ""

    @property
    def is_parse_error(self) -> bool:
        """Whether the markup of a text is invalid, or too long after parsing."""
        words = ("can't parse", "entities", "entity", "unsupported start tag", "rich message", "markdown", "html")
        return self.code == 400 and any(word in self.description for word in words)

    @property
    def is_same_text(self) -> bool:
        """Whether an edit changes nothing, which is not an error."""
        return self.code == 400 and "message is not modified" in self.description

    @property
    def is_gone(self) -> bool:
        """Whether the message to edit does not exist any more."""
        return self.code == 400 and ("to edit not found" in self.description or "can't be edited" in self.description)

    @property
    def is_unknown_method(self) -> bool:
        """Whether the server does not know the method: it is older than this Bot API."""
        return self.code == 404


class Unreachable(KeptError):
    """The Bot API could not be reached, or did not answer as agreed."""

    http_status = 502


def _read_number(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return max(0.0, float(value)) if is_number and math.isfinite(float(value)) else 0.0  # type: ignore[arg-type] # checked


class BotApi(Struct):
    """The Bot API for one token."""

    token: str
    url: str
    client: httpx2.AsyncClient

    __repr__ = hide("token", "client")

    async def call(
        self, method: str, parameters: Mapping[str, JSON] | None = None, *, seconds: float = _CALL_SECONDS
    ) -> JSON:
        """Call a method and return its result; parameters that are None are left out. Raises ApiError, Unreachable."""
        given = {name: value for name, value in (parameters or {}).items() if value is not None}
        body = json.dumps(given).encode()  # ASCII, so that a lone surrogate is escaped
        return await self._post(method, seconds, content=body, headers={"Content-Type": "application/json"})

    async def upload(
        self, method: str, field_name: str, file: tuple[str, bytes, str], parameters: Mapping[str, JSON]
    ) -> JSON:
        """Call a method with a file: its name, its content and its type."""
        given = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in parameters.items()
            if value is not None
        }
        return await self._post(method, 2 * _CALL_SECONDS, data=given, files={field_name: file})

    async def _post(self, method: str, seconds: float, **request: object) -> JSON:
        import httpx2

        try:
            answer = await self.client.post(f"{self.url}/bot{self.token}/{method}", timeout=seconds, **request)  # type: ignore[arg-type] # two forms of a body
            value = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            # without the cause, whose message may contain the URL
            raise Unreachable(f"Telegram did not answer {method}: {type(error).__name__}") from None
        if not isinstance(value, dict):
            raise Unreachable(f"Telegram's answer to {method} is not an object")
        if value.get("ok") is True:
            result: JSON = value.get("result")
            return result
        code, parameters = value.get("error_code"), value.get("parameters")
        description = str(value.get("description", "")).replace(self.token, "…")[:_MOST_DESCRIPTION]
        found = parameters if isinstance(parameters, Mapping) else {}
        raise ApiError(method, code if isinstance(code, int) else answer.status_code, description, found)

    async def fetch(self, file_id: str, most: int = MOST_FILE_BYTES) -> bytes | None:
        """Return the content of a file; None for one that is larger than `most`."""
        import httpx2

        file = await self.call("getFile", {"file_id": file_id})
        path, size = (file.get("file_path"), file.get("file_size")) if isinstance(file, dict) else (None, None)
        if isinstance(size, int) and size > most:
            return None
        if not isinstance(path, str) or not path or ".." in path.split("/") or "?" in path or "#" in path:
            raise Unreachable("Telegram gave no path of the file")
        content = bytearray()
        try:
            address = f"{self.url}/file/bot{self.token}/{path}"
            async with self.client.stream("GET", address, timeout=_CALL_SECONDS) as answer:
                if answer.status_code != 200:
                    raise Unreachable(f"Telegram answered a file with {answer.status_code}")
                async for piece in answer.aiter_bytes():
                    content += piece
                    if len(content) > most:
                        return None
        except httpx2.HTTPError as error:
            raise Unreachable(f"Telegram did not send a file: {type(error).__name__}") from None
        return bytes(content)


# limits

PER_SECOND = 30.0
"""Messages of a bot to all chats."""
CHAT_SECONDS, CHAT_BURST = 1.0, 3.0
"""One message per second in a chat; Telegram allows short bursts."""
GROUP_SECONDS, GROUP_BURST = 3.0, 18.0
"""Telegram allows twenty messages per minute in a group; two are a safety margin."""
_RESERVE = 6.0
"""How many messages to a group drafts leave for complete answers."""


class _Bucket(Struct):
    """A token bucket: how many messages may be sent now."""

    seconds: float
    most: float
    left: float
    since: float
    blocked_until: float = 0.0

    def fill(self, now: float) -> None:
        self.left = min(self.most, self.left + (now - self.since) / self.seconds)
        self.since = now

    def take(self, now: float) -> float:
        """Count a message, and return the seconds until it may be sent."""
        self.fill(now)
        self.left -= 1
        return max(0.0, -self.left * self.seconds, self.blocked_until - now)


class Pace:
    """Keeps the calls within Telegram's limits, for each chat and for all."""

    def __init__(self) -> None:
        self._all = _Bucket(1 / PER_SECOND, PER_SECOND, PER_SECOND, time.monotonic())
        self._chats: dict[str, _Bucket] = {}

    def _bucket(self, chat: str) -> _Bucket:
        found = self._chats.get(chat)
        if found is None:
            self._drop_full()
            # ids of groups are negative
            seconds, most = (GROUP_SECONDS, GROUP_BURST) if chat.startswith("-") else (CHAT_SECONDS, CHAT_BURST)
            found = self._chats[chat] = _Bucket(seconds, most, most, time.monotonic())
        return found

    def _drop_full(self) -> None:
        if len(self._chats) < 1_000:
            return
        now = time.monotonic()
        for bucket in self._chats.values():
            bucket.fill(now)
        self._chats = {name: one for name, one in self._chats.items() if one.left < one.most or one.blocked_until > now}

    async def wait(self, chat: str) -> None:
        """Wait until a message may be sent to a chat, and count it."""
        now = time.monotonic()
        await anyio.sleep(max(bucket.take(now) for bucket in (self._bucket(chat), self._all)))

    def take_spare(self, chat: str) -> bool:
        """Count a message that can be skipped, if there is room for it now."""
        bucket, now = self._bucket(chat), time.monotonic()
        bucket.fill(now)
        is_group = bucket.most == GROUP_BURST
        if bucket.blocked_until > now or (is_group and bucket.left < _RESERVE):
            return False
        if is_group:  # drafts in private chats do not count
            bucket.left -= 1
        return True

    def block(self, chat: str, seconds: float) -> None:
        """Send nothing to a chat for this time, as Telegram requested."""
        self._bucket(chat).blocked_until = time.monotonic() + seconds

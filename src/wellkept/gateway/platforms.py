"""Chat platforms: the port that each of them implements, and its values."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.errors import ConfigError, KeptError
from wellkept.core.provenance import ATTACHED, Kind, Source, attached_source
from wellkept.gateway.state.platform_messages import PlatformMessage

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from wellkept.core.ids import SessionId, SourceName
    from wellkept.core.messages import ImagePart
    from wellkept.core.text import JSON
    from wellkept.gateway.state.conversation_keys import Chat
    from wellkept.gateway.state.platform_messages import File
    from wellkept.providers.base import ChatContext

log = logging.getLogger(__name__)

_MOST_FILE_CHARACTERS = 100_000
"""How many characters of the text files of a message the model is shown."""


class Stopped(Struct, frozen=True):
    """A person pressed the button that stops the answer to a message."""

    chat: Chat
    delivery: str
    """The message whose answer is stopped; a later turn of the chat continues."""


class Moved(Struct, frozen=True):
    """A chat has another id from now on."""

    before: str
    after: str


Incoming: TypeAlias = PlatformMessage | Stopped | Moved
"""What a platform reports."""


class Shown:
    """The platform messages that contain the parts of a reply; they are stored, so that they survive a crash."""

    def __init__(
        self, parts: Sequence[str] = (), store: Callable[[tuple[str, ...]], Awaitable[None]] | None = None
    ) -> None:
        self.parts = list(parts)
        self._store = store

    async def set_part(self, place: int, part: str) -> None:
        """Record which message contains a part; parts must be set in order."""
        self.parts[place:] = [part, *self.parts[place + 1 :]]
        if self._store is not None:
            await self._store(tuple(self.parts))


class Reply(Struct, frozen=True):
    """The reply to a message of a chat."""

    message: PlatformMessage
    text: str
    session_id: SessionId | None = None
    is_error: bool = False
    is_paired: bool = True
    """False for the answer to a stranger, which contains the code."""
    shown: Shown = field(default_factory=Shown)


class FileContent(Struct, frozen=True):
    """The content of a file: an image or a text; neither if it cannot be shown to a model."""

    file: File
    image: ImagePart | None = None
    text: str | None = None
    trouble: str = ""
    """Why it could not be read."""


class Undelivered(KeptError):
    """The platform did not accept a reply; with `is_temporary` it may accept it later."""

    http_status = 502

    def __init__(self, message: str, *, is_temporary: bool, after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.is_temporary = is_temporary
        self.after_seconds = after_seconds


class HookRequest(Struct, frozen=True):
    """A request to `/hooks/NAME`."""

    headers: Mapping[str, str]
    body: bytes
    now: float


class HookAnswer(Struct, frozen=True):
    """The answer to such a request."""

    value: dict[str, JSON]
    status: int = 200


Receive: TypeAlias = Callable[[Incoming], Awaitable[Reply | None]]
"""Handles what a platform reports. When it returns, a message is stored, and its delivery can be confirmed; a platform
that does not send gets the reply as the result."""


class Platform(Protocol):
    """One configured chat platform."""

    @property
    def name(self) -> str:
        """Return the name in the settings; it is part of the keys of its chats."""
        ...

    @property
    def shares_groups(self) -> bool:
        """Return whether the people of a group share one conversation and one memory."""
        ...

    @property
    def sends(self) -> bool:
        """Return whether replies are sent; otherwise the reply is the answer to the delivery."""
        ...

    @property
    def draft_seconds(self) -> float | None:
        """Return how often a growing answer is shown; None for never."""
        ...

    @property
    def refresh_seconds(self) -> float | None:
        """Return how often a draft is shown again while it does not change; None for never."""
        ...

    def connect(self, receive: Receive, tell: Callable[[str], None]) -> AbstractAsyncContextManager[None]:
        """Stay connected inside the block. A platform that is polled passes what it gets to `receive`.

        `tell` reports to the person who started the server: connected, or why not.
        """
        ...

    async def take_request(self, request: HookRequest, receive: Receive) -> HookAnswer:
        """Handle a request to `/hooks/NAME`; raises Unauthorized, or RequestValidationError."""
        ...

    async def send(self, reply: Reply) -> None:
        """Send a whole reply, except for parts that were already sent; raises Undelivered."""
        ...

    async def show_draft(self, reply: Reply) -> None:
        """Show the answer so far; raises Undelivered. `send` for the same message replaces it."""
        ...

    async def read_files(self, message: PlatformMessage) -> Sequence[FileContent]:
        """Return the contents of the files of a message."""
        ...


class Draft(Struct):
    """A growing answer."""

    platform: Platform
    reply: Reply
    text: str = ""
    done: anyio.Event = field(default_factory=anyio.Event)

    async def keep_showing(self, every: float) -> None:
        """Show the text whenever it has changed; a running request is not cancelled when the answer is complete."""
        shown, at, refresh = None, 0.0, self.platform.refresh_seconds
        while not self.done.is_set():
            is_old = refresh is not None and time.monotonic() - at >= refresh
            if is_old or (self.text != shown and (self.text or refresh is not None)):
                shown, at = self.text, time.monotonic()
                try:
                    await self.platform.show_draft(replace(self.reply, text=shown))
                except KeptError as error:  # the whole answer is sent at the end
                    log.info("%s: %s", self.platform.name, error)
                    return
            with anyio.move_on_after(every or 0.01):
                await self.done.wait()


def name_speaker(message: PlatformMessage) -> str:
    """Return the text for the model; if several people share a conversation, with the name of the speaker."""
    if not message.chat.is_shared:
        return message.text
    return f"[{(message.name or message.chat.user).replace(']', ')')}] {message.text}"


def describe_chat(message: PlatformMessage, key: str) -> ChatContext:
    """Return what providers are told about the chat of a message; `key` is that of its conversation."""
    from wellkept.providers.base import ChatContext

    chat = message.chat
    return ChatContext(
        user_name="" if chat.is_shared else message.name,
        chat_id=chat.chat,
        chat_name=message.chat_name,
        chat_type=chat.chat_type,
        thread_id=chat.thread,
        gateway_session_key=key,
    )


def describe_edit(message: PlatformMessage) -> str:
    """Return the text of an edit as it is added to a conversation."""
    return f"[An earlier message was edited. It now reads:] {name_speaker(message)}"


FORWARDED = "[forwarded] "
"""Begins a message that the person passed on."""


def find_message_source(message: PlatformMessage, contents: Sequence[FileContent] = ()) -> SourceName | None:
    """Return the source of a message that was passed on, or has a file or a quotation at its end; else None."""
    if message.text.startswith(FORWARDED):
        return Source(Kind.FILE, "forwarded message").stored
    # of a file that cannot be read, the name is shown
    files = [content.file.name or content.file.kind for content in contents if content.image is None]
    if files:
        return attached_source(files[0])
    return attached_source("quotation") if ATTACHED in message.text else None


def join_files(message: PlatformMessage, contents: Sequence[FileContent]) -> PlatformMessage:
    """Return a message with the texts of its files; images are passed to the model separately."""
    pieces, left = [message.text] if message.text else [], _MOST_FILE_CHARACTERS
    for content in contents:
        named = " ".join(part for part in (content.file.kind, content.file.name) if part)
        if content.text is not None:
            text = content.text[:left]
            left -= len(text)
            end = "" if len(text) == len(content.text) else "\n[the rest of the file is left out]"
            pieces.append(f"[{named}]\n{text}{end}")
        elif content.image is None:
            pieces.append(f"[{named}: {content.trouble}]")
        elif not message.text:
            pieces.append(f"[{named}]")
    images = tuple(content.file for content in contents if content.image is not None)
    return replace(message, text="\n\n".join(pieces), files=images)


Known: TypeAlias = Mapping[str, tuple[type, ...]]
"""The settings of a kind of platform with their types."""


def check_fields(name: str, fields: Mapping[str, Any], known: Known, *, page: str) -> None:
    """Raise ConfigError for settings of a platform that are unknown or have the wrong type."""
    place = f"serve.platforms.{name}"
    for key, value in fields.items():
        if key not in known:
            raise ConfigError(f"{place}.{key}: there is no such setting", f"known: kind, {', '.join(known)}")
        if not isinstance(value, known[key]) or (isinstance(value, bool) and bool not in known[key]):
            raise ConfigError(f"{place}.{key}: {value!r} is not valid", f"see {page}")


def read_secret(environ: Mapping[str, str], name: str, setting: str, variable: str, least: int) -> str:
    """Return the secret from the environment variable that a setting names; raises ConfigError without one."""
    place = f"serve.platforms.{name}"
    secret = environ.get(variable) or "" if variable else ""
    if len(secret) >= least:
        return secret
    what = f"{variable} is not set" if variable and not secret else f"it needs at least {least} characters"
    next_step = f"put it into the environment or .env, and the name of the variable into {place}.{setting}"
    raise ConfigError(f"{place}: the secret is missing: {what if variable else f'{setting} is not set'}", next_step)

"""Removes credentials from messages before they are written to disk."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.ids import SourceName
from wellkept.core.messages import (
    ImagePart,
    Message,
    NewMessage,
    Part,
    Role,
    Session,
    StoredMessage,
    TextPart,
    ToolCall,
)
from wellkept.core.text import JSON, dumps
from wellkept.security.secrets import may_hold_credentials, redact, redact_json

M = TypeVar("M", NewMessage, StoredMessage)
_TOGETHER = 32
"""Messages that are checked together; most larger batches would contain a word such as "token" somewhere."""


@lru_cache(maxsize=256)
def _redact_name(source: str) -> str:
    """Redact the name of a source, which may be an address with a key; cached, because messages share sources."""
    return redact(source)


def _plain_text(new: NewMessage) -> str | None:
    """Return the text of a message if no other part of it could hold a credential, else None."""
    message = new.message
    is_plain = (
        isinstance(message.content, str)
        and message.role is not Role.TOOL
        and not message.tool_calls
        and message.reasoning is None
        and new.api_content is None
        and (new.source is None or _redact_name(new.source) == new.source)
    )
    return str(message.content) if is_plain else None


class Redaction(Struct, frozen=True):
    """Replaces credentials by `[redacted:<rule>]`; if switched off, changes nothing."""

    is_on: bool = True

    def text(self, text: str) -> str:
        """Return `text` without credentials."""
        return redact(text) if self.is_on else text

    def json_text(self, text: str) -> str:
        """Return `text` without credentials, including those visible only as JSON: escaped, or named by a key."""
        plain = self.text(text)
        if not self.is_on or text.lstrip()[:1] not in {"{", "["}:
            return plain
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return plain
        safe = redact_json(value)
        return plain if safe == value else redact(dumps(safe))

    def value(self, value: JSON) -> JSON:
        """Return a value without credentials in any of its texts."""
        return redact_json(value) if self.is_on else value

    def messages(self, new: Sequence[NewMessage]) -> list[NewMessage]:
        """Return messages without credentials in any of their texts, in order."""
        safe: list[NewMessage] = []
        for start in range(0, len(new), _TOGETHER):
            some = new[start : start + _TOGETHER]
            texts = [text for message in some if (text := _plain_text(message)) is not None]
            is_safe = len(texts) == len(some) > 1 and not may_hold_credentials(texts)
            safe += some if is_safe else map(self.message, some)
        return safe

    def message(self, new: M) -> M:
        """Return `new` without credentials in any of its texts; the same object if nothing changed."""
        if not self.is_on:
            return new
        message = self._message(new.message)
        sent = None if new.api_content is None else redact(new.api_content)
        source = None if new.source is None else SourceName(_redact_name(new.source))
        if message is new.message and sent == new.api_content and source == new.source:
            return new
        return replace(new, message=message, api_content=sent, source=source)

    def _message(self, message: Message) -> Message:
        content = self._content(message)
        if content == message.content and not message.tool_calls and message.reasoning is None:
            return message
        calls = tuple(
            ToolCall(call.id, redact(call.name), self.json_text(call.arguments)) for call in message.tool_calls
        )
        reasoning = None if message.reasoning is None else self.json_text(message.reasoning)
        return replace(message, content=content, tool_calls=calls, reasoning=reasoning)

    def _content(self, message: Message) -> str | tuple[Part, ...]:
        if not isinstance(message.content, str):
            return tuple(
                part if isinstance(part, ImagePart) else TextPart(redact(part.text)) for part in message.content
            )
        return self.json_text(message.content) if message.role is Role.TOOL else redact(message.content)

    def session(self, session: Session) -> Session:
        """Return `session` without credentials in its title and metadata."""
        title = None if session.title is None else self.text(session.title)
        if title == session.title and not session.metadata:
            return session
        metadata = json.loads(self.json_text(dumps(session.metadata)))
        return replace(session, title=title, metadata=metadata)

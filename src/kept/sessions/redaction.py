"""Credentials taken out of a message at the store's edge, before any byte of them reaches the disk."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from kept.core.messages import ImagePart, Message, NewMessage, Part, TextPart, ToolCall

Redact: TypeAlias = Callable[[str], str]


def redacted(new: NewMessage, redact: Redact) -> NewMessage:
    """Return `new` as it may be stored: content, sent text, tool arguments and reasoning without credentials."""
    return replace(
        new,
        message=redacted_message(new.message, redact),
        api_content=None if new.api_content is None else redact(new.api_content),
    )


def redacted_message(message: Message, redact: Redact) -> Message:
    """Return `message` without credentials; one that has none comes back as it is."""
    content = redact(message.content) if isinstance(message.content, str) else _parts(message.content, redact)
    if content == message.content and not message.tool_calls and message.reasoning is None:
        return message
    return replace(
        message,
        content=content,
        tool_calls=tuple(ToolCall(call.id, redact(call.name), redact(call.arguments)) for call in message.tool_calls),
        reasoning=None if message.reasoning is None else redact(message.reasoning),
    )


def _parts(parts: tuple[Part, ...], redact: Redact) -> tuple[Part, ...]:
    return tuple(part if isinstance(part, ImagePart) else TextPart(redact(part.text)) for part in parts)

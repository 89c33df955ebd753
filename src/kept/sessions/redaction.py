"""Credentials taken out of a message at the store's edge, before any byte of them reaches the disk."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from kept.core.jsontypes import dumps
from kept.core.messages import ImagePart, Message, NewMessage, Part, Role, Session, TextPart, ToolCall
from kept.security import secrets

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
    content = _content(message, redact)
    if content == message.content and not message.tool_calls and message.reasoning is None:
        return message
    return replace(
        message,
        content=content,
        tool_calls=tuple(
            ToolCall(call.id, redact(call.name), json_redacted(call.arguments, redact)) for call in message.tool_calls
        ),
        reasoning=None if message.reasoning is None else json_redacted(message.reasoning, redact),
    )


def redacted_session(session: Session, redact: Redact) -> Session:
    """Return `session` with its title and what belongs to its platform free of credentials."""
    title = None if session.title is None else redact(session.title)
    if title == session.title and not session.metadata:
        return session
    metadata = json.loads(json_redacted(dumps(session.metadata), redact))
    return replace(session, title=title, metadata=metadata)


def _content(message: Message, redact: Redact) -> str | tuple[Part, ...]:
    if not isinstance(message.content, str):
        return tuple(part if isinstance(part, ImagePart) else TextPart(redact(part.text)) for part in message.content)
    return json_redacted(message.content, redact) if message.role is Role.TOOL else redact(message.content)


def json_redacted(text: str, redact: Redact) -> str:
    """Return `text` without credentials, also those that only its JSON shows: escaped, or named by a key."""
    plain = redact(text)
    if redact is not secrets.redact or text.lstrip()[:1] not in {"{", "["}:
        return plain
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return plain
    safe = secrets.redact_json(value)
    return plain if safe == value else redact(dumps(safe))

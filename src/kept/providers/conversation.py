"""A conversation as providers get it: plain objects, without recalled text and secrets."""

from collections.abc import Iterator, Sequence

from kept.core.messages import Message
from kept.core.text import JSON, dumps
from kept.providers.base import Messages
from kept.security.fence import sanitize_context
from kept.security.secrets import redact

MAX_CHARS = 4_000_000
"""What one write may carry; of a longer conversation the end is sent."""


def plain_messages(messages: Sequence[Message]) -> list[dict[str, JSON]]:
    """Return messages as objects with `role`, `content` and what belongs to tool calls."""
    return [_plain(message) for message in messages]


def clean_text(text: str) -> str:
    """Return text without recalled memory and secrets."""
    return redact(sanitize_context(text))


def clean_messages(messages: Messages) -> list[dict[str, JSON]]:
    """Return messages without recalled memory and secrets, the newest that fit into one write."""
    kept = list(_newest_that_fit(messages))
    return [{**each, "content": _clean(each.get("content"))} for each in reversed(kept)]


def _clean(content: JSON) -> JSON:
    return clean_text(content) if isinstance(content, str) else content


def _newest_that_fit(messages: Messages) -> Iterator[dict[str, JSON]]:
    left = MAX_CHARS
    for message in reversed(messages):
        left -= len(dumps(message))
        if left < 0:
            return
        yield dict(message)


def _plain(message: Message) -> dict[str, JSON]:
    plain: dict[str, JSON] = {"role": message.role.value, "content": message.text}
    if message.tool_calls:
        plain["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        plain["tool_call_id"] = message.tool_call_id
    if message.tool_name is not None:
        plain["name"] = message.tool_name
    return plain

"""Pruning: shorten old tool output, long arguments and old images, without a model."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from wellkept.core.ids import MessageId
from wellkept.core.messages import ImagePart, Message, Part, Role, StoredMessage, TextPart, ToolCall
from wellkept.core.text import JSON

CLEARED = "[Old tool output cleared to save context space]"
REPEATED = "[Same output as an earlier call]"
NO_IMAGE = "[Old image dropped to save context space]"
LONG_RESULT = 200
"""Longer tool output is replaced by a one-line description of about this length."""
LONG_ARGUMENTS = 500
KEPT_OF_VALUE = 120
"""Characters that are kept of a long argument."""


def prune(rows: Sequence[StoredMessage], *, head: int, through: MessageId | None) -> list[StoredMessage]:
    """Return `rows` with those after the first `head` rows, up to the row `through`, shortened.

    The result for a row depends only on earlier rows, so that a longer conversation has the same
    prefix. Store `through` with the session and call this for every request.
    """
    end = next((place + 1 for place, row in enumerate(rows) if row.id == through), 0)
    if end <= head:
        return list(rows)
    calls = {call.id: call for row in rows[:end] for call in row.message.tool_calls}
    seen = {row.message.text for row in rows[:head] if row.message.role is Role.TOOL}
    out = list(rows[:head])
    for row in rows[head:end]:
        small = _shrink_message(row.message, calls, seen)
        out.append(row if small is row.message else replace(row, message=small, api_content=None, token_count=None))
    return [*out, *rows[end:]]


def prune_as_marked(rows: Sequence[StoredMessage], mark: JSON) -> list[StoredMessage]:
    """Return `rows` pruned according to the session's mark; see `Pruned.mark`."""
    if not isinstance(mark, Mapping):
        return list(rows)
    head, through = mark.get("head"), mark.get("through")
    if not isinstance(head, int) or not isinstance(through, int):
        return list(rows)
    return prune(rows, head=head, through=MessageId(through))


def _shrink_message(message: Message, calls: dict[str, ToolCall], seen: set[str]) -> Message:
    if message.role is Role.TOOL:
        return _shrink_result(message, calls.get(message.tool_call_id or ""), seen)
    if message.tool_calls:
        shorter = tuple(_shrink_call(call) for call in message.tool_calls)
        message = message if shorter == message.tool_calls else replace(message, tool_calls=shorter)
    return _without_images(message)


def _shrink_result(message: Message, call: ToolCall | None, seen: set[str]) -> Message:
    text = message.text
    if text.startswith((CLEARED, REPEATED)):
        return message
    if len(text) > LONG_RESULT:
        return replace(message, content=f"{CLEARED}\n{_describe_result(message, call)}")
    if text in seen and len(text) > len(REPEATED):
        return replace(message, content=REPEATED)
    seen.add(text)
    return _without_images(message)


def _describe_result(message: Message, call: ToolCall | None) -> str:
    name = message.tool_name or (call.name if call else "tool")
    arguments = _one_line(call.arguments, 60) if call else ""
    lines = message.text.count("\n") + 1
    return f"{_one_line(name, 40)}({arguments}): {len(message.text):,} characters, {lines:,} lines"


def _one_line(text: str, length: int) -> str:
    line = " ".join(text[: length * 4].split())
    return line if len(line) <= length else line[: length - 1] + "…"


def _shrink_call(call: ToolCall) -> ToolCall:
    if len(call.arguments) <= LONG_ARGUMENTS:
        return call
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        value = {"shortened": call.arguments}
    shorter = json.dumps(_shorten_value(value), ensure_ascii=False)
    return replace(call, arguments=shorter) if len(shorter) < len(call.arguments) else call


def _shorten_value(value: Any, depth: int = 0) -> Any:
    match value:
        case str() if len(value) > LONG_RESULT:
            return f"{value[:KEPT_OF_VALUE]}… [{len(value) - KEPT_OF_VALUE:,} characters cut]"
        case dict() if depth < 8:
            return {key: _shorten_value(one, depth + 1) for key, one in value.items()}
        case list() if depth < 8:
            return [_shorten_value(one, depth + 1) for one in value]
        case _:
            return value


def _without_images(message: Message) -> Message:
    if isinstance(message.content, str) or not any(isinstance(part, ImagePart) for part in message.content):
        return message
    parts: tuple[Part, ...] = tuple(
        TextPart(NO_IMAGE) if isinstance(part, ImagePart) else part for part in message.content
    )
    return replace(message, content=parts)

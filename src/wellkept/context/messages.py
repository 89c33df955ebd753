"""The messages of a request: put in a valid order, old tool output pruned, and the groups that must not be split."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from wellkept.core.ids import MessageId
from wellkept.core.messages import ImagePart, Message, Part, Role, StoredMessage, TextPart, ToolCall
from wellkept.core.provenance import find_recalling_provider
from wellkept.core.text import JSON
from wellkept.security.fence import looks_fenced, split_blocks

MISSING_RESULT = "[No result: the call did not finish]"
OPENING = "[The conversation continues from here]"


def repair(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return `messages` in a valid order: calls paired with results, roles alternating, a user first.

    A valid list is returned unchanged. Only neighbours are considered, so that a longer conversation
    has the same repaired prefix.
    """
    out: list[Message] = []
    for message in _start_with_user(_drop_empty(_pair_calls(messages))):
        if out and out[-1].role is message.role and _can_merge(out[-1]):
            out[-1] = _merge(out[-1], message)
        else:
            out.append(message)
    return tuple(out)


def as_sent(rows: Sequence[StoredMessage]) -> list[Message]:
    """Return the messages as they are sent: each with what was added to it, only the newest with recalled text.

    What was recalled for an earlier message of the person is left out, so that it does not accumulate in the window.
    """
    newest = last_question(rows)
    return [_as_sent(row, has_recalled=index == newest) for index, row in enumerate(rows)]


def last_question(rows: Sequence[StoredMessage]) -> int | None:
    """Return the position of the last message of the person, or None."""
    return next((index for index in range(len(rows) - 1, -1, -1) if rows[index].message.role is Role.USER), None)


def _as_sent(row: StoredMessage, *, has_recalled: bool) -> Message:
    if row.api_content is None:
        return row.message
    sent = row.api_content if has_recalled else _without_recalled(row.api_content)
    if isinstance(row.message.content, str):
        return replace(row.message, content=sent)
    images = tuple(part for part in row.message.content if isinstance(part, ImagePart))
    return replace(row.message, content=(TextPart(sent), *images))


def _without_recalled(text: str) -> str:
    if not looks_fenced(text):
        return text
    pieces = split_blocks(text)
    return "".join(piece for piece, fenced in pieces if not (fenced and find_recalling_provider(piece))).rstrip()


def request_messages(rows: Sequence[StoredMessage]) -> tuple[Message, ...]:
    """Return the messages of a request: `rows` as sent, repaired."""
    return repair(as_sent(rows))


def faults(messages: Sequence[Message]) -> list[str]:
    """Return descriptions of what an API would reject in `messages`; empty when they are valid."""
    problems: list[str] = []
    waiting: set[str] = set()
    before: Message | None = None
    for index, message in enumerate(messages):
        if message.role is Role.TOOL:
            if message.tool_call_id in waiting:
                waiting.discard(message.tool_call_id)
            else:
                problems.append(f"{index}: a result without its call")
        else:
            problems += [f"{index}: call {call_id!r} has no result" for call_id in sorted(waiting)]
            waiting = {call.id for call in message.tool_calls}
            problems += _order_faults(index, before, message)
        before = message
    return problems + [f"end: call {call_id!r} has no result" for call_id in sorted(waiting)]


def _order_faults(index: int, before: Message | None, message: Message) -> list[str]:
    problems = []
    if message.role is Role.SYSTEM and before is not None and before.role is not Role.SYSTEM:
        problems.append(f"{index}: a system message inside the conversation")
    if message.role is Role.ASSISTANT and (before is None or before.role is Role.SYSTEM):
        problems.append(f"{index}: the first message is the assistant's")
    if before is not None and before.role is message.role and message.role is not Role.SYSTEM:
        problems.append(f"{index}: two {message.role.value} messages in a row")
    if message.role is not Role.SYSTEM and is_empty(message):
        problems.append(f"{index}: an empty message")
    return problems


def is_empty(message: Message) -> bool:
    """Whether `message` has neither text, images nor tool calls."""
    if message.tool_calls:
        return False
    if isinstance(message.content, str):
        return not message.content.strip()
    return all(isinstance(part, TextPart) and not part.text.strip() for part in message.content)


def _pair_calls(messages: Sequence[Message]) -> list[Message]:
    out: list[Message] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        if message.role is Role.TOOL:
            continue
        if not message.tool_calls:
            out.append(message)
            continue
        calls = _distinct(message.tool_calls) if message.role is Role.ASSISTANT else ()
        out.append(message if calls == message.tool_calls else replace(message, tool_calls=calls))
        end = index
        while end < len(messages) and messages[end].role is Role.TOOL:
            end += 1
        out.extend(_results(calls, messages[index:end]))
        index = end
    return out


def _distinct(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    by_id: dict[str, ToolCall] = {}
    for call in calls:
        by_id.setdefault(call.id, call)
    return tuple(by_id.values())


def _results(calls: Sequence[ToolCall], answers: Sequence[Message]) -> list[Message]:
    waiting = {call.id: call for call in calls}
    out = [answer for answer in answers if waiting.pop(answer.tool_call_id or "", None) is not None]
    return out + [
        Message(Role.TOOL, MISSING_RESULT, tool_call_id=call.id, tool_name=call.name) for call in waiting.values()
    ]


def _drop_empty(messages: Sequence[Message]) -> list[Message]:
    """Drop empty messages; turn a system message inside the conversation into a user message."""
    out: list[Message] = []
    for message in messages:
        if message.role is Role.SYSTEM:
            leads = all(earlier.role is Role.SYSTEM for earlier in out)
            if leads or not is_empty(message):
                out.append(message if leads else replace(message, role=Role.USER))
        elif message.role is Role.TOOL or not is_empty(message):
            out.append(message)
    return out


def _start_with_user(messages: list[Message]) -> list[Message]:
    first = next((index for index, message in enumerate(messages) if message.role is not Role.SYSTEM), None)
    if first is not None and messages[first].role is Role.ASSISTANT:
        return [*messages[:first], Message(Role.USER, OPENING), *messages[first:]]
    return messages


def _can_merge(message: Message) -> bool:
    return message.role in {Role.USER, Role.ASSISTANT} and not message.tool_calls


def _merge(first: Message, second: Message) -> Message:
    # reasoning must be sent back unchanged, so a merged message carries none
    return replace(second, content=(*_parts(first), *_parts(second)), reasoning=None)


def _parts(message: Message) -> tuple[Part, ...]:
    if isinstance(message.content, str):
        return (TextPart(message.content),) if message.content else ()
    return tuple(part for part in message.content if isinstance(part, ImagePart) or part.text)


def groups(messages: Sequence[Message]) -> list[range]:
    """Return the position range of each group: a call with its results, or a single message."""
    ranges: list[range] = []
    start = 0
    while start < len(messages):
        end = start + 1
        if messages[start].role is Role.ASSISTANT and messages[start].tool_calls:
            while end < len(messages) and messages[end].role is Role.TOOL:
                end += 1
        ranges.append(range(start, end))
        start = end
    return ranges


def last_user(messages: Sequence[Message]) -> int | None:
    """Return the position of the last user message that is not empty, or None."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role is Role.USER and not is_empty(messages[index]):
            return index
    return None


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
    end = next((index + 1 for index, row in enumerate(rows) if row.id == through), 0)
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
            return {key: _shorten_value(inner, depth + 1) for key, inner in value.items()}
        case list() if depth < 8:
            return [_shorten_value(inner, depth + 1) for inner in value]
        case _:
            return value


def _without_images(message: Message) -> Message:
    if isinstance(message.content, str) or not any(isinstance(part, ImagePart) for part in message.content):
        return message
    parts: tuple[Part, ...] = tuple(
        TextPart(NO_IMAGE) if isinstance(part, ImagePart) else part for part in message.content
    )
    return replace(message, content=parts)

"""A transcript: stored messages as the text that a summary model reads, with their ids."""

from collections.abc import Callable

from kept.core.messages import ImagePart, Role, StoredMessage

Redact = Callable[[str], str]

LONGEST = {Role.USER: 4_000, Role.ASSISTANT: 2_400, Role.TOOL: 800, Role.SYSTEM: 800}
LONGEST_ARGUMENTS = 300


def line_of(row: StoredMessage, *, redact: Redact) -> str:
    """Return one message as `#id role: text`, shortened in the middle and without secrets."""
    message = row.message
    pieces = [shortened(redact(message.text).strip(), LONGEST[message.role])]
    if not isinstance(message.content, str):
        pieces += ["[image]" for part in message.content if isinstance(part, ImagePart)]
    pieces += [f"→ {call.name}({shortened(redact(call.arguments), LONGEST_ARGUMENTS)})" for call in message.tool_calls]
    speaker = f"result of {message.tool_name or 'tool'}" if message.role is Role.TOOL else message.role.value
    return f"#{row.id} {speaker}: " + "\n".join(piece for piece in pieces if piece)


def shortened(text: str, length: int) -> str:
    """Return `text` with its middle left out where it is longer than `length`."""
    if len(text) <= length:
        return text
    front = length * 2 // 3
    return f"{text[:front]} … [{len(text) - length:,} characters left out] … {text[-(length - front) :]}"

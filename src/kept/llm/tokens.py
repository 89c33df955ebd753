"""How many tokens a text takes, estimated by its characters, and corrected by what endpoints report."""

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from kept.core.messages import ChatRequest, ImagePart, Message
from kept.core.text import dumps
from kept.core.tools import ToolSchema
from kept.llm.remembered import Remembered

IMAGE_TOKENS = 1_600
MESSAGE_TOKENS = 4
"""What the frame of one message takes: its role and its borders."""
TOOL_TOKENS = 8
"""What the frame of one tool takes beyond its JSON."""

_CLASSES: tuple[tuple[bytes, float], ...] = (
    ((string.ascii_letters + " ").encode(), 0.20),
    (b"\n\t\r", 0.25),
    (string.digits.encode(), 0.75),
    (bytes(range(0xC0, 0xE0)), 0.45),
    (bytes(range(0xE0, 0xF0)), 0.85),
    (bytes(range(0xF0, 0x100)), 2.5),
)
"""Tokens per character by class. Beyond ASCII the first byte of a character in UTF-8 tells its class."""
_CONTINUATION = bytes(range(0x80, 0xC0))
_PUNCTUATION = 0.35
"""ASCII that is in no class above: punctuation and control characters."""


@Remembered
def text_tokens(text: str) -> int:
    """Return the estimate for `text`: its bytes counted by class, in C, at memory speed."""
    rest = text.encode("utf-8", "surrogatepass")
    if not rest:
        return 0
    if not text.isascii():
        rest = rest.translate(None, _CONTINUATION)
    weight = 0.0
    for members, tokens in _CLASSES:
        left = rest.translate(None, members)
        weight += (len(rest) - len(left)) * tokens
        rest = left
    return ceil(weight + len(rest) * _PUNCTUATION)


def message_tokens(message: Message, count: Callable[[str], int] = text_tokens) -> int:
    """Return the size of one message: its text, images, calls, thinking and frame."""
    total = MESSAGE_TOKENS + count(message.text)
    if not isinstance(message.content, str):
        total += IMAGE_TOKENS * sum(isinstance(part, ImagePart) for part in message.content)
    for call in message.tool_calls:
        total += MESSAGE_TOKENS + count(call.name) + count(call.arguments)
    return total + count(message.reasoning or "")


def tool_tokens(tools: Sequence[ToolSchema]) -> int:
    """Return the estimate for the tools of a request."""
    return sum(
        TOOL_TOKENS + text_tokens(tool.name + tool.description) + text_tokens(dumps(tool.parameters)) for tool in tools
    )


def request_tokens(request: ChatRequest) -> int:
    """Return the estimate for everything that a request sends."""
    fixed = MESSAGE_TOKENS + text_tokens(request.system) + tool_tokens(request.tools)
    return fixed + sum(message_tokens(message) for message in request.messages)


@dataclass(frozen=True, slots=True)
class Calibration:
    """How far a session's endpoint counts above or below the estimate; kept with the session."""

    ratio: float = 1.0

    LEAST = 0.4
    MOST = 3.0

    def learned(self, *, estimated: int, reported: int) -> "Calibration":
        """Return the calibration after one reading; none is learned from an endpoint that reports nothing."""
        if estimated <= 0 or reported <= 0:
            return self
        return Calibration(min(self.MOST, max(self.LEAST, reported / estimated)))

    def applied(self, estimated: int) -> int:
        """Return the estimate as this endpoint would count it."""
        return ceil(estimated * self.ratio)

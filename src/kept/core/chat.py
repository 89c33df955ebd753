"""A request to a chat model, and the stream that answers it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from kept.core.messages import Message, Usage
from kept.core.tools import ToolSchema

StopReason = Literal["end", "tool_calls", "length", "refusal"]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Everything a model is given for one answer."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    max_output_tokens: int | None = None
    conversation_id: str | None = None
    """A stable key for endpoints that route by it, so that their prefix cache is met again."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """The connection broke and the answer begins anew; what was streamed of it before no longer counts."""


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """The whole answer; always the last thing that a stream gives."""

    message: Message
    usage: Usage
    stop_reason: StopReason
    model: str
    """The model that really answered, which a fallback may have changed."""


Delta: TypeAlias = TextDelta | ReasoningDelta | Restarted | ChatResponse

"""A model that answers from a script, for tests and demonstrations."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import ModelError, ModelRefused, UsageError
from wellkept.core.messages import (
    ChatRequest,
    ChatResponse,
    Delta,
    Message,
    ReasoningDelta,
    Role,
    StopReason,
    TextDelta,
    ToolCall,
    Usage,
)
from wellkept.core.regular_files import open_regular
from wellkept.core.text import JSON, dumps

MOST_SCRIPT_BYTES = 16_000_000
"""A longer script is cut, and so is no JSON."""
_SOME_USAGE = Usage(input_tokens=100, output_tokens=10)


class Says(Struct, frozen=True):
    """One answer: text, tool calls and usage."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    usage: Usage = _SOME_USAGE
    stop_reason: StopReason | None = None
    """None means `tool_calls` if there are calls, else `end`."""
    piece_length: int = 7
    """Characters of text, thinking or arguments per delta."""
    delay_seconds: float = 0.0
    """The pause before each delta."""

    @property
    def stops(self) -> StopReason:
        """Return the stop reason."""
        return self.stop_reason or ("tool_calls" if self.tool_calls else "end")


Step: TypeAlias = Says | str | ModelError
Script: TypeAlias = Iterable[Step] | Callable[[ChatRequest], Step]


def call(name: str, /, **arguments: JSON) -> ToolCall:
    """Return a call of tool `name`; the model assigns its id."""
    return ToolCall(id="", name=name, arguments=dumps(arguments))


def pieces(text: str, length: int) -> Iterator[str]:
    """Split `text` into pieces of at most `length` characters."""
    for start in range(0, len(text), max(1, length)):
        yield text[start : start + max(1, length)]


def with_ids(says: Says, first: int) -> Says:
    """Return the answer with an id on every call that has none, numbered from `first`."""
    calls = tuple(
        one if one.id else replace(one, id=f"call_{number}") for number, one in enumerate(says.tool_calls, first)
    )
    return replace(says, tool_calls=calls)


class ScriptedModel:
    """Answers each request with the next step of its script, and records the requests.

    A step is a `Says`, plain text, or an error to raise; the script may also be a function of the request. A
    finished script raises ModelRefused, so that a test notices.
    """

    def __init__(self, script: Script, *, name: str = "scripted/test", context_length: int = 200_000) -> None:
        self.name = name
        self.context_length = context_length
        self.requests: list[ChatRequest] = []
        self._next: Callable[[ChatRequest], Step] = script if callable(script) else _from_list(script)

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Yield the next answer in pieces, then the whole response."""
        self.requests.append(request)
        step = self._next(request)
        if isinstance(step, ModelError):
            raise step
        asked_before = sum(len(message.tool_calls) for message in request.messages)
        says = with_ids(Says(step) if isinstance(step, str) else step, asked_before)
        for piece in pieces(says.thinking, says.piece_length):
            await anyio.sleep(says.delay_seconds)
            yield ReasoningDelta(piece)
        for piece in pieces(says.text, says.piece_length):
            await anyio.sleep(says.delay_seconds)
            yield TextDelta(piece)
        message = Message(Role.ASSISTANT, says.text, tool_calls=says.tool_calls, reasoning=says.thinking or None)
        yield ChatResponse(message, says.usage, says.stops, self.name)


def _from_list(script: Iterable[Step]) -> Callable[[ChatRequest], Step]:
    steps = iter(script)

    def step(request: ChatRequest) -> Step:  # noqa: ARG001 - a list ignores the request
        return next(steps, ModelRefused("the script of the scripted model is over", "add a step to it"))

    return step


def script_of_file(path: Path) -> Callable[[ChatRequest], Step]:
    """Return the script in a JSON file: a list of texts or of {text, tool_calls} objects.

    The number of answers in the request selects the step, so that a conversation can continue in another process.
    """
    try:
        with open_regular(path) as file:
            steps = [_step(item) for item in json.loads(file.read(MOST_SCRIPT_BYTES))]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"the script {str(path)!r} cannot be read: {error}", "see docs/models.md") from error

    def step(request: ChatRequest) -> Step:
        place = sum(message.role is Role.ASSISTANT for message in request.messages)
        return steps[place] if place < len(steps) else ModelRefused(f"the script {path.name!r} is over")

    return step


def _step(item: Any) -> Says:
    if isinstance(item, str):
        return Says(item)
    calls = tuple(call(one["name"], **one.get("arguments", {})) for one in item.get("tool_calls", ()))
    return Says(item.get("text", ""), calls, usage=Usage(**item.get("usage", {"input_tokens": 100})))

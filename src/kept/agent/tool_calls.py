"""Tool calls of one answer: validated, approved, and run in parallel where the tools allow it."""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from kept.agent.offload import offload
from kept.agent.toolbox import Toolbox
from kept.core.events import ToolFinished, ToolStarted
from kept.core.messages import Message, Role, ToolCall
from kept.core.ports import EventSink
from kept.core.text import JSON, dumps
from kept.core.tools import Tool, ToolContext

log = logging.getLogger(__name__)

MAX_ANSWER_CHARS = 100_000

Approve = Callable[[Tool, dict[str, JSON]], bool]
"""Asks a person whether a call may run."""


def deny(_tool: Tool, _parse_arguments: dict[str, JSON]) -> bool:
    """Allow nothing: nobody is there to ask."""
    return False


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool call and its result, as the model sees it."""

    call: ToolCall
    message: Message
    ok: bool


@dataclass(frozen=True, slots=True)
class ToolEnvironment:
    """What the tool calls of one answer need to run."""

    toolbox: Toolbox
    context: ToolContext
    sink: EventSink
    approve: Approve
    seconds: float


async def run_tools(calls: Sequence[ToolCall], environment: ToolEnvironment) -> list[ToolResult]:
    """Run the calls and return their results in the same order; a failure is a result too."""
    answers: dict[int, ToolResult] = {}

    async def run(place: int, call: ToolCall) -> None:
        answers[place] = await _run(call, environment)

    beside: list[tuple[int, ToolCall]] = []
    alone: list[tuple[int, ToolCall]] = []
    for place, call in enumerate(calls):
        tool = environment.toolbox.tools.get(call.name)
        (beside if tool is not None and tool.parallel and not tool.asks else alone).append((place, call))
    async with anyio.create_task_group() as group:
        for place, call in beside:
            group.start_soon(run, place, call)
    for place, call in alone:
        await run(place, call)
    return [answers[place] for place in sorted(answers)]


async def _run(call: ToolCall, environment: ToolEnvironment) -> ToolResult:
    environment.sink(ToolStarted(call.id, call.name, call.arguments))
    began = time.monotonic()
    answer = await _answer_call(call, environment)
    ok = not (answer.get("success") is False or ("error" in answer and answer.get("success") is not True))
    text = _truncate(dumps(answer))
    environment.sink(ToolFinished(call.id, call.name, ok, time.monotonic() - began, text))
    return ToolResult(call, Message(Role.TOOL, text, tool_call_id=call.id, tool_name=call.name), ok)


async def _answer_call(call: ToolCall, environment: ToolEnvironment) -> dict[str, JSON]:
    tool = environment.toolbox.tools.get(call.name)
    if tool is None:
        known = ", ".join(environment.toolbox.tools)
        return _failure(f"there is no tool {call.name!r}", f"call one of: {known}")
    arguments = _parse_arguments(call, tool)
    if isinstance(arguments, str):
        return _failure(arguments, "send the call again with arguments that fit its schema")
    if tool.asks and not await offload(environment.approve, tool, arguments):
        return _failure("the user did not allow this call", "do without it, or ask the user how to go on")
    answer: dict[str, JSON] | None = None
    with anyio.move_on_after(environment.seconds):
        answer = await offload(_invoke, tool, arguments, environment.context, abandon=True)
    return (
        answer
        if answer is not None
        else _failure(f"{call.name} took longer than {environment.seconds:g} s", "try less at once")
    )


def _parse_arguments(call: ToolCall, tool: Tool) -> dict[str, JSON] | str:
    try:
        given = json.loads(call.arguments or "{}")
    except ValueError as error:
        return f"the arguments are not valid JSON: {error}"
    if not isinstance(given, dict):
        return "the arguments must be a JSON object"
    # our memory tools report bad arguments themselves, with a better remedy; other tools may not
    return (mismatch(given, tool.schema.parameters) or given) if tool.schema.toolset != "memory" else given


def _invoke(tool: Tool, arguments: dict[str, JSON], context: ToolContext) -> dict[str, JSON]:
    try:
        return dict(tool.call(arguments, context))
    except Exception as error:  # tool call: a failure is reported to the model
        log.warning("tool %s failed", tool.schema.name, exc_info=True)
        return _failure(f"{tool.schema.name} failed: {type(error).__name__}: {error}", "try it another way")


def _failure(error: str, remedy: str) -> dict[str, JSON]:
    return {"success": False, "error": error, "remedy": remedy}


def _truncate(text: str) -> str:
    if len(text) <= MAX_ANSWER_CHARS:
        return text
    half = MAX_ANSWER_CHARS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list, tuple),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def mismatch(value: Any, schema: Mapping[str, JSON], *, where: str = "arguments") -> str | None:
    """Return why `value` does not match the schema, or None; checks the keywords that tools use."""
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else list(kinds) if isinstance(kinds, Sequence) else []
    if names and not any(_has_type(value, str(name)) for name in names):
        return f"{where} must be {' or '.join(str(name) for name in names)}"
    allowed = schema.get("enum")
    if isinstance(allowed, Sequence) and not isinstance(allowed, str) and value not in allowed:
        return f"{where} must be one of {', '.join(map(str, allowed))}"
    if isinstance(value, Mapping):
        return _object_mismatch(value, schema, where)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, Mapping):
        found = (mismatch(item, items, where=f"{where}[{place}]") for place, item in enumerate(value))
        return next((trouble for trouble in found if trouble), None)
    return None


def _object_mismatch(value: Mapping[str, Any], schema: Mapping[str, JSON], where: str) -> str | None:
    required, properties = schema.get("required"), schema.get("properties")
    for name in required if isinstance(required, Sequence) else ():
        if name not in value:
            return f"{where} lacks {name!r}"
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        if name in value and isinstance(inner, Mapping):
            trouble = mismatch(value[name], inner, where=name if where == "arguments" else f"{where}.{name}")
            if trouble:
                return trouble
    return None


def _has_type(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name in {"integer", "number"}:
        return False
    return isinstance(value, _TYPES.get(name, (object,)))

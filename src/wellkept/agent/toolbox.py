"""The toolbox: the tools of an agent in a fixed order, the `todo` tool, and how tool calls are run."""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from wellkept.core.events import ToolFinished, ToolStarted
from wellkept.core.messages import Message, Role, ToolCall
from wellkept.core.ports import EventSink
from wellkept.core.text import JSON, dumps
from wellkept.core.tools import Tool, ToolContext, ToolSchema

log = logging.getLogger(__name__)

CORE = (
    "memory", "session_search", "skills_list", "skill_view", "skill_manage", "todo", "delegate_task",
    "read_file", "write_file", "edit_file", "list_files", "search_files", "terminal",
)  # fmt: skip
"""Tool names that plugins cannot use."""


class Toolbox(Struct, frozen=True):
    """Tools by name, in the order in which they are sent to models."""

    tools: Mapping[str, Tool]

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The schemas, as they are sent to models."""
        return tuple(tool.schema for tool in self.tools.values())

    def only(self, names: Iterable[str]) -> "Toolbox":
        """Return a toolbox with these tools only."""
        wanted = set(names)
        return Toolbox({name: tool for name, tool in self.tools.items() if name in wanted})


def build_toolbox(core: Sequence[Tool], plugins: Sequence[Tool], toolsets: Sequence[str] | None) -> Toolbox:
    """Return the tools of the chosen toolsets; plugin tools come after core tools and cannot replace them."""
    tools: dict[str, Tool] = {}
    for tool in (*core, *plugins):
        name = tool.schema.name
        if toolsets is not None and tool.schema.toolset not in toolsets:
            continue
        if name in tools or (name in CORE and tool not in core):
            log.warning("a tool named %s already exists; the second one is left out", name)
            continue
        tools[name] = tool
    return Toolbox(tools)


STATES = ("pending", "in_progress", "done", "cancelled")


class TodoList(Struct):
    """The plan of the current task, by session."""

    steps: dict[str, list[Mapping[str, JSON]]] = field(default_factory=dict)

    def tool(self) -> Tool:
        """Return the tool."""
        step: JSON = {
            "type": "object",
            "properties": {"text": {"type": "string"}, "state": {"type": "string", "enum": list(STATES)}},
            "required": ["text", "state"],
        }
        return Tool(
            ToolSchema(
                "todo",
                "Keep the plan of a task with several steps. Send the whole list to replace it, nothing to read it.",
                {
                    "type": "object",
                    "properties": {"steps": {"type": "array", "items": step, "description": "The whole plan."}},
                },
                "todo",
            ),
            self.call,
            parallel=False,
        )

    def call(self, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        """Replace or read the list."""
        key = str(context.session_id)
        steps = arguments.get("steps")
        if isinstance(steps, list):
            self.steps[key] = [item for item in steps if isinstance(item, Mapping)]
        return {"success": True, "steps": list(self.steps.get(key, []))}


MAX_ANSWER_CHARS = 100_000
"""The longest result that a model gets; the middle of a longer one is left out."""

Approve = Callable[[Tool, dict[str, JSON]], bool]
"""Asks a person whether a call may run."""


def deny(_tool: Tool, _arguments: dict[str, JSON]) -> bool:
    """Allow nothing, for conversations without a person who could approve."""
    return False


class ToolResult(Struct, frozen=True):
    """A tool call and its result, as the model sees it."""

    call: ToolCall
    message: Message
    ok: bool
    has_run: bool = True
    """Whether the tool was called; otherwise the result is an error of the toolbox."""


class ToolEnvironment(Struct, frozen=True):
    """What the tool calls of one answer need to run."""

    toolbox: Toolbox
    context: ToolContext
    sink: EventSink
    approve: Approve
    seconds: float


async def run_tools(calls: Sequence[ToolCall], environment: ToolEnvironment) -> list[ToolResult]:
    """Run the calls and return their results in the same order; a failure is a result too."""
    import anyio  # here, because `kept tool` needs the toolbox but no event loop

    answers: dict[int, ToolResult] = {}

    async def run(index: int, call: ToolCall) -> None:
        environment.sink(ToolStarted(call.id, call.name, call.arguments))
        began = time.monotonic()
        answer = await _answer_call(call, environment)
        ok = not (answer.get("success") is False or ("error" in answer and answer.get("success") is not True))
        text = _truncate(dumps(answer))
        environment.sink(ToolFinished(call.id, call.name, ok, time.monotonic() - began, text))
        message = Message(Role.TOOL, text, tool_call_id=call.id, tool_name=call.name)
        answers[index] = ToolResult(call, message, ok, has_run=not isinstance(answer, _NotRun))

    parallel: list[tuple[int, ToolCall]] = []
    sequential: list[tuple[int, ToolCall]] = []
    for index, call in enumerate(calls):
        tool = environment.toolbox.tools.get(call.name)
        is_parallel = tool is not None and tool.parallel and not tool.asks
        (parallel if is_parallel else sequential).append((index, call))
    async with anyio.create_task_group() as group:
        for index, call in parallel:
            group.start_soon(run, index, call)
    for index, call in sequential:
        await run(index, call)
    return [answers[index] for index in sorted(answers)]


class _NotRun(dict[str, JSON]):
    """The answer to a call that was not made."""


async def _answer_call(call: ToolCall, environment: ToolEnvironment) -> dict[str, JSON]:
    import anyio

    from wellkept.agent.offload import offload

    tool = environment.toolbox.tools.get(call.name)
    if tool is None:
        names = ", ".join(environment.toolbox.tools)
        return _NotRun(_failure(f"there is no tool {call.name!r}", f"call one of: {names}"))
    arguments = _parse_arguments(call, tool)
    if isinstance(arguments, str):
        return _NotRun(_failure(arguments, "send the call again with arguments that fit its schema"))
    if tool.asks and not await offload(environment.approve, tool, arguments):
        return _NotRun(_failure("the user did not allow this call", "do without it, or ask the user how to continue"))
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
        arguments = json.loads(call.arguments or "{}")
    except ValueError as error:
        return f"the arguments are not valid JSON: {error}"
    if not isinstance(arguments, dict):
        return "the arguments must be a JSON object"
    unknown = _find_unknown(call.name, arguments, tool)
    if unknown is not None:
        return unknown
    # our memory tools report bad arguments themselves, with a better remedy; other tools may not
    return (mismatch(arguments, tool.schema.parameters) or arguments) if tool.schema.toolset != "memory" else arguments


def _find_unknown(name: str, arguments: Mapping[str, JSON], tool: Tool) -> str | None:
    """Return what is wrong with an argument that one of our tools does not have; others may take any."""
    properties = tool.schema.parameters.get("properties")
    if name not in CORE or not isinstance(properties, Mapping):
        return None
    unknown = next((argument for argument in arguments if argument not in properties), None)
    return None if unknown is None else f"there is no argument {unknown[:80]!r}; {name} has: {', '.join(properties)}"


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
        mismatches = (mismatch(item, items, where=f"{where}[{index}]") for index, item in enumerate(value))
        return next((reason for reason in mismatches if reason), None)
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

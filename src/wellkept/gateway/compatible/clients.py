"""Requests of clients of any API, and answers: by the agent, by one that stores nothing, or by the model alone."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.agent.offload import offload
from wellkept.core.errors import UsageError
from wellkept.core.events import TextStreamed, ToolFinished
from wellkept.core.ids import random_hex
from wellkept.core.messages import (
    ChatRequest,
    ChatResponse,
    ImagePart,
    Message,
    NewMessage,
    Origin,
    Part,
    Role,
    TextDelta,
    TextPart,
    ToolCall,
    Usage,
)
from wellkept.core.provenance import UNSTATED
from wellkept.core.text import dumps
from wellkept.core.tools import ToolSchema
from wellkept.formats.codex import CODEX_BACKGROUND
from wellkept.gateway.state import client_histories
from wellkept.gateway.state.client_histories import ClientMessage, hash_message
from wellkept.gateway.turns import Slot, Turns, Wanted
from wellkept.operations import models

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from wellkept.agent.agent import Agent
    from wellkept.agent.turn import Answer
    from wellkept.app import Caller
    from wellkept.core.errors import KeptError
    from wellkept.core.text import JSON

MODELS = ("kept", "kept/plain", "kept/incognito")
SESSION_HEADERS = (
    "x-openwebui-chat-id",
    "x-librechat-conversation-id",
    "x-claude-code-session-id",
    "x-session-id",
    "x-opencode-session-id",
    "session-id",
)
"""Headers in which clients name their conversation. Sub-agents share the name, so it is not sufficient alone."""
_MOST_KEY_CHARACTERS = 300
_TASK_PREFIX = "### Task:"
_TITLE_PROMPTS = ("You are a title generator", "You are naming a coding session")
_COMPACTION_PROMPT = "CRITICAL: Respond with TEXT ONLY"


class InvalidRequest(UsageError):
    """A field of a client's request is wrong; `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}", "correct the request")
        self.field = field


class ClientRequest(Struct, frozen=True):
    """A request for an answer."""

    model: str
    system: str
    messages: tuple[Message, ...]
    places: tuple[int, ...] = ()
    """The position of each message in the list that the client sent."""
    tools: tuple[ToolSchema, ...] = ()
    is_streamed: bool = False
    wants_usage: bool = False
    max_output_tokens: int | None = None

    @property
    def kind(self) -> str:
        """Return which of our models was requested; any other name selects the agent."""
        return self.model if self.model in MODELS else MODELS[0]

    def input_text(self) -> str:
        """Return the text of the last message."""
        return self.messages[-1].text if self.messages else ""


def find_key(request: ClientRequest, headers: Mapping[str, str]) -> str:
    """Return the key of the conversation: the client's own name for it, or the beginning of the conversation.

    `X-Kept-Session` is used as it is. Other names are shared by a client's sub-agents, so the first message is added.
    """
    explicit = headers.get("x-kept-session", "")
    if explicit:
        return f"client:{explicit[:_MOST_KEY_CHARACTERS]}"
    first = next((message.text for message in request.messages if message.role is Role.USER), "")
    named = next((f"{name}={headers[name]}" for name in SESSION_HEADERS if headers.get(name)), "")
    begins = [named[:_MOST_KEY_CHARACTERS], request.model, "" if named else request.system, first]
    return f"client:{hashlib.sha256(dumps(begins).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def is_background_call(request: ClientRequest, headers: Mapping[str, str]) -> bool:
    """Whether a request is not part of the conversation: a title, tags, the client's own summary."""
    if headers.get("x-openwebui-task", "").strip():
        return True
    if _is_codex_background(headers.get("x-codex-turn-metadata") or "{}"):
        return True
    if request.input_text().lstrip().startswith(_COMPACTION_PROMPT):
        return True
    if request.tools:
        return False
    if any(prompt in request.system[:2_000] for prompt in _TITLE_PROMPTS):
        return True
    is_task = len(request.messages) == 1 and request.input_text().lstrip().startswith(_TASK_PREFIX)
    return is_task and not request.is_streamed


def _is_codex_background(metadata: str) -> bool:
    """Whether Codex says that a request is no turn, or that of a thread of its own."""
    try:
        value = json.loads(metadata)
    except ValueError:
        return False
    if not isinstance(value, dict):
        return False
    kind, source = value.get("request_kind"), value.get("thread_source")
    return (isinstance(kind, str) and kind != "turn") or source in CODEX_BACKGROUND


# reading of fields, shared by the APIs


def take_text(value: object, field: str) -> str:
    """Return a text field."""
    if not isinstance(value, str):
        raise InvalidRequest(field, "must be a string")
    return value


def take_list(value: object, field: str) -> list[Any]:
    """Return a list field; None is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequest(field, "must be a list")
    return value


def take_object(value: object, field: str) -> dict[str, Any]:
    """Return an object field."""
    if not isinstance(value, dict):
        raise InvalidRequest(field, "must be an object")
    return value


def take_bool(value: object, field: str) -> bool:
    """Return a boolean field; None is false."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidRequest(field, "must be true or false")


def take_count(value: object, field: str) -> int | None:
    """Return a positive whole number, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest(field, "must be a positive whole number")
    return value


def take_tool(name: object, description: object, parameters: object, field: str) -> ToolSchema:
    """Return a tool that the client runs."""
    schema = take_object({"type": "object"} if parameters is None else parameters, f"{field}.parameters")
    text = "" if description is None else take_text(description, f"{field}.description")
    return ToolSchema(take_text(name, f"{field}.name"), text, schema, "mcp")


def read_image(url: str, field: str) -> Part:
    """Return an inline image; an image that would have to be fetched becomes a placeholder."""
    head, _, data = url.partition(",")
    if url.startswith("data:image/") and ";base64" in head:
        return take_image(head.removeprefix("data:").partition(";")[0], data, field)
    return TextPart("[image]")


def take_image(media_type: str, data: str, field: str) -> ImagePart:
    """Return an inline image; raises InvalidRequest for data that is not base64."""
    try:
        found = base64.b64decode(data, validate=True)
    except ValueError:
        found = b""
    if not found or not media_type.startswith("image/"):
        raise InvalidRequest(field, "must be an image, encoded as base64")
    return ImagePart(media_type, data)


def make_content(parts: Sequence[Part]) -> str | tuple[Part, ...]:
    """Return parts as the content of a message: plain text if there is nothing else."""
    if all(isinstance(part, TextPart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(parts)


def check_messages(request: ClientRequest, field: str = "messages") -> ClientRequest:
    """Return a request without empty messages; refuse one that does not end with something to answer."""
    said = [place for place, message in enumerate(request.messages) if message.content or message.tool_calls]
    messages = tuple(request.messages[place] for place in said)
    if not messages:
        raise InvalidRequest(field, "must contain at least one message")
    if messages[-1].role not in {Role.USER, Role.TOOL}:
        raise InvalidRequest(field, "must end with a user message or tool results")
    return replace(request, messages=messages, places=tuple(request.places[place] for place in said))


Show = Callable[[str], "Awaitable[None]"]
"""Receives the pieces of an answer as they come."""


class Result(Struct, frozen=True):
    """An answer."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    is_cut: bool = False
    """Whether a limit ended it."""


class Form(Protocol):
    """Writes answers in the form of one API."""

    def whole(self, result: Result) -> JSON:
        """Return the answer as one object."""
        ...

    def start(self) -> Iterator[str]:
        """Yield the beginning of a stream."""
        ...

    def text(self, piece: str) -> Iterator[str]:
        """Yield one piece of the text."""
        ...

    def finish(self, result: Result) -> Iterator[str]:
        """Yield the end of a stream."""
        ...

    def error(self, error: KeptError) -> Iterator[str]:
        """Yield an error that ends a stream."""
        ...


async def answer_client(turns: Turns, caller: Caller, request: ClientRequest, key: str | None, show: Show) -> Result:
    """Answer a request; without a key it is a background request, which the model answers alone."""
    if key is None or request.kind == "kept/plain":
        return await _ask_model(caller, request, show, is_chosen=request.kind == "kept/plain")
    if request.kind == "kept/incognito":
        return await _answer_unstored(turns, caller, request, show)
    history, new = client_histories.split_input(request.messages)
    async with turns.hold(caller, key), turns.hold_lease(caller, key) as fence:
        prepared = await offload(client_histories.prepare_conversation, caller, key, history, new)
        if prepared.has_changed:
            await turns.forget(caller.user, key)
        wanted = Wanted(key, resume=prepared.session_id, system_message=request.system or None)
        async with turns.slot(caller, wanted, fence=fence) as slot:
            if prepared.session_id is None:
                await offload(client_histories.begin_conversation, caller, key, slot.agent.session.id)
            result, answer = await _run_turn(turns, slot, request, new, show)
            told = _list_exchanged(slot.agent, new, result)
            if told:
                record = client_histories.record_turn
                await offload(record, caller, key, answer.session_id, prepared.known, told)
    return result


async def _answer_unstored(turns: Turns, caller: Caller, request: ClientRequest, show: Show) -> Result:
    """Answer with an agent that has memory but stores nothing: its history is what the client sent."""
    history, new = client_histories.split_input(request.messages)
    key = f"incognito:{random_hex(8)}"
    wanted = Wanted(key, system_message=request.system or None, incognito=True)
    async with turns.slot(caller, wanted) as slot:
        earlier = [NewMessage(message, 0.0, Origin.usual(message.role)) for message in history]
        if earlier:
            await offload(slot.agent.conversation.record.add, earlier)
        result, _answer = await _run_turn(turns, slot, request, new, show)
    await turns.forget(caller.user, key)
    return result


async def _run_turn(
    turns: Turns, slot: Slot, request: ClientRequest, new: Sequence[Message], show: Show
) -> tuple[Result, Answer]:
    """Run a turn; return what the client was shown, and the answer of the agent."""
    slot.agent.offer_client_tools(request.tools)

    async def run(agent: Agent) -> Answer:
        if new[0].role is Role.TOOL:
            return await agent.continue_turn(new)
        return await agent.turn(new[0].text or new[0].display_text, new[0].images, source=UNSTATED)

    shown: list[str] = []
    is_apart = False
    async with turns.stream(slot, run) as turn:
        async for event in turn.events:
            if isinstance(event, ToolFinished):
                is_apart = bool(shown)
            elif isinstance(event, TextStreamed):
                piece = f"\n\n{event.text}" if is_apart else event.text
                is_apart = False
                shown.append(piece)
                await show(piece)
    answer = turn.result()
    text = "".join(shown) or answer.text
    return Result(text, answer.client_calls, answer.usage, is_cut=bool(answer.stopped_by)), answer


def _list_exchanged(agent: Agent, new: Sequence[Message], result: Result) -> list[ClientMessage]:
    """Return the new messages and the answer with the ids under which they are stored; nothing if they are not."""
    rows = agent.conversation.record.rows
    if not rows or rows[-1].id <= 0:
        return []
    by_call = {row.message.tool_call_id: row.id for row in rows if row.message.role is Role.TOOL}
    person = next((row.id for row in reversed(rows) if row.message.role is Role.USER), rows[-1].id)
    told = [
        ClientMessage(
            hash_message(message), by_call.get(message.tool_call_id, rows[-1].id) if message.tool_call_id else person
        )
        for message in new
    ]
    answer = Message(Role.ASSISTANT, result.text, result.calls)
    return [*told, ClientMessage(hash_message(answer), rows[-1].id)]


async def _ask_model(caller: Caller, request: ClientRequest, show: Show, *, is_chosen: bool) -> Result:
    """Return the answer of the model alone: nothing is recalled, and only the token counts are stored.

    Used if the client chose the plain model, and for background requests.
    """
    model = await offload(models.open_model, caller)
    asked = ChatRequest(
        system=request.system,
        messages=request.messages,
        tools=request.tools,
        max_output_tokens=request.max_output_tokens,
    )
    response: ChatResponse | None = None
    async for delta in model.stream(asked):
        if isinstance(delta, TextDelta):
            await show(delta.text)
        elif isinstance(delta, ChatResponse):
            response = delta
    if response is None:
        return Result("")
    await offload(models.count_call, caller, response, task="plain" if is_chosen else "client")
    return Result(response.message.text, response.message.tool_calls, response.usage)

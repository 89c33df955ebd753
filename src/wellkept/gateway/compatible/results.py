"""Answers for a client of any API: by the agent, by an agent that stores nothing, or by the model alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from wellkept.agent.offload import offload
from wellkept.core.events import TextStreamed, ToolFinished
from wellkept.core.ids import random_hex
from wellkept.core.messages import (
    ChatRequest,
    ChatResponse,
    Message,
    NewMessage,
    Origin,
    Role,
    TextDelta,
    ToolCall,
    Usage,
)
from wellkept.core.provenance import UNSTATED
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
    from wellkept.gateway.compatible.clients import ClientRequest

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
        earlier = [NewMessage(one, 0.0, Origin.usual(one.role)) for one in history]
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
        ClientMessage(hash_message(one), by_call.get(one.tool_call_id, rows[-1].id) if one.tool_call_id else person)
        for one in new
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

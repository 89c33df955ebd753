"""One turn: recall ▸ assemble ▸ think ⇄ act ▸ settle."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from kept.agent.act import Acting, act
from kept.agent.answer import Answer, Called, Kept, Spent, reached, where_it_stands
from kept.agent.compact import Squeeze
from kept.agent.model_call import Heard, request, think, user_message
from kept.agent.offload import offload
from kept.core.errors import ContextOverflow, KeptError
from kept.core.events import TextStreamed
from kept.core.ids import MessageId
from kept.core.messages import ChatResponse, Message, NewMessage, Origin, Role
from kept.core.ports import UnitOfWork
from kept.core.tools import ToolContext

if TYPE_CHECKING:
    from kept.agent.conversation import Live
    from kept.providers.manager import ProviderManager


INTERRUPTED = "[interrupted by the user]"


@dataclass(slots=True)
class Turn:
    """What a running turn has come to."""

    text: str
    began: float
    first_row: int
    notice: str = ""
    """What changed on the pages since the last turn."""
    is_kept: bool = False
    """Whether the person's message is in the record."""
    spent: Spent = field(default_factory=Spent)
    calls: list[Called] = field(default_factory=list)
    saved: list[Kept] = field(default_factory=list)
    heard: Heard = field(default_factory=Heard)
    answer: str = ""
    final: Message | None = None
    """The model's last message whole, with its thinking."""
    interrupted: bool = False
    stopped_by: str = ""


async def take_turn(live: "Live", text: str) -> Answer:
    """Answer one message of a person; whatever happens, what was said is kept."""
    turn = Turn(text, time.monotonic(), len(live.record.rows))
    live.current = turn
    failure: KeptError | None = None
    with live.interruptible() as scope:
        try:
            await _heard(live, turn)
            await _in_time(live, turn)
        except KeptError as error:
            failure = error
    turn.interrupted = scope.cancelled_caught
    with anyio.CancelScope(shield=True):
        if not turn.is_kept:
            await _kept(live, turn, [turn.notice])
        closing = _closing(live, turn, failure)
        await offload(settle, live, turn, closing)
    if failure is not None:
        raise failure
    return Answer(
        turn.answer,
        live.record.session.id,
        turn.spent.usage,
        turn.spent.cost if live.parts.model is not None else None,
        tuple(turn.calls),
        tuple(turn.saved),
        turn.interrupted,
        turn.stopped_by,
        time.monotonic() - turn.began,
    )


async def _heard(live: "Live", turn: Turn) -> None:
    """Keep the message with what is recalled for it; a person who interrupts does not wait for providers."""
    with anyio.CancelScope(shield=True):
        turn.notice = await offload(live.begin_turn, turn.text)
    recalled = await offload(live.recalled, turn.text, abandon=True)
    if recalled:
        live.recalled_texts.append(recalled)
    await _kept(live, turn, [recalled, turn.notice])


async def _kept(live: "Live", turn: Turn, background: list[str]) -> None:
    with anyio.CancelScope(shield=True):
        await offload(live.keep_said, user_message(turn.text, background, timestamp=live.now()))
        turn.is_kept = True


async def _in_time(live: "Live", turn: Turn) -> None:
    """Answer before the time is over; a model or a tool that takes longer is not waited for."""
    seconds = live.parts.limits.seconds
    with anyio.move_on_after(None if seconds is None else seconds - (time.monotonic() - turn.began)) as clock:
        await _answered(live, turn)
    if clock.cancelled_caught:
        _stopped(live, turn, f"{seconds:g} seconds")


def _stopped(live: "Live", turn: Turn, limit: str) -> None:
    """End the turn at a limit: what was said so far, and where it stands."""
    turn.stopped_by = limit
    stands = where_it_stands(limit, turn.calls)
    before = f"{turn.heard.text}\n\n" if turn.heard.text else ""
    turn.answer = before + stands
    live.parts.sink(TextStreamed(f"\n\n{stands}" if before else stands))


async def _answered(live: "Live", turn: Turn) -> None:
    """Think and act until there is an answer or a limit."""
    if live.parts.model is None:
        await _extracted(live, turn)
        return
    while True:
        response = await _thought(live, turn)
        if not response.message.tool_calls:
            turn.answer = response.message.text
            turn.final = response.message
            return
        await offload(live.record.add, [_new(live, response.message, Origin.MODEL)])
        turn.heard = Heard()
        await _acted(live, turn, response)
        if limit := reached(live.parts.limits, turn.spent):
            _stopped(live, turn, limit)
            return
        if live.should_compact(live.last_prompt_tokens):
            await offload(live.compact, Squeeze(current_tokens=live.last_prompt_tokens))


async def _extracted(live: "Live", turn: Turn) -> None:
    record = live.record
    stored = record.store is not None and not record.trouble
    reply = await offload(live.parts.assistant.reply, turn.text, record.session.id, is_stored=stored)
    turn.answer = reply.text
    turn.saved += reply.saved
    live.parts.sink(TextStreamed(reply.text))


async def _thought(live: "Live", turn: Turn) -> ChatResponse:
    """Make one model call; a context that overflows is compacted once and tried again."""
    model = live.parts.model
    assert model is not None
    await live.preflight()
    for attempt in (1, 2):
        asked = request(
            live.prompt,
            live.record.rows,
            tools=live.parts.toolbox.schemas,
            pruning=live.record.pruning,
            conversation_id=live.root,
        )
        try:
            response = await think(model, asked, sink=live.parts.sink, heard=turn.heard)
        except ContextOverflow as overflow:
            if attempt == 2 or not live.parts.compression.enabled or live.parts.engine is None:
                raise live.overflowed(overflow) from overflow
            await offload(live.compact, Squeeze(force=True))
            continue
        await offload(live.count_call, response, asked)
        cost = live.parts.cost_of(response.model, response.usage)
        so_far = turn.spent.cost
        turn.spent = Spent(
            turn.spent.iterations + 1,
            turn.spent.usage + response.usage,
            None if cost is None or so_far is None else so_far + cost,
            time.monotonic() - turn.began,
        )
        return response
    raise AssertionError("the loop returns or raises")


async def _acted(live: "Live", turn: Turn, response: ChatResponse) -> None:
    acting = Acting(
        live.parts.toolbox,
        ToolContext(
            session_id=live.record.session.id,
            user_id=live.user_id,
            platform=live.platform,
            turn=live.turns,
            active_message_ids=live.record.ids,
            incognito=live.incognito,
        ),
        live.parts.sink,
        live.approve,
        live.parts.limits.tool_seconds,
    )
    acted = await act(response.message.tool_calls, acting)
    turn.calls += [Called(each.call.name, each.call.arguments, each.ok) for each in acted]
    await offload(live.record.add, [_new(live, each.message, Origin.TOOL) for each in acted])


def _new(live: "Live", message: Message, origin: Origin, *, interrupted: bool = False) -> NewMessage:
    return NewMessage(message, live.now(), origin, interrupted=interrupted)


def _closing(live: "Live", turn: Turn, failure: KeptError | None) -> NewMessage:
    """Return the last message of the turn, so that the next request extends this one."""
    if turn.interrupted:
        turn.answer = turn.heard.text
        text = f"{turn.heard.text}\n\n{INTERRUPTED}" if turn.heard.text else INTERRUPTED
        return _new(live, Message(Role.ASSISTANT, text), Origin.MODEL, interrupted=True)
    if failure is not None:
        text = turn.heard.text or f"[no answer: {failure.message}]"
        return _new(live, Message(Role.ASSISTANT, text), Origin.SYNTHETIC, interrupted=True)
    whole = turn.final if turn.final is not None and not turn.stopped_by else Message(Role.ASSISTANT, turn.answer)
    return _new(live, whole, Origin.MODEL)


def settle(live: "Live", turn: "Turn", closing: NewMessage) -> None:
    """Store the end of the turn; a finished one goes to the providers' outbox in the same transaction."""
    if live.parts.providers is None:
        live.record.add([closing])
    else:
        _with_providers(live, turn, closing, live.parts.providers)
    live.settle_turn(turn)


def _with_providers(live: "Live", turn: "Turn", closing: NewMessage, providers: "ProviderManager") -> None:
    # imported here, because most conversations have no provider and the manager is slow to load
    from kept.providers.content import plain_messages
    from kept.providers.writes import FinishedTurn

    rows = live.record.rows[turn.first_row :] if turn.first_row <= len(live.record.rows) else live.record.rows[-1:]
    finished = FinishedTurn(
        session_id=live.record.session.id,
        key="",
        user=turn.text,
        assistant="" if closing.interrupted else turn.answer,
        messages=plain_messages([*(row.message for row in rows), closing.message]),
        interrupted=closing.interrupted,
    )

    def beside(unit: UnitOfWork, ids: Sequence[MessageId]) -> None:
        if ids:
            providers.writes.queue_turn(unit, replace(finished, key=str(ids[-1])))

    live.record.add([closing], beside=beside)
    providers.writes.after_turn(finished)

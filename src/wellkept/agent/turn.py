"""One turn and its answer: receive the message ▸ recall ▸ call the model ⇄ run tools ▸ settle."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.agent.compaction import CompactionRequest
from wellkept.agent.offload import offload
from wellkept.agent.settings import LimitSettings
from wellkept.agent.toolbox import ToolEnvironment, run_tools
from wellkept.agent.without_model.dialogue import answer_without_model
from wellkept.context.messages import last_question, prune_as_marked, request_messages
from wellkept.core.errors import ContextOverflow, KeptError, ModelBusy
from wellkept.core.events import ModelCalled, TextStreamed
from wellkept.core.ids import LedgerId, MessageId, SessionId, SourceName
from wellkept.core.messages import (
    ChatRequest,
    ChatResponse,
    ImagePart,
    Message,
    NewMessage,
    Origin,
    ReasoningDelta,
    Restarted,
    Role,
    StoredMessage,
    TextDelta,
    TextPart,
    ToolCall,
    Usage,
)
from wellkept.core.ports import ChatModel, EventSink, UnitOfWork
from wellkept.core.provenance import UNSTATED, Stated, find_prompt_source
from wellkept.core.text import JSON, dumps
from wellkept.core.tools import ToolSchema
from wellkept.security.fence import StreamingContextScrubber, build_memory_context_block, looks_fenced, scrub

if TYPE_CHECKING:
    from wellkept.agent.conversation import Conversation
    from wellkept.providers.manager import ProviderManager


def add_background(text: str, *, loaded: str = "", notice: str = "", recalled: str = "") -> str | None:
    """Return what is sent in place of the user's message; None if nothing is added to it.

    A loaded skill and a notice stay with the message in later requests. Recalled text has a fence of its own at the
    end, because later requests leave it out.
    """
    blocks = [loaded.strip(), build_memory_context_block(notice), build_memory_context_block(recalled)]
    added = [block for block in blocks if block]
    return "\n\n".join((text, *added)) if added else None


def build_user_message(text: str, images: Sequence[ImagePart]) -> Message:
    """Return the user's message: plain text, or text and images."""
    return Message(Role.USER, (TextPart(text), *images) if images else text)


def build_request(
    prompt: str, rows: Sequence[StoredMessage], *, tools: tuple[ToolSchema, ...], pruning: JSON, conversation_id: str
) -> ChatRequest:
    """Return the request for `rows`; the same rows always give the same bytes."""
    return ChatRequest(
        system=prompt,
        messages=request_messages(prune_as_marked(rows, pruning)),
        tools=tools,
        conversation_id=conversation_id,
    )


class StreamedText(Struct):
    """The part of an answer that has been shown; an interrupted turn stores it."""

    text: str = ""


async def stream_answer(
    model: ChatModel, request: ChatRequest, *, sink: EventSink, streamed: StreamedText, task: str = "main"
) -> ChatResponse:
    """Return the model's answer; stream its text to `sink`, without recalled text that it repeats."""
    scrubber = StreamingContextScrubber()
    began = time.monotonic()
    response: ChatResponse | None = None
    async for delta in model.stream(request):
        match delta:
            case TextDelta(text):
                _show(scrubber.feed(text), sink, streamed)
            case ReasoningDelta():
                continue
            case Restarted():
                scrubber, streamed.text = StreamingContextScrubber(), ""
            case ChatResponse():
                response = delta
    _show(scrubber.flush(), sink, streamed)
    if response is None:
        raise ModelBusy(f"{model.name} ended its answer early", "try again")
    sink(ModelCalled(task, response.model, response.usage, time.monotonic() - began))
    return replace(response, message=_scrub_message(response.message))


def _show(text: str, sink: EventSink, streamed: StreamedText) -> None:
    if text:
        streamed.text += text
        sink(TextStreamed(text))


def _scrub_message(message: Message) -> Message:
    """Return the answer without recalled text that the model repeated.

    Signed reasoning stays unchanged, because its endpoint rejects it otherwise.
    """
    if message.role is not Role.ASSISTANT:
        return message
    content = scrub(message.content) if isinstance(message.content, str) else message.content
    calls = tuple(replace(call, arguments=_scrub_arguments(call.arguments)) for call in message.tool_calls)
    reasoning = message.reasoning
    if reasoning is not None and not reasoning.startswith("["):
        reasoning = scrub(reasoning)
    return replace(message, content=content, tool_calls=calls, reasoning=reasoning)


def _scrub_arguments(text: str) -> str:
    if not looks_fenced(text):
        return text
    try:
        return dumps(_scrub_value(json.loads(text)))
    except ValueError:
        return scrub(text)


def _scrub_value(value: JSON) -> JSON:
    match value:
        case str():
            return scrub(value)
        case Mapping():
            return {key: _scrub_value(inner) for key, inner in value.items()}
        case list():
            return [_scrub_value(inner) for inner in value]
        case _:
            return value


INTERRUPTED = "[interrupted by the user]"


class ToolUse(Struct, frozen=True):
    """One tool call of the turn."""

    name: str
    arguments: str
    ok: bool


class SavedEntry(Struct, frozen=True):
    """One entry that the turn wrote to a page."""

    ledger_id: LedgerId | None
    target: str
    text: str


class Answer(Struct, frozen=True):
    """The result of a turn."""

    text: str
    session_id: SessionId
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    tool_calls: tuple[ToolUse, ...] = ()
    saved: tuple[SavedEntry, ...] = ()
    interrupted: bool = False
    stopped_by: str = ""
    """The limit that ended the turn; empty when it ended normally."""
    seconds: float = 0.0
    unsaved: str = ""
    """Why something that was to be saved could not be written; empty if everything was."""
    client_calls: tuple[ToolCall, ...] = ()
    """Calls of the client's own tools; the turn continues when it sends their results."""


class Spent(Struct, frozen=True):
    """What a turn has used so far."""

    iterations: int = 0
    usage: Usage = Usage()
    cost: float | None = 0.0
    """None once a model of unknown price was called."""
    seconds: float = 0.0


def limit_reached(limits: LimitSettings, spent: Spent) -> str:
    """Return the limit that is reached, as text; empty when none is."""
    tokens = spent.usage.prompt_tokens + spent.usage.output_tokens
    if spent.iterations >= limits.iterations:
        return f"{limits.iterations} model calls"
    if limits.tokens is not None and tokens >= limits.tokens:
        return f"{limits.tokens:,} tokens"
    if limits.cost is not None and spent.cost is not None and spent.cost >= limits.cost:
        return f"${limits.cost:.2f}" if limits.cost >= 0.01 else f"${limits.cost:g}"
    if limits.seconds is not None and spent.seconds >= limits.seconds:
        return f"{limits.seconds:g} seconds"
    return ""


def limit_notice(limit: str, calls: Sequence[ToolUse]) -> str:
    """Return the notice that ends a turn at its limit."""
    counts: dict[str, int] = {}
    for call in calls:
        counts[call.name] = counts.get(call.name, 0) + 1
    calls_made = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in counts.items())
    failed = sum(1 for call in calls if not call.ok)
    tail = f" So far: {calls_made}{f', {failed} of them failed' if failed else ''}." if calls else ""
    return f"[I stopped at the limit of {limit} for one turn.{tail} Say “go on” to continue.]"


class Turn(Struct):
    """The state of a running turn."""

    text: str
    began: float
    first_row: int
    notice: str = ""
    """What changed on the pages since the last turn."""
    is_stored: bool = False
    """Whether the user's message has been added to the record."""
    has_background: bool = False
    """Whether what the model gets with the message has been added to it."""
    spent: Spent = field(default_factory=Spent)
    calls: list[ToolUse] = field(default_factory=list)
    saved: list[SavedEntry] = field(default_factory=list)
    streamed: StreamedText = field(default_factory=StreamedText)
    answer: str = ""
    final: Message | None = None
    """The model's last message, complete with its reasoning."""
    interrupted: bool = False
    stopped_by: str = ""
    unsaved: str = ""
    images: tuple[ImagePart, ...] = ()
    loaded: str = ""
    """The skill that the person loaded for this message; the model gets it, but it is not part of the message."""
    source: SourceName | None = None
    """Where the message came from, if the person did not type all of it."""
    results: tuple[Message, ...] = ()
    """Results of the client's own tools, which continue an earlier turn; such a turn has no message."""
    client_calls: tuple[ToolCall, ...] = ()


async def take_turn(
    conversation: "Conversation",
    text: str,
    results: Sequence[Message] = (),
    *,
    images: Sequence[ImagePart] = (),
    loaded: str = "",
    source: Stated = UNSTATED,
) -> Answer:
    """Answer one message; the message and the partial answer are stored even when the turn fails.

    With `results`, continue the turn that `text` began, after the client has run its own tools. `loaded` is the skill
    that the person loaded with the message.
    """
    # a continued turn began with the person's last message
    question = last_question(conversation.record.rows) if results else None
    first_row = len(conversation.record.rows) if question is None else question
    author = find_prompt_source(text, source, conversation.platform) or conversation.parts.speaker
    turn = Turn(
        text, time.monotonic(), first_row, images=tuple(images), loaded=loaded, source=author, results=tuple(results)
    )
    conversation.current = turn
    failure: KeptError | None = None
    with conversation.interruptible() as scope:
        try:
            await _receive(conversation, turn)
            await _answer_in_time(conversation, turn)
        except KeptError as error:
            failure = error
    turn.interrupted = scope.cancelled_caught
    with anyio.CancelScope(shield=True):
        if not turn.is_stored:
            await _store_message(conversation, turn)
        if not turn.has_background:
            await _set_background(conversation, turn)
        closing = _closing_message(conversation, turn, failure)
        if turn.client_calls and failure is None and not turn.interrupted:
            await offload(conversation.finish_turn, turn)  # it continues when the client sends the results
        else:
            await offload(_settle, conversation, turn, closing)
    if failure is not None:
        raise failure
    return Answer(
        turn.answer,
        conversation.record.session.id,
        turn.spent.usage,
        turn.spent.cost if conversation.parts.model is not None else None,
        tuple(turn.calls),
        tuple(turn.saved),
        turn.interrupted,
        turn.stopped_by,
        time.monotonic() - turn.began,
        turn.unsaved or _trouble_of_writes(conversation, turn),
        turn.client_calls,
    )


def _trouble_of_writes(conversation: "Conversation", turn: Turn) -> str:
    """Return why neither the message nor an entry of the model could be stored; empty when one of them was."""
    is_refused = any(call.name == "memory" and not call.ok for call in turn.calls)
    return conversation.record.trouble if is_refused and not turn.saved else ""


async def _receive(conversation: "Conversation", turn: Turn) -> None:
    """Store the message, then recall memory for it; an interrupt does not wait for providers.

    The order matters: plugins run from `begin_turn` on, and one that ends the process must not lose the message.
    """
    if turn.results:
        with anyio.CancelScope(shield=True):
            new = [_new_message(conversation, result, Origin.TOOL) for result in turn.results]
            await offload(conversation.record.add, new)
            turn.is_stored = turn.has_background = True
        return
    await _store_message(conversation, turn)
    with anyio.CancelScope(shield=True):
        turn.notice = await offload(conversation.begin_turn, turn.text)
    recalled = await offload(conversation.recall, turn.text, abandon=True)
    if recalled:
        conversation.recalled_texts.append(recalled)
    await _set_background(conversation, turn, recalled)


async def _store_message(conversation: "Conversation", turn: Turn) -> None:
    origin = Origin.PERSON
    if conversation.parts.model is None:
        from wellkept.agent.without_model.passages import asks_memory

        origin = Origin.LOOKUP if asks_memory(turn.text, conversation.now()) else origin
    sent = build_user_message(turn.text, turn.images)
    message = NewMessage(sent, conversation.now(), origin, source=turn.source)
    with anyio.CancelScope(shield=True):
        await offload(conversation.store_message, message)
        turn.is_stored = True


async def _set_background(conversation: "Conversation", turn: Turn, recalled: str = "") -> None:
    """Add to what the model gets with the message; none of it is part of the message itself."""
    sent = add_background(turn.text, loaded=turn.loaded, notice=turn.notice, recalled=recalled)
    with anyio.CancelScope(shield=True):
        if sent is not None:
            await offload(conversation.record.set_sent_text, sent)
        turn.has_background = True


async def _answer_in_time(conversation: "Conversation", turn: Turn) -> None:
    """Answer within the time limit; a model call or tool that exceeds it is cancelled."""
    seconds = conversation.parts.limits.seconds
    with anyio.move_on_after(None if seconds is None else seconds - (time.monotonic() - turn.began)) as clock:
        await _answer(conversation, turn)
    if clock.cancelled_caught:
        _stop(conversation, turn, f"{seconds:g} seconds")


def _stop(conversation: "Conversation", turn: Turn, limit: str) -> None:
    """End the turn at a limit: the partial answer, followed by a notice."""
    turn.stopped_by = limit
    notice = limit_notice(limit, turn.calls)
    before = f"{turn.streamed.text}\n\n" if turn.streamed.text else ""
    turn.answer = before + notice
    conversation.parts.sink(TextStreamed(f"\n\n{notice}" if before else notice))


async def _answer(conversation: "Conversation", turn: Turn) -> None:
    """Call the model and run its tools until it answers or a limit is reached."""
    if conversation.parts.model is None:
        await answer_without_model(conversation, turn)
        return
    while True:
        response = await _call_model(conversation, turn)
        if not response.message.tool_calls:
            turn.answer = response.message.text
            turn.final = response.message
            return
        await offload(conversation.record.add, [_new_message(conversation, response.message, Origin.MODEL)])
        turn.streamed = StreamedText()
        theirs = {schema.name for schema in conversation.client_tools} - set(conversation.parts.toolbox.tools)
        turn.client_calls = tuple(call for call in response.message.tool_calls if call.name in theirs)
        own = [call for call in response.message.tool_calls if call.name not in theirs]
        if own:
            await _run_tools(conversation, turn, own)
        if turn.client_calls:
            turn.answer = response.message.text
            return
        if limit := limit_reached(conversation.parts.limits, turn.spent):
            _stop(conversation, turn, limit)
            return
        if conversation.should_compact(conversation.last_prompt_tokens):
            await offload(conversation.compact, CompactionRequest(current_tokens=conversation.last_prompt_tokens))


async def _call_model(conversation: "Conversation", turn: Turn) -> ChatResponse:
    """Make one model call; when the context overflows, compact it and try once more."""
    model = conversation.parts.model
    assert model is not None
    await conversation.preflight()
    for attempt in (1, 2):
        request = build_request(
            conversation.prompt,
            conversation.record.rows,
            tools=conversation.all_tools,
            pruning=conversation.record.pruning,
            conversation_id=conversation.root,
        )
        try:
            response = await stream_answer(model, request, sink=conversation.parts.sink, streamed=turn.streamed)
        except ContextOverflow as overflow:
            if attempt == 2 or not conversation.parts.compression.enabled or conversation.parts.engine is None:
                raise conversation.explain_overflow(overflow) from overflow
            await offload(conversation.compact, CompactionRequest(force=True))
            continue
        await offload(conversation.count_call, response, request)
        cost = conversation.parts.cost_of(response.model, response.usage)
        so_far = turn.spent.cost
        turn.spent = Spent(
            turn.spent.iterations + 1,
            turn.spent.usage + response.usage,
            None if cost is None or so_far is None else so_far + cost,
            time.monotonic() - turn.began,
        )
        return response
    raise AssertionError("the loop returns or raises")


async def _run_tools(conversation: "Conversation", turn: Turn, calls: Sequence[ToolCall]) -> None:
    environment = ToolEnvironment(
        conversation.parts.toolbox,
        conversation.build_tool_context(),
        conversation.parts.sink,
        conversation.approve,
        conversation.parts.limits.tool_seconds,
    )
    results = await run_tools(calls, environment)
    turn.calls += [ToolUse(result.call.name, result.call.arguments, result.ok) for result in results]
    new = [_new_message(conversation, result.message, Origin.TOOL, is_own=not result.has_run) for result in results]
    await offload(conversation.record.add, new)


def _new_message(
    conversation: "Conversation", message: Message, origin: Origin, *, interrupted: bool = False, is_own: bool = False
) -> NewMessage:
    source = None if is_own else conversation.find_source(message, origin)
    return NewMessage(message, conversation.now(), origin, interrupted=interrupted, source=source)


def _closing_message(conversation: "Conversation", turn: Turn, failure: KeptError | None) -> NewMessage:
    """Return the last message of the turn; it is always stored, so that the next request extends this one."""
    if turn.interrupted:
        turn.answer = turn.streamed.text
        text = f"{turn.streamed.text}\n\n{INTERRUPTED}" if turn.streamed.text else INTERRUPTED
        return _new_message(conversation, Message(Role.ASSISTANT, text), Origin.MODEL, interrupted=True)
    if failure is not None:
        text = turn.streamed.text or f"[no answer: {failure.message}]"
        return _new_message(conversation, Message(Role.ASSISTANT, text), Origin.SYNTHETIC, interrupted=True)
    message = turn.final if turn.final is not None and not turn.stopped_by else Message(Role.ASSISTANT, turn.answer)
    origin = Origin.MODEL if conversation.parts.model is not None else Origin.LOOKUP  # it quotes what is stored
    return _new_message(conversation, message, origin)


def _settle(conversation: "Conversation", turn: "Turn", closing: NewMessage) -> None:
    """Store the closing message; queue a finished turn for the providers in the same transaction."""
    if conversation.parts.providers is None:
        conversation.record.add([closing])
    else:
        _store_with_outbox(conversation, turn, closing, conversation.parts.providers)
    conversation.finish_turn(turn)


def _store_with_outbox(
    conversation: "Conversation", turn: "Turn", closing: NewMessage, providers: "ProviderManager"
) -> None:
    # imported here: most conversations have no provider, and these modules are slow to load
    from wellkept.providers.content import plain_messages
    from wellkept.providers.writes import FinishedTurn

    rows = (
        conversation.record.rows[turn.first_row :]
        if turn.first_row <= len(conversation.record.rows)
        else conversation.record.rows[-1:]
    )
    finished = FinishedTurn(
        session_id=conversation.record.session.id,
        key="",
        user=turn.text,
        assistant="" if closing.interrupted else turn.answer,
        messages=plain_messages([*(row.message for row in rows), closing.message]),
        interrupted=closing.interrupted,
    )

    def in_transaction(unit: UnitOfWork, ids: Sequence[MessageId]) -> None:
        if ids:
            providers.writes.queue_turn(unit, replace(finished, key=str(ids[-1])))

    conversation.record.add([closing], in_transaction=in_transaction)
    providers.writes.after_turn(finished)

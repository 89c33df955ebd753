"""One model call: the request built from the history, and the streamed answer without recalled text."""

import json
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from wellkept.context.prune import prune_as_marked
from wellkept.context.repair import request_messages
from wellkept.core.errors import ModelBusy
from wellkept.core.events import ModelCalled, TextStreamed
from wellkept.core.messages import (
    ChatRequest,
    ChatResponse,
    ImagePart,
    Message,
    ReasoningDelta,
    Restarted,
    Role,
    StoredMessage,
    TextDelta,
    TextPart,
)
from wellkept.core.ports import ChatModel, EventSink
from wellkept.core.text import JSON, dumps
from wellkept.core.tools import ToolSchema
from wellkept.security.fence import StreamingContextScrubber, build_memory_context_block, looks_fenced, scrub


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
    prompt: str,
    rows: Sequence[StoredMessage],
    *,
    tools: tuple[ToolSchema, ...],
    pruning: JSON,
    conversation_id: str,
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

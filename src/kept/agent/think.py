"""Thinking: one model call, streamed through the scrubber."""

import time
from dataclasses import dataclass, replace

from kept.core.chat import ChatRequest, ChatResponse, ReasoningDelta, Restarted, TextDelta
from kept.core.errors import ModelBusy
from kept.core.events import ModelCalled, TextStreamed
from kept.core.messages import Message, Role
from kept.core.ports import ChatModel, EventSink
from kept.security.fence import sanitize_context
from kept.security.scrub import StreamingContextScrubber


@dataclass(slots=True)
class Heard:
    """What of an answer has been shown so far; an interrupted turn keeps it."""

    text: str = ""


async def think(
    model: ChatModel, request: ChatRequest, *, sink: EventSink, heard: Heard, task: str = "main"
) -> ChatResponse:
    """Return the model's answer; its text is told piece by piece, without anything that was recalled."""
    scrubber = StreamingContextScrubber()
    began = time.monotonic()
    response: ChatResponse | None = None
    async for delta in model.stream(request):
        match delta:
            case TextDelta(text):
                _show(scrubber.feed(text), sink, heard)
            case ReasoningDelta():
                continue
            case Restarted():
                scrubber, heard.text = StreamingContextScrubber(), ""
            case ChatResponse():
                response = delta
    _show(scrubber.flush(), sink, heard)
    if response is None:
        raise ModelBusy(f"{model.name} ended its answer before it was whole", "try again")
    sink(ModelCalled(task, response.model, response.usage, time.monotonic() - began))
    return replace(response, message=_clean(response.message))


def _show(text: str, sink: EventSink, heard: Heard) -> None:
    if text:
        heard.text += text
        sink(TextStreamed(text))


def _clean(message: Message) -> Message:
    """Return the answer as it is kept: what the model echoed of recalled memory is not part of it."""
    text = message.text
    clean = sanitize_context(text)
    if message.role is not Role.ASSISTANT or clean == text or not isinstance(message.content, str):
        return message
    return replace(message, content=clean)

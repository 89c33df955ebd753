"""The adapter for Anthropic's messages API: requests out, streamed events in."""

import json
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from wellkept.core.messages import (
    ChatRequest,
    ChatResponse,
    ImagePart,
    Message,
    Part,
    ReasoningDelta,
    Role,
    StopReason,
    TextDelta,
    TextPart,
    Usage,
)
from wellkept.core.text import dumps
from wellkept.llm.endpoints import Sending
from wellkept.llm.sdk import PartialAnswer, PartialCall, SdkModel, WireMessage, merge_neighbours, parse_arguments

VENDOR_HOST = "api.anthropic.com"


class AnthropicModel(SdkModel):
    """A Claude model behind the messages API."""

    SDK = "anthropic"
    PATH = "/v1/messages"

    def body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the request body, including cache markers."""
        made = build_body(request, model=self._model, sending=self._sending)
        if self._mark is None:
            return made
        system = [{"role": "system", "content": made["system"]}] if "system" in made else []
        marked = self._mark([*system, *made["messages"]])
        if system:
            made["system"] = marked[0]["content"]
        made["messages"] = marked[len(system) :]
        return made

    def _answer(self) -> PartialAnswer:
        return Answer()

    def _connect(self, sdk: ModuleType, **options: Any) -> Any:
        # the SDK sends the key as a bearer token; compatible servers often accept only the older header
        older = {} if self._endpoint.host == VENDOR_HOST else {"x-api-key": self._endpoint.api_key}
        return sdk.AsyncAnthropic(default_headers=older, **options)


DEFAULT_MAX_OUTPUT_TOKENS = 16_000
"""The API requires a limit; this one is valid for every current model and leaves room for a long file."""

_STOPS: Mapping[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_THINKING = ("thinking", "redacted_thinking")


def build_body(request: ChatRequest, *, model: str, sending: Sending) -> dict[str, Any]:
    """Return the request without cache markers; equal histories give equal bytes."""
    made: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_output_tokens or sending.max_output_tokens or DEFAULT_MAX_OUTPUT_TOKENS,
    }
    if request.system:
        made["system"] = [_text(request.system)]
    made["messages"] = messages(request.messages)
    if request.tools:
        made["tools"] = [
            {"name": schema.name, "description": schema.description, "input_schema": schema.parameters}
            for schema in request.tools
        ]
    if sending.temperature is not None:
        made["temperature"] = sending.temperature
    made["stream"] = True
    return {**made, **sending.extra}


def messages(history: Sequence[Message]) -> list[WireMessage]:
    """Return the history as lists of parts with alternating roles; tool results join the user message that follows.

    Blank text is left out because the API rejects it, and so is an answer that is only blank.
    """
    wired = [_message(message) for message in history]
    return merge_neighbours([message for message in wired if message["content"]])


def _message(message: Message) -> WireMessage:
    match message.role:
        case Role.TOOL:
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.tool_call_id or ""}
            if parts := _parts(message.content):
                result["content"] = parts
            return {"role": "user", "content": [result]}
        case Role.ASSISTANT:
            calls = [
                {"type": "tool_use", "id": call.id, "name": call.name, "input": parse_arguments(call.arguments)}
                for call in message.tool_calls
            ]
            spoken = [*thinking_blocks(message), *_parts(message.content)]
            return {"role": "assistant", "content": [*spoken, *calls]}
        case _:
            return {"role": "user", "content": _parts(message.content)}


def _parts(content: str | tuple[Part, ...]) -> list[dict[str, Any]]:
    parts: tuple[Part, ...] = (TextPart(content),) if isinstance(content, str) else content
    return [_part(part) for part in parts if not isinstance(part, TextPart) or part.text.strip()]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return _text(text)
        case ImagePart(media_type, data):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def thinking_blocks(message: Message) -> list[dict[str, Any]]:
    """Return the signed thinking blocks of the message; other models' thinking is plain text and is left out."""
    if message.reasoning is None or not message.reasoning.startswith("["):
        return []
    try:
        blocks = json.loads(message.reasoning)
    except ValueError:
        return []
    return [block for block in blocks if isinstance(block, dict) and block.get("type") in _THINKING]


class Answer:
    """An answer that is built from streamed events."""

    def __init__(self) -> None:
        self._text: dict[int, list[str]] = {}
        self._thinking: dict[int, dict[str, Any]] = {}
        self._calls: dict[int, PartialCall] = {}
        self._counts: dict[str, int] = {}
        self._stop = ""
        self.is_empty = True
        self._is_whole = False

    @property
    def missing(self) -> str:
        """Return what is missing from an incomplete stream, or an empty string."""
        return "" if self._is_whole else "the stream ended before the message did"

    def take(self, event: Any) -> Iterator[TextDelta | ReasoningDelta]:
        """Add one event and yield the deltas to show."""
        if not isinstance(event, dict):
            return
        self.is_empty = False
        match event.get("type"):
            case "message_start":
                self._count(event["message"].get("usage"))
            case "content_block_start":
                yield from self._begin(event["index"], event["content_block"])
            case "content_block_delta":
                yield from self._extend(event["index"], event["delta"])
            case "message_delta":
                self._stop = event["delta"].get("stop_reason") or self._stop
                self._count(event.get("usage"))
            case "message_stop":
                self._is_whole = True

    def _count(self, usage: Any) -> None:
        # counts are cumulative: a later report replaces an earlier one, a missing one does not
        self._counts.update({key: value for key, value in (usage or {}).items() if isinstance(value, int)})

    def _begin(self, index: int, block: dict[str, Any]) -> Iterator[TextDelta | ReasoningDelta]:
        match block.get("type"):
            case "text":
                self._text[index] = []
                if block.get("text"):
                    yield from self._extend(index, {"type": "text_delta", "text": block["text"]})
            case "tool_use":
                self._calls[index] = PartialCall(block.get("id") or "", block.get("name") or "")
                if block.get("input"):
                    self._calls[index].arguments.append(dumps(block["input"]))
            case "thinking" | "redacted_thinking":
                self._thinking[index] = dict(block)

    def _extend(self, index: int, delta: dict[str, Any]) -> Iterator[TextDelta | ReasoningDelta]:
        match delta.get("type"):
            case "text_delta":
                self._text[index].append(delta["text"])
                yield TextDelta(delta["text"])
            case "input_json_delta":
                self._calls[index].arguments.append(delta["partial_json"])
            case "thinking_delta":
                block = self._thinking[index]
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
                yield ReasoningDelta(delta["thinking"])
            case "signature_delta":
                block = self._thinking[index]
                block["signature"] = block.get("signature", "") + delta["signature"]

    def response(self, *, model: str, first_call: int) -> ChatResponse:
        """Return the complete answer."""
        calls = tuple(call.complete(f"call_{number}") for number, call in enumerate(self._calls.values(), first_call))
        thinking = [block for _, block in sorted(self._thinking.items())]
        message = Message(
            Role.ASSISTANT,
            "".join("".join(parts) for _, parts in sorted(self._text.items())),
            tool_calls=calls,
            reasoning=dumps(thinking) if thinking else None,
        )
        return ChatResponse(message, self._usage(), _STOPS.get(self._stop, "end"), model)

    def _usage(self) -> Usage:
        counted = self._counts.get
        return Usage(
            counted("input_tokens", 0),
            counted("output_tokens", 0),
            counted("cache_read_input_tokens", 0),
            counted("cache_creation_input_tokens", 0),
        )

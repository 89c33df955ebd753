"""The adapter for OpenAI's chat completions and embeddings, and for compatible endpoints."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
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
from wellkept.core.tools import ToolSchema
from wellkept.llm.endpoints import Endpoint, Sending
from wellkept.llm.sdk import (
    JSON_BODY,
    PartialAnswer,
    PartialCall,
    RequestInfo,
    SdkModel,
    WireMessage,
    as_bytes,
    interrupted_error,
    timeouts,
    translate_errors,
    valid_arguments,
)

VENDOR_HOST = "api.openai.com"


class OpenAIModel(SdkModel):
    """A model behind chat completions: OpenAI, OpenRouter, Ollama, LM Studio, llama.cpp, vLLM."""

    SDK = "openai"
    PATH = "/chat/completions"

    def body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the request body, including cache markers."""
        vendor = self._endpoint.host == VENDOR_HOST
        made = build_body(
            request, model=self._model, sending=self._sending, vendor=vendor, as_parts=self._mark is not None
        )
        if self._mark is not None:
            made["messages"] = self._mark(made["messages"])
        return made

    def _answer(self) -> PartialAnswer:
        return Answer()

    def _connect(self, sdk: ModuleType, **options: Any) -> Any:
        return sdk.AsyncOpenAI(**options)


_STOPS: Mapping[str, StopReason] = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refusal",
}

_TOOLS_WITHOUT_REASONING = re.compile(r"gpt-(?:5\.[4-9]|[6-9])")
"""Models that accept tools in chat completions only with reasoning switched off."""


def build_body(request: ChatRequest, *, model: str, sending: Sending, vendor: bool, as_parts: bool) -> dict[str, Any]:
    """Return the request; equal histories give equal bytes.

    `vendor` is OpenAI's own endpoint, which has fields that others reject. `as_parts` sends every text as a list of
    parts, so that a cache marker can move without changing anything else.
    """
    made: dict[str, Any] = {
        "model": model,
        "messages": messages(request, as_parts=as_parts),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        made["tools"] = [_tool(schema) for schema in request.tools]
    limit = request.max_output_tokens or sending.max_output_tokens
    if limit is not None:
        made["max_completion_tokens" if vendor else "max_tokens"] = limit
    if sending.temperature is not None:
        made["temperature"] = sending.temperature
    if vendor and request.tools and _TOOLS_WITHOUT_REASONING.match(model):
        made["reasoning_effort"] = "none"
    if vendor and request.conversation_id is not None:
        made["prompt_cache_key"] = request.conversation_id
    return {**made, **sending.extra}


def messages(request: ChatRequest, *, as_parts: bool) -> list[WireMessage]:
    """Return the system prompt and the history; consecutive user messages are joined."""
    wired: list[WireMessage] = []
    if request.system:
        wired.append({"role": "system", "content": _content(request.system, as_parts=as_parts)})
    for message in request.messages:
        one = _message(message, as_parts=as_parts)
        if wired and one["role"] == "user" == wired[-1]["role"]:
            wired[-1] = {"role": "user", "content": _join(wired[-1]["content"], one["content"])}
        else:
            wired.append(one)
    return wired


def _message(message: Message, *, as_parts: bool) -> WireMessage:
    match message.role:
        case Role.TOOL:
            # an empty part is rejected, and could carry no marker
            content = _content(message.text, as_parts=as_parts and bool(message.text))
            return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": content}
        case Role.ASSISTANT:
            wired: WireMessage = {"role": "assistant"}
            if message.text or not message.tool_calls:
                wired["content"] = _content(message.text, as_parts=as_parts)
            if message.tool_calls:
                wired["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": valid_arguments(call.arguments)},
                    }
                    for call in message.tool_calls
                ]
            return wired
        case _:
            return {"role": message.role.value, "content": _content(message.content, as_parts=as_parts)}


def _content(content: str | tuple[Part, ...], *, as_parts: bool) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if as_parts else content
    if not as_parts and all(isinstance(part, TextPart) for part in content):
        return "\n".join(part.text for part in content if isinstance(part, TextPart))
    return [_part(part) for part in content]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart(media_type, data):
            return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}


def _join(first: str | list[Any], second: str | list[Any]) -> str | list[Any]:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_as_list(first), *_as_list(second)]


def _as_list(content: str | list[Any]) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _tool(schema: ToolSchema) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": schema.name, "description": schema.description, "parameters": schema.parameters},
    }


class Answer:
    """An answer that is built from streamed chunks; tolerates servers that omit ids, indexes or usage."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal = False
        self._calls: list[PartialCall] = []
        self._by_index: dict[int, PartialCall] = {}
        self._usage = Usage()
        self.finish: str | None = None
        self.is_empty = True

    @property
    def missing(self) -> str:
        """Return what is missing from an incomplete stream, or an empty string."""
        return "the stream ended without a finish reason" if self.finish is None else ""

    def take(self, chunk: Any) -> Iterator[TextDelta | ReasoningDelta]:
        """Add one chunk and yield the deltas to show."""
        if not isinstance(chunk, dict):
            return
        self.is_empty = False
        if isinstance(usage := chunk.get("usage"), dict):
            self._usage = usage_of(usage)
        choices = chunk.get("choices") or []
        if not choices:
            return
        self.finish = choices[0].get("finish_reason") or self.finish
        delta = choices[0].get("delta") or {}
        for call in delta.get("tool_calls") or []:
            self._take_call(call)
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
            self._reasoning.append(reasoning)
            yield ReasoningDelta(reasoning)
        if refusal := delta.get("refusal"):
            self._refusal = True
        if text := delta.get("content") or refusal:
            self._text.append(text)
            yield TextDelta(text)

    def _take_call(self, delta: dict[str, Any]) -> None:
        function = delta.get("function") or {}
        name, arguments = function.get("name") or "", function.get("arguments") or ""
        call = self._call_of(delta.get("index"), delta.get("id") or "", name=name)
        if name and name != call.name:
            call.name += name
        call.arguments.append(arguments)

    def _call_of(self, index: int | None, call_id: str, *, name: str) -> PartialCall:
        place = len(self._calls) - (0 if name or not self._calls else 1) if index is None else index
        call = self._by_index.get(place)
        # some servers number every call 0 and distinguish them by their ids
        if call is None or (call_id and call.id and call_id != call.id):
            call = PartialCall(call_id, "")
            self._calls.append(call)
            self._by_index[place] = call
        call.id = call.id or call_id
        return call

    def response(self, *, model: str, first_call: int) -> ChatResponse:
        """Return the complete answer; calls without an id are numbered from `first_call`."""
        calls = tuple(call.complete(f"call_{number}") for number, call in enumerate(self._calls, first_call))
        stop = _STOPS.get(self.finish or "", "end")
        if self._refusal:
            stop = "refusal"
        elif calls and stop == "end":
            stop = "tool_calls"
        message = Message(
            Role.ASSISTANT, "".join(self._text), tool_calls=calls, reasoning="".join(self._reasoning) or None
        )
        return ChatResponse(message, self._usage, stop, model)


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """Return the token counts; the API's prompt count includes cache reads and writes."""
    details = usage.get("prompt_tokens_details") or {}
    read = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    written = details.get("cache_write_tokens") or 0
    prompt = usage.get("prompt_tokens") or 0
    return Usage(max(0, prompt - read - written), usage.get("completion_tokens") or 0, read, written)


BATCH = 128
"""Texts per request; every known server accepts this many."""


class OpenAIEmbeddings:
    """Embeds texts; called from threads, so its client is synchronous."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        timeout_seconds: float = 60.0,
        dimensions: int | None = None,
        batch: int = BATCH,
    ) -> None:
        self.name = f"{endpoint.provider}/{model}" + (f"@{dimensions}" if dimensions else "")
        self._dimensions = dimensions
        self._batch = batch
        self._endpoint = endpoint
        self._model = model
        self._timeout_seconds = timeout_seconds

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order, or raise a ModelError."""
        vectors: list[list[float]] = []
        for start in range(0, len(texts), self._batch):
            vectors += self._embed_batch(list(texts[start : start + self._batch]))
        return vectors

    def _embed_batch(self, texts: list[str]) -> list[list[float]]:
        import openai

        body: dict[str, Any] = {"model": self._model, "input": texts, "encoding_format": "float"}
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        info = RequestInfo(self._endpoint, self._model, self._timeout_seconds)
        with translate_errors(openai, info, lambda: False):  # nothing is streamed, so no answer is partial
            answer = self._client.post("/embeddings", content=as_bytes(body), options=JSON_BODY, cast_to=object)
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = [[float(number) for number in row["embedding"]] for row in rows]
        if len(vectors) != len(texts):
            raise interrupted_error(self._endpoint, reason=f"{len(vectors)} vectors for {len(texts)} texts")
        return vectors

    @cached_property
    def _client(self) -> Any:
        import openai

        return openai.OpenAI(
            api_key=self._endpoint.api_key,
            base_url=self._endpoint.base_url,
            max_retries=0,
            timeout=timeouts(self._timeout_seconds),
            http_client=openai.DefaultHttpxClient(trust_env=False) if self._endpoint.is_loopback else None,
        )

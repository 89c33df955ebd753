"""Replies of endpoints: parse the model's answer from a copy of the bytes that went to the client."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from wellkept.core.messages import Message, Role, ToolCall, Usage
from wellkept.gateway.compatible import anthropic, openai_chat, openai_responses
from wellkept.gateway.compatible.clients import InvalidRequest
from wellkept.gateway.state.proxied_conversations import ProxiedAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MOST_BYTES = 32_000_000
"""Longer answers are not parsed; they are stored with the client's next request."""


class Copy:
    """The bytes of a reply as they passed, up to a limit."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._bytes = 0

    def add(self, chunk: bytes) -> None:
        """Keep a part."""
        self._bytes += len(chunk)
        if self._bytes <= MOST_BYTES:
            self._chunks.append(chunk)
        else:
            self._chunks.clear()

    def decode(self, coding: str) -> bytes | None:
        """Return the content; None if it is too long, or has an unsupported encoding (Brotli)."""
        if self._bytes > MOST_BYTES:
            return None
        raw = b"".join(self._chunks)
        match coding.strip().lower():
            case "" | "identity":
                return raw
            case "gzip" | "x-gzip" | "deflate":
                for window in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):
                    try:
                        return zlib.decompressobj(window).decompress(raw, MOST_BYTES)
                    except zlib.error:
                        continue
                return None
            case "zstd":
                return _decompress_zstd(raw)
            case _:
                return None


def _decompress_zstd(raw: bytes) -> bytes | None:
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore] # from Python 3.14 on
    except ImportError:
        from backports import zstd
    try:
        return bytes(zstd.ZstdDecompressor().decompress(raw, MOST_BYTES))
    except zstd.ZstdError:
        return None


def read_reply(
    data: bytes,
    content_type: str,
    *,
    whole: Callable[[Mapping[str, Any]], ProxiedAnswer],
    streamed: Callable[[list[dict[str, Any]]], ProxiedAnswer],
) -> ProxiedAnswer | None:
    """Parse a reply, which is one object or a stream of events; None if it cannot be parsed."""
    try:
        if content_type.partition(";")[0].strip().lower() == "text/event-stream":
            return streamed(list(_read_events(data)))
        value = json.loads(data)
        return whole(value) if isinstance(value, dict) else None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, InvalidRequest):
        return None  # the client sends the answer with its next request anyway


def _read_events(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of server-sent events, without a truncated one."""
    lines: list[bytes] = []
    for line in (*data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""):
        if line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
        elif not line and lines:
            event = _parse(b"\n".join(lines))
            lines = []
            if event is not None:
                yield event


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except ValueError:
        return None  # [DONE], or a truncated event
    return value if isinstance(value, dict) else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _as_messages(message: Message) -> tuple[Message, ...]:
    return (message,) if message.content or message.tool_calls else ()


# Anthropic's messages


def read_anthropic(value: Mapping[str, Any]) -> ProxiedAnswer:
    """Return the answer of a whole message."""
    message = anthropic.read_assistant(value.get("content"), "content")
    usage = value.get("usage") or {}
    return ProxiedAnswer(_as_messages(message), _anthropic_usage(usage), str(value.get("model") or ""))


def _anthropic_usage(value: Mapping[str, Any]) -> Usage:
    return Usage(
        _count(value.get("input_tokens")),
        _count(value.get("output_tokens")),
        _count(value.get("cache_read_input_tokens")),
        _count(value.get("cache_creation_input_tokens")),
    )


def read_anthropic_stream(events: list[dict[str, Any]]) -> ProxiedAnswer:
    """Return the answer of a stream of events."""
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, list[str]] = {}
    head: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    for event in events:
        match event.get("type"):
            case "message_start":
                head = event["message"]
                usage |= head.get("usage") or {}
            case "content_block_start":
                blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                _add_delta(blocks[event["index"]], event["delta"], inputs.setdefault(event["index"], []))
            case "message_delta":
                usage |= {name: count for name, count in (event.get("usage") or {}).items() if count is not None}
    for index, pieces in inputs.items():
        if blocks[index].get("type") == "tool_use" and pieces:
            blocks[index]["input"] = _read_arguments("".join(pieces))
    answer = read_anthropic({**head, "content": [blocks[index] for index in sorted(blocks)], "usage": usage})
    is_whole = any(event.get("type") == "message_stop" for event in events)
    return ProxiedAnswer(answer.messages, answer.usage, answer.model, is_broken_off=not is_whole)


def _add_delta(block: dict[str, Any], delta: Mapping[str, Any], inputs: list[str]) -> None:
    match delta.get("type"):
        case "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
        case "input_json_delta":
            inputs.append(delta["partial_json"])


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:  # the call was truncated
        return {}
    return value if isinstance(value, dict) else {}


# OpenAI's chat completions


def read_chat(value: Mapping[str, Any]) -> ProxiedAnswer:
    """Return the first choice of a whole completion."""
    given = value["choices"][0]["message"]
    content = openai_chat.read_content(given.get("content") or given.get("refusal"), "content")
    message = openai_chat.read_message(Role.ASSISTANT, content, given, "message")
    return ProxiedAnswer(_as_messages(message), _chat_usage(value.get("usage") or {}), str(value.get("model") or ""))


def _chat_usage(value: Mapping[str, Any]) -> Usage:
    cached = _count((value.get("prompt_tokens_details") or {}).get("cached_tokens"))
    asked = max(0, _count(value.get("prompt_tokens")) - cached)
    return Usage(asked, _count(value.get("completion_tokens")), cached)


def read_chat_stream(events: list[dict[str, Any]]) -> ProxiedAnswer:
    """Return the first choice of a stream of chunks."""
    texts: list[str] = []
    calls: dict[int, ToolCall] = {}
    usage: Mapping[str, Any] = {}
    model, is_whole = "", False
    for event in events:
        model = str(event.get("model") or model)
        usage = event.get("usage") or usage
        for choice in event.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta") or {}
            texts += filter(None, (delta.get("content"), delta.get("refusal")))
            for number, call in enumerate(delta.get("tool_calls") or ()):
                _add_call(calls, call.get("index", number), call)
            is_whole = is_whole or choice.get("finish_reason") is not None
    message = Message(Role.ASSISTANT, "".join(texts), tuple(calls[index] for index in sorted(calls)))
    return ProxiedAnswer(_as_messages(message), _chat_usage(usage), model, is_broken_off=not is_whole)


def _add_call(calls: dict[int, ToolCall], index: int, piece: Mapping[str, Any]) -> None:
    before = calls.get(index, ToolCall("", "", ""))
    function = piece.get("function") or {}
    calls[index] = ToolCall(
        before.id or piece.get("id") or "",
        before.name or function.get("name") or "",
        before.arguments + (function.get("arguments") or ""),
    )


# OpenAI's responses


def read_response(value: Mapping[str, Any]) -> ProxiedAnswer:
    """Return the items of a whole response."""
    messages: list[Message] = []
    for place, item in enumerate(value.get("output") or ()):
        message = openai_responses.read_item(item, f"output.{place}", [], skips_unknown=True)
        if message is not None and _as_messages(message):
            openai_responses.add_message(messages, message)
    usage = value.get("usage") or {}
    cached = _count((usage.get("input_tokens_details") or {}).get("cached_tokens"))
    asked = max(0, _count(usage.get("input_tokens")) - cached)
    spent = Usage(asked, _count(usage.get("output_tokens")), cached)
    # a background response has no items yet
    is_whole = value.get("status", "completed") in {"completed", "incomplete"}
    name = value.get("id")
    return ProxiedAnswer(
        tuple(messages),
        spent,
        str(value.get("model") or ""),
        name if isinstance(name, str) and value.get("store") is not False else "",
        is_broken_off=not is_whole,
    )


def read_response_stream(events: list[dict[str, Any]]) -> ProxiedAnswer:
    """Return the items of a stream of events; not every endpoint repeats them in the last one."""
    items = [event["item"] for event in events if event.get("type") == "response.output_item.done"]
    texts = [str(event.get("delta") or "") for event in events if event.get("type") == "response.output_text.delta"]
    ends = [event for event in events if event.get("type") in {"response.completed", "response.incomplete"}]
    begins = [event for event in events if event.get("type") == "response.created"]
    if not ends and not items and texts:  # it was truncated within the first item
        items = [{"type": "message", "role": "assistant", "content": "".join(texts)}]
    head: dict[str, Any] = (ends or begins or [{}])[-1].get("response") or {}
    return read_response({**head, "output": items or head.get("output"), "status": "completed" if ends else "failed"})

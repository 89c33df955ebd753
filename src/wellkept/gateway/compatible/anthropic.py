"""`/v1/messages`: requests and answers in the form of Anthropic's messages, as Claude Code speaks it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from wellkept.core.errors import KeptError
from wellkept.core.ids import random_hex
from wellkept.core.messages import Message, Part, Role, TextPart, ToolCall
from wellkept.core.text import JSON, dumps
from wellkept.core.tools import ToolSchema
from wellkept.gateway.compatible.clients import (
    ClientRequest,
    InvalidRequest,
    Result,
    check_messages,
    make_content,
    take_bool,
    take_count,
    take_image,
    take_list,
    take_object,
    take_text,
    take_tool,
)
from wellkept.gateway.streams import sse

_SKIPPED = frozenset({"thinking", "redacted_thinking", "server_tool_use", "web_search_tool_result"})


def read_request(body: Mapping[str, Any]) -> ClientRequest:
    """Return what a body asks for; raises InvalidRequest."""
    messages: list[Message] = []
    places: list[int] = []
    for place, raw in enumerate(take_list(body.get("messages"), "messages")):
        field = f"messages.{place}"
        given = take_object(raw, field)
        match given.get("role"):
            case "user":
                messages += _read_user(given.get("content"), f"{field}.content")
            case "assistant":
                messages.append(read_assistant(given.get("content"), f"{field}.content"))
            case "system":
                continue  # a note of the client for the model, for this request only
            case _:
                raise InvalidRequest(f"{field}.role", "must be user or assistant")
        places += [place] * (len(messages) - len(places))
    request = ClientRequest(
        model=take_text(body.get("model", "kept"), "model"),
        system=_read_system(body.get("system")),
        messages=tuple(messages),
        places=tuple(places),
        tools=tuple(_read_tools(body)),
        is_streamed=take_bool(body.get("stream"), "stream"),
        max_output_tokens=take_count(body.get("max_tokens"), "max_tokens"),
    )
    return check_messages(request)


def _read_system(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    blocks = [take_object(raw, "system") for raw in take_list(value, "system")]
    return "\n\n".join(take_text(block.get("text", ""), "system.text") for block in blocks)


def _read_user(value: object, field: str) -> list[Message]:
    """Return the tool results, each as a message, then the person's message."""
    if isinstance(value, str):
        return [Message(Role.USER, value)]
    results: list[Message] = []
    parts: list[Part] = []
    for place, raw in enumerate(take_list(value, field)):
        block = take_object(raw, f"{field}.{place}")
        if block.get("type") == "tool_result":
            call_id = take_text(block.get("tool_use_id"), f"{field}.{place}.tool_use_id")
            results.append(Message(Role.TOOL, _read_result(block.get("content"), field) or " ", tool_call_id=call_id))
        else:
            parts.append(_read_part(block, f"{field}.{place}"))
    content = make_content(parts)
    return [*results, Message(Role.USER, content)] if content else results


def _read_result(value: object, field: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    parts = [_read_part(take_object(raw, field), field) for raw in take_list(value, field)]
    return "\n".join(part.text if isinstance(part, TextPart) else "[image]" for part in parts)


def _read_part(block: Mapping[str, Any], field: str) -> Part:
    match take_text(block.get("type"), f"{field}.type"):
        case "text":
            return TextPart(take_text(block.get("text"), f"{field}.text"))
        case "image":
            source = take_object(block.get("source"), f"{field}.source")
            if source.get("type") == "base64":
                kind, data = (take_text(source.get(name), f"{field}.source.{name}") for name in ("media_type", "data"))
                return take_image(kind, data, f"{field}.source.data")
            return TextPart("[image]")
        case kind:
            return TextPart(f"[{kind[:50]}]")


def read_assistant(value: object, field: str) -> Message:
    """Return an answer of the model: its texts and its calls."""
    if isinstance(value, str):
        return Message(Role.ASSISTANT, value)
    texts: list[str] = []
    calls: list[ToolCall] = []
    for place, raw in enumerate(take_list(value, field)):
        block = take_object(raw, f"{field}.{place}")
        kind = take_text(block.get("type"), f"{field}.{place}.type")
        if kind == "tool_use":
            name, call_id = (take_text(block.get(key), f"{field}.{place}.{key}") for key in ("name", "id"))
            calls.append(ToolCall(call_id, name, dumps(block.get("input") or {})))
        elif kind not in _SKIPPED:
            texts.append(take_text(block.get("text") or "", f"{field}.{place}.text"))
    return Message(Role.ASSISTANT, "\n".join(filter(None, texts)), tuple(calls))


def _read_tools(body: Mapping[str, Any]) -> Iterator[ToolSchema]:
    """Yield the tools that the client runs; those of the vendor's servers have no schema."""
    for place, raw in enumerate(take_list(body.get("tools"), "tools")):
        tool = take_object(raw, f"tools.{place}")
        if "input_schema" in tool:
            yield take_tool(tool.get("name"), tool.get("description"), tool["input_schema"], f"tools.{place}")


class Form:
    """Writes one answer."""

    def __init__(self, request: ClientRequest) -> None:
        self._request = request
        self._id = f"msg_{random_hex(12)}"
        self._has_text = False

    def whole(self, result: Result) -> JSON:
        """Return the answer as one object."""
        content: list[JSON] = [{"type": "text", "text": result.text}] if result.text or not result.calls else []
        content += [_call_json(call) for call in result.calls]
        return {**self._head(content), "stop_reason": _stop(result), "usage": _usage_json(result)}

    def start(self) -> Iterator[str]:
        """Yield the beginning of a stream."""
        empty: JSON = {"input_tokens": 0, "output_tokens": 0}
        head = {**self._head([]), "stop_reason": None, "usage": empty}
        yield sse("message_start", {"type": "message_start", "message": head})

    def text(self, piece: str) -> Iterator[str]:
        """Yield one piece of the text."""
        if not self._has_text:
            self._has_text = True
            block: JSON = {"type": "text", "text": ""}
            yield sse("content_block_start", {"type": "content_block_start", "index": 0, "content_block": block})
        delta: JSON = {"type": "text_delta", "text": piece}
        yield sse("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta})

    def finish(self, result: Result) -> Iterator[str]:
        """Yield the end of a stream."""
        if self._has_text:
            yield sse("content_block_stop", {"type": "content_block_stop", "index": 0})
        for place, call in enumerate(result.calls, int(self._has_text)):
            block = {**_call_json(call), "input": {}}
            yield sse("content_block_start", {"type": "content_block_start", "index": place, "content_block": block})
            delta: JSON = {"type": "input_json_delta", "partial_json": call.arguments}
            yield sse("content_block_delta", {"type": "content_block_delta", "index": place, "delta": delta})
            yield sse("content_block_stop", {"type": "content_block_stop", "index": place})
        end: JSON = {"stop_reason": _stop(result), "stop_sequence": None}
        yield sse("message_delta", {"type": "message_delta", "delta": end, "usage": _usage_json(result)})
        yield sse("message_stop", {"type": "message_stop"})

    def error(self, error: KeptError) -> Iterator[str]:
        """Yield an error that ends a stream."""
        yield sse("error", error_json(error.http_status, str(error)))

    def _head(self, content: list[JSON]) -> dict[str, JSON]:
        return {
            "id": self._id, "type": "message", "role": "assistant", "model": self._request.model, "content": content,
            "stop_sequence": None,
        }  # fmt: skip


def error_json(status: int, message: str, _field: str | None = None) -> dict[str, JSON]:
    """Return an error in the form of this API."""
    kinds = {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
    }
    return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": message}}


def _call_json(call: ToolCall) -> dict[str, JSON]:
    try:
        value = json.loads(call.arguments or "{}")
    except ValueError:
        value = {}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": value}


def _stop(result: Result) -> str:
    return "tool_use" if result.calls else "max_tokens" if result.is_cut else "end_turn"


def _usage_json(result: Result) -> JSON:
    used = result.usage
    return {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cache_read_input_tokens": used.cache_read_tokens,
        "cache_creation_input_tokens": used.cache_write_tokens,
    }

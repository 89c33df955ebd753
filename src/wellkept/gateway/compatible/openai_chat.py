"""`/v1/chat/completions`: requests and answers in the form of OpenAI's chat completions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from wellkept.core.errors import KeptError
from wellkept.core.ids import random_hex
from wellkept.core.messages import Message, Part, Role, TextPart, ToolCall
from wellkept.core.text import JSON
from wellkept.core.tools import ToolSchema
from wellkept.gateway.compatible.clients import (
    ClientRequest,
    InvalidRequest,
    Result,
    check_messages,
    make_content,
    read_image,
    take_bool,
    take_count,
    take_list,
    take_object,
    take_text,
    take_tool,
)
from wellkept.gateway.streams import sse

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.TOOL, "function": Role.TOOL}


def read_request(body: Mapping[str, Any]) -> ClientRequest:
    """Return what a body asks for; raises InvalidRequest."""
    system: list[str] = []
    messages: list[Message] = []
    places: list[int] = []
    for place, raw in enumerate(take_list(body.get("messages"), "messages")):
        field = f"messages.{place}"
        given = take_object(raw, field)
        role = take_text(given.get("role"), f"{field}.role")
        content = read_content(given.get("content"), f"{field}.content")
        if role in {"system", "developer"}:
            system.append(content if isinstance(content, str) else Message(Role.USER, content).text)
        elif role in _ROLES:
            messages.append(read_message(_ROLES[role], content, given, field))
            places.append(place)
        else:
            raise InvalidRequest(f"{field}.role", "must be system, developer, user, assistant or tool")
    options = body.get("stream_options") or {}
    request = ClientRequest(
        model=take_text(body.get("model", "kept"), "model"),
        system="\n\n".join(filter(None, system)),
        messages=tuple(messages),
        places=tuple(places),
        tools=tuple(_read_tool(raw, place) for place, raw in enumerate(take_list(body.get("tools"), "tools"))),
        is_streamed=take_bool(body.get("stream"), "stream"),
        wants_usage=take_bool(take_object(options, "stream_options").get("include_usage"), "stream_options"),
        max_output_tokens=take_count(
            body.get("max_completion_tokens") or body.get("max_tokens"), "max_completion_tokens"
        ),
    )
    return check_messages(request)


def read_message(role: Role, content: str | tuple[Part, ...], given: Mapping[str, Any], field: str) -> Message:
    """Return a message with its calls."""
    calls = []
    for place, raw in enumerate(take_list(given.get("tool_calls"), f"{field}.tool_calls")):
        inner = f"{field}.tool_calls.{place}"
        call = take_object(raw, inner)
        function = take_object(call.get("function"), f"{inner}.function")
        calls.append(
            ToolCall(
                take_text(call.get("id"), f"{inner}.id"),
                take_text(function.get("name"), f"{inner}.function.name"),
                take_text(function.get("arguments", "{}"), f"{inner}.function.arguments"),
            )
        )
    call_id = given.get("tool_call_id")
    name = None if role is not Role.TOOL or call_id is None else take_text(call_id, f"{field}.tool_call_id")
    return Message(role, content, tuple(calls) if role is Role.ASSISTANT else (), tool_call_id=name)


def read_content(value: object, field: str) -> str | tuple[Part, ...]:
    """Return the content of a message: a text, or parts."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    parts: list[Part] = []
    for place, raw in enumerate(take_list(value, field)):
        part = take_object(raw, f"{field}.{place}")
        match take_text(part.get("type"), f"{field}.{place}.type"):
            case "text" | "input_text" | "output_text" | "refusal":
                parts.append(
                    TextPart(take_text(part.get("text") or part.get("refusal") or "", f"{field}.{place}.text"))
                )
            case "image_url":
                inner = f"{field}.{place}.image_url"
                image = take_object(part.get("image_url"), inner)
                parts.append(read_image(take_text(image.get("url"), f"{inner}.url"), f"{inner}.url"))
            case kind:
                parts.append(TextPart(f"[{kind[:50]}]"))
    return make_content(parts)


def _read_tool(raw: object, place: int) -> ToolSchema:
    field = f"tools.{place}"
    function = take_object(take_object(raw, field).get("function"), f"{field}.function")
    return take_tool(function.get("name"), function.get("description"), function.get("parameters"), field)


class Form:
    """Writes one answer."""

    def __init__(self, request: ClientRequest) -> None:
        self._request = request
        self._id = f"chatcmpl-{random_hex(12)}"
        self._created = int(time.time())

    def whole(self, result: Result) -> JSON:
        """Return the answer as one object."""
        message: dict[str, JSON] = {"role": "assistant", "content": result.text or (None if result.calls else "")}
        if result.calls:
            message["tool_calls"] = [_call_json(call) for call in result.calls]
        return {
            **self._head("chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": _finish(result), "logprobs": None}],
            "usage": _usage_json(result),
        }

    def start(self) -> Iterator[str]:
        """Yield the beginning of a stream."""
        yield self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: str) -> Iterator[str]:
        """Yield one piece of the text."""
        yield self._chunk({"content": piece})

    def finish(self, result: Result) -> Iterator[str]:
        """Yield the end of a stream."""
        for place, call in enumerate(result.calls):
            yield self._chunk({"tool_calls": [{"index": place, **_call_json(call)}]})
        yield self._chunk({}, finish=_finish(result))
        if self._request.wants_usage:
            yield sse(None, {**self._head("chat.completion.chunk"), "choices": [], "usage": _usage_json(result)})
        yield "data: [DONE]\n\n"

    def error(self, error: KeptError) -> Iterator[str]:
        """Yield an error that ends a stream."""
        yield sse(None, error_json(error.http_status, str(error)))
        yield "data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, JSON], *, finish: str | None = None) -> str:
        choice: JSON = {"index": 0, "delta": delta, "finish_reason": finish}
        return sse(None, {**self._head("chat.completion.chunk"), "choices": [choice]})

    def _head(self, kind: str) -> dict[str, JSON]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._request.model}


def error_json(status: int, message: str, field: str | None = None) -> dict[str, JSON]:
    """Return an error in the form of this API."""
    kinds = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
             404: "not_found_error", 413: "invalid_request_error", 429: "rate_limit_error"}  # fmt: skip
    return {"error": {"message": message, "type": kinds.get(status, "server_error"), "param": field, "code": None}}


def _call_json(call: ToolCall) -> dict[str, JSON]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _finish(result: Result) -> str:
    return "tool_calls" if result.calls else "length" if result.is_cut else "stop"


def _usage_json(result: Result) -> JSON:
    used = result.usage
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.prompt_tokens + used.output_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cache_read_tokens},
    }

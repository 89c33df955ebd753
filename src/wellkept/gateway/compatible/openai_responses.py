"""`/v1/responses`: requests and answers in the form of OpenAI's responses, as Codex speaks it."""

from __future__ import annotations

import time
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
    read_image,
    take_bool,
    take_count,
    take_list,
    take_object,
    take_text,
    take_tool,
)

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT}
_SKIPPED = frozenset({"reasoning", "item_reference", "web_search_call", "local_shell_call", "compaction"})
"""Items without a message; the model's reasoning is stored with its answers."""


def read_request(body: Mapping[str, Any], *, skips_unknown: bool = False) -> ClientRequest:
    """Return what a body asks for; raises InvalidRequest. The proxy skips items that are unknown here."""
    system: list[str] = []
    if body.get("instructions") is not None:
        system.append(take_text(body["instructions"], "instructions"))
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else take_list(given, "input")
    messages: list[Message] = []
    places: list[int] = []
    for place, raw in enumerate(items):
        message = read_item(take_object(raw, f"input.{place}"), f"input.{place}", system, skips_unknown=skips_unknown)
        if message is not None and add_message(messages, message):
            places.append(place)
    request = ClientRequest(
        model=take_text(body.get("model", "kept"), "model"),
        system="\n\n".join(filter(None, system)),
        messages=tuple(messages),
        places=tuple(places),
        tools=tuple(_read_tools(body)),
        is_streamed=take_bool(body.get("stream"), "stream"),
        max_output_tokens=take_count(body.get("max_output_tokens"), "max_output_tokens"),
    )
    return check_messages(request, "input")


def read_item(item: Mapping[str, Any], field: str, system: list[str], *, skips_unknown: bool = False) -> Message | None:
    """Return the message of an item; None if it has none, or belongs to `system`."""
    match take_text(item.get("type", "message"), f"{field}.type"):
        case "message":
            role = take_text(item.get("role"), f"{field}.role")
            content = _read_content(item.get("content"), f"{field}.content")
            if role in {"system", "developer"}:
                system.append(Message(Role.USER, content).text)
                return None
            if role in _ROLES:
                return Message(_ROLES[role], content)
            raise InvalidRequest(f"{field}.role", "must be system, developer, user or assistant")
        case "function_call" | "custom_tool_call":
            arguments = item.get("arguments") or item.get("input") or "{}"
            call = ToolCall(
                take_text(item.get("call_id"), f"{field}.call_id"),
                take_text(item.get("name"), f"{field}.name"),
                take_text(arguments, f"{field}.arguments"),
            )
            return Message(Role.ASSISTANT, "", (call,))
        case "function_call_output" | "custom_tool_call_output":
            output = item.get("output")
            text = output if isinstance(output, str) else Message(Role.USER, _read_content(output, field)).text
            call_id = take_text(item.get("call_id"), f"{field}.call_id")
            return Message(Role.TOOL, text or " ", tool_call_id=call_id)
        case kind if skips_unknown or kind in _SKIPPED:
            return None
        case kind:
            raise InvalidRequest(f"{field}.type", f"{kind[:50]!r} is not known here")


def add_message(messages: list[Message], message: Message) -> bool:
    """Add a message; a call becomes part of the answer before it, and False is returned."""
    last = messages[-1] if messages else None
    if last is not None and message.tool_calls and last.role is Role.ASSISTANT:
        messages[-1] = Message(Role.ASSISTANT, last.content, (*last.tool_calls, *message.tool_calls))
        return False
    messages.append(message)
    return True


def _read_content(value: object, field: str) -> str | tuple[Part, ...]:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    parts: list[Part] = []
    for place, raw in enumerate(take_list(value, field)):
        part = take_object(raw, f"{field}.{place}")
        if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
            parts.append(read_image(part["image_url"], f"{field}.{place}.image_url"))
        else:
            parts.append(TextPart(take_text(part.get("text") or part.get("refusal") or "", f"{field}.{place}.text")))
    return make_content(parts)


def _read_tools(body: Mapping[str, Any]) -> Iterator[ToolSchema]:
    """Yield the functions; tools that the vendor's servers run are left out."""
    for place, raw in enumerate(take_list(body.get("tools"), "tools")):
        tool = take_object(raw, f"tools.{place}")
        if tool.get("type") == "function":
            yield take_tool(tool.get("name"), tool.get("description"), tool.get("parameters"), f"tools.{place}")


class Form:
    """Writes one answer."""

    def __init__(self, request: ClientRequest) -> None:
        self._request = request
        self._id = f"resp_{random_hex(16)}"
        self._message_id = f"msg_{random_hex(16)}"
        self._created = int(time.time())
        self._number = 0
        self._text = ""

    def whole(self, result: Result) -> JSON:
        """Return the answer as one object."""
        return self._response("completed", self._items(result), result)

    def start(self) -> Iterator[str]:
        """Yield the beginning of a stream."""
        yield self._event("response.created", {"response": self._response("in_progress", [])})
        yield self._event("response.in_progress", {"response": self._response("in_progress", [])})

    def text(self, piece: str) -> Iterator[str]:
        """Yield one piece of the text."""
        if not self._text:
            item: JSON = {
                "type": "message", "id": self._message_id, "status": "in_progress", "role": "assistant", "content": [],
            }  # fmt: skip
            yield self._event("response.output_item.added", {"output_index": 0, "item": item})
            part: JSON = {"type": "output_text", "text": "", "annotations": []}
            yield self._event("response.content_part.added", {**self._place(), "part": part})
        self._text += piece
        yield self._event("response.output_text.delta", {**self._place(), "delta": piece})

    def finish(self, result: Result) -> Iterator[str]:
        """Yield the end of a stream."""
        seen = Result(self._text, result.calls, result.usage, is_cut=result.is_cut)
        if self._text:
            yield self._event("response.output_text.done", {**self._place(), "text": self._text})
            part: JSON = {"type": "output_text", "text": self._text, "annotations": []}
            yield self._event("response.content_part.done", {**self._place(), "part": part})
        for place, item in enumerate(self._items(seen)):
            if place or not self._text:
                yield self._event("response.output_item.added", {"output_index": place, "item": item})
            yield self._event("response.output_item.done", {"output_index": place, "item": item})
        yield self._event("response.completed", {"response": self._response("completed", self._items(seen), seen)})

    def error(self, error: KeptError) -> Iterator[str]:
        """Yield an error that ends a stream."""
        code: JSON = {"code": "server_error", "message": str(error)}
        failed = {**self._response("failed", []), "error": code}
        yield self._event("response.failed", {"response": failed})

    def _items(self, result: Result) -> list[JSON]:
        items: list[JSON] = []
        if result.text or not result.calls:
            part: JSON = {"type": "output_text", "text": result.text, "annotations": []}
            items.append(
                {
                    "type": "message",
                    "id": self._message_id,
                    "status": "completed",
                    "role": "assistant",
                    "content": [part],
                }
            )
        items += [
            {
                "type": "function_call",
                "id": f"fc_{call.id}",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
                "status": "completed",
            }
            for call in result.calls
        ]
        return items

    def _response(self, status: str, output: list[JSON], result: Result | None = None) -> dict[str, JSON]:
        value: dict[str, JSON] = {
            "id": self._id, "object": "response", "created_at": self._created, "status": status,
            "model": self._request.model, "output": output, "error": None, "incomplete_details": None,
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": None,
        }  # fmt: skip
        if result is not None:
            used = result.usage
            value["usage"] = {
                "input_tokens": used.prompt_tokens,
                "input_tokens_details": {"cached_tokens": used.cache_read_tokens},
                "output_tokens": used.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": used.prompt_tokens + used.output_tokens,
            }
        return value

    def _place(self) -> dict[str, JSON]:
        return {"item_id": self._message_id, "output_index": 0, "content_index": 0}

    def _event(self, name: str, value: Mapping[str, JSON]) -> str:
        number, self._number = self._number, self._number + 1
        return f"event: {name}\ndata: {dumps({'type': name, 'sequence_number': number, **value})}\n\n"

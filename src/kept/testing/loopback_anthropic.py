"""A loopback server that speaks Anthropic's messages API."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kept.llm.scripted import Says, pieces
from kept.testing.loopback import API_KEY, Loopback, Received, Script, Status

SIGNATURE = "c2lnbmVkIGJ5IHRoZSBsb29wYmFjaw=="
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STOPS = {"end": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}
_UNMARKABLE = {"thinking", "redacted_thinking"}


class LoopbackAnthropic(Loopback):
    """The server, with the variables that point a program at it."""

    def __init__(self, script: Script = (), *, models: tuple[str, ...] = ("loopback-model",)) -> None:
        super().__init__(AnthropicDialect(), script, models=models)

    @property
    def base_url(self) -> str:
        """Return the address as `ANTHROPIC_BASE_URL` takes it."""
        return self.url

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that point a program at this server."""
        return {"ANTHROPIC_BASE_URL": self.base_url, "ANTHROPIC_API_KEY": API_KEY}


class AnthropicDialect:
    """The messages API on the wire."""

    path = "/v1/messages"
    models_path = "/v1/models"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Return the key, from either header that the API takes."""
        return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ") or None

    def complaint(self, received: Received) -> str | None:
        """Return what the API refuses: missing fields, blank text, misplaced markers, unpaired calls."""
        body = received.body
        if "anthropic-version" not in received.headers:
            return "anthropic-version: header is required"
        if "max_tokens" not in body:
            return "max_tokens: Field required"
        messages = body.get("messages")
        if not messages or messages[0]["role"] != "user":
            return "messages: first message must use the user role"
        return _wrong_blocks(body) or _wrong_pairs(messages)

    def events(self, says: Says, *, model: str) -> list[bytes]:
        """Return the whole stream, from message_start to message_stop."""
        return [_event(event) for event in _events(says, model)]

    def failing_event(self, kind: str) -> bytes:
        """Return an error event."""
        return _event({"type": "error", "error": {"type": kind, "message": "Overloaded"}})

    def error(self, status: Status) -> bytes:
        """Return the error object."""
        kind = status.kind or _KINDS.get(status.code, "api_error")
        error = {"type": kind, "message": status.message or f"Loopback error {status.code}"}
        return json.dumps({"type": "error", "error": error, "request_id": "req_loopback"}).encode()

    def overflow(self) -> Status:
        """Return the refusal of an oversized request."""
        return Status(400, "prompt is too long: 208310 tokens > 200000 maximum")

    def instantly(self, path: str, body: Mapping[str, Any]) -> bytes | None:
        """Return None: every path here needs a script."""
        del path, body
        return None

    def models(self, names: Iterable[str]) -> bytes:
        """Return the list of models."""
        listed = [{"type": "model", "id": name, "display_name": name, "created_at": ""} for name in names]
        return json.dumps({"data": listed, "has_more": False, "first_id": None, "last_id": None}).encode()


def _blocks(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for content in (body.get("system") or [], *(message["content"] for message in body["messages"])):
        yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _wrong_blocks(body: Mapping[str, Any]) -> str | None:
    blocks = [*_blocks(body), *(body.get("tools") or ())]
    marked = [block for block in blocks if "cache_control" in block]
    if len(marked) > 4:
        return f"A maximum of 4 blocks with cache_control may be provided. Found {len(marked)}."
    if any(block.get("type") in _UNMARKABLE for block in marked):
        return "thinking blocks cannot carry cache_control"
    if any(block.get("type") == "text" and not block["text"].strip() for block in blocks):
        return "messages: text content blocks must contain non-whitespace text"
    if any(block.get("type") == "tool_use" and not isinstance(block["input"], dict) for block in blocks):
        return "tool_use.input: Input should be a valid dictionary"
    return None


def _wrong_pairs(messages: list[dict[str, Any]]) -> str | None:
    for place, message in enumerate(messages):
        asked = _ids(message, "tool_use", "id")
        answered = _ids(messages[place + 1], "tool_result", "tool_use_id") if place + 1 < len(messages) else set()
        if missing := asked - answered:
            return (
                f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately "
                f"after: {', '.join(sorted(missing))}. Each `tool_use` block must have a corresponding "
                "`tool_result` block in the next message."
            )
        if unexpected := answered - asked:
            return f"messages.{place + 1}: unexpected `tool_use_id` found: {', '.join(sorted(unexpected))}"
    return None


def _ids(message: Mapping[str, Any], kind: str, field: str) -> set[str]:
    content = message["content"]
    return set() if isinstance(content, str) else {block[field] for block in content if block["type"] == kind}


def _events(says: Says, model: str) -> Iterator[dict[str, Any]]:
    usage = {
        "input_tokens": says.usage.input_tokens,
        "cache_creation_input_tokens": says.usage.cache_write_tokens,
        "cache_read_input_tokens": says.usage.cache_read_tokens,
        "output_tokens": 1,
    }
    opening = {"id": "msg_loopback", "type": "message", "role": "assistant", "model": model, "content": []}
    yield {"type": "message_start", "message": {**opening, "stop_reason": None, "usage": usage}}
    yield {"type": "ping"}
    for index, (block, deltas) in enumerate(_content(says)):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending = {"stop_reason": _STOPS[says.stops], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": says.usage.output_tokens}}
    yield {"type": "message_stop"}


def _content(says: Says) -> Iterator[tuple[dict[str, Any], Iterable[dict[str, Any]]]]:
    length = says.piece_length
    if says.thinking:
        thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(says.thinking, length)]
        signature = {"type": "signature_delta", "signature": SIGNATURE}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signature]
    if says.text:
        yield (
            {"type": "text", "text": ""},
            ({"type": "text_delta", "text": piece} for piece in pieces(says.text, length)),
        )
    for call in says.tool_calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        text = "" if call.arguments == "{}" else call.arguments
        yield (
            block,
            ({"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(text, length))),
        )


def _event(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()

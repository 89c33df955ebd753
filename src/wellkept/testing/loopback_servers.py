"""Loopback servers for OpenAI's chat completions and Anthropic's messages API."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from wellkept.core.messages import Usage
from wellkept.llm.scripted import Says, pieces
from wellkept.testing.loopback import API_KEY, Loopback, Received, Script, Status

_OPENAI_KINDS = {400: "invalid_request_error", 401: "invalid_request_error", 404: "invalid_request_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
_FINISHES = {"end": "stop", "tool_calls": "tool_calls", "length": "length", "refusal": "content_filter"}


class LoopbackOpenAI(Loopback):
    """The server, with the variables that point a program at it."""

    def __init__(self, script: Script = (), *, models: tuple[str, ...] = ("loopback-model",)) -> None:
        super().__init__(OpenAIDialect(), script, models=models)

    @property
    def base_url(self) -> str:
        """Return the address as `OPENAI_BASE_URL` takes it."""
        return f"{self.url}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that point a program at this server."""
        return {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": API_KEY}


class OpenAIDialect:
    """Chat completions on the wire."""

    path = "/v1/chat/completions"
    models_path = "/v1/models"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Return the bearer token."""
        return headers.get("authorization", "").removeprefix("Bearer ") or None

    def complaint(self, received: Received) -> str | None:
        """Return the API's error for unpaired calls and results, or arguments that are not text."""
        waiting: list[str] = []
        for place, message in enumerate(received.body.get("messages") or []):
            if message["role"] == "tool":
                if message.get("tool_call_id") not in waiting:
                    return (
                        "Invalid parameter: messages with role 'tool' must be a response to a preceding "
                        f"message with 'tool_calls' (messages.[{place}].role)."
                    )
                waiting.remove(message["tool_call_id"])
                continue
            if waiting:
                return _unanswered_error(waiting)
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
            if any(not isinstance(call["function"]["arguments"], str) for call in message.get("tool_calls") or ()):
                return f"Invalid type for 'messages[{place}].tool_calls[0].function.arguments'."
        return _unanswered_error(waiting) if waiting else None

    def events(self, says: Says, *, model: str) -> list[bytes]:
        """Return the chunks, the usage chunk and the end mark."""
        deltas = [{"role": "assistant", "content": ""}, *_deltas(says)]
        chunks = [_chunk(model, [{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
        chunks.append(_chunk(model, [{"index": 0, "delta": {}, "finish_reason": _FINISHES[says.stops]}]))
        chunks.append({**_chunk(model, []), "usage": _usage(says.usage)})
        return [*(_openai_event(chunk) for chunk in chunks), b"data: [DONE]\n\n"]

    def failing_event(self, kind: str) -> bytes:
        """Return an error object in place of a chunk."""
        return _openai_event({"error": {"message": "The server had an error", "type": kind, "code": None}})

    def error(self, status: Status) -> bytes:
        """Return the error object."""
        error = {
            "message": status.message or f"Loopback error {status.code}",
            "type": _OPENAI_KINDS.get(status.code, "server_error" if status.code >= 500 else "requests"),
            "param": None,
            "code": status.kind or _CODES.get(status.code),
        }
        return json.dumps({"error": error}).encode()

    def overflow(self) -> Status:
        """Return the refusal of an oversized request."""
        words = "This model's maximum context length is 128000 tokens, your messages resulted in 130000."
        return Status(400, words, kind="context_length_exceeded")

    def instantly(self, path: str, body: Mapping[str, Any]) -> bytes | None:
        """Return embeddings, similar for texts with the same letters, in reverse order: clients must use `index`."""
        if path != "/v1/embeddings":
            return None
        rows = [
            {"object": "embedding", "index": index, "embedding": [text.count(letter) for letter in "etaoinsh"]}
            for index, text in enumerate(body["input"])
        ]
        usage = {"prompt_tokens": len(rows), "total_tokens": len(rows)}
        return json.dumps({"object": "list", "data": rows[::-1], "model": body["model"], "usage": usage}).encode()

    def models(self, names: Iterable[str]) -> bytes:
        """Return the list of models."""
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "loopback"} for name in names]
        return json.dumps({"object": "list", "data": listed}).encode()


def _unanswered_error(ids: list[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(ids)}"
    )


def _deltas(says: Says) -> Iterator[dict[str, Any]]:
    for piece in pieces(says.thinking, says.piece_length):
        yield {"reasoning_content": piece}
    for piece in pieces(says.text, says.piece_length):
        yield {"content": piece}
    for index, call in enumerate(says.tool_calls):
        opening = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": opening}]}
        for piece in pieces(call.arguments, says.piece_length):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _chunk(model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-loopback",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": model,
        "choices": choices,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
    }


def _openai_event(chunk: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


SIGNATURE = "c2lnbmVkIGJ5IHRoZSBsb29wYmFjaw=="
_ANTHROPIC_KINDS = {
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
        """Return the API's error for missing fields, blank text, misplaced markers or unpaired calls."""
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
        return [_anthropic_event(event) for event in _events(says, model)]

    def failing_event(self, kind: str) -> bytes:
        """Return an error event."""
        return _anthropic_event({"type": "error", "error": {"type": kind, "message": "Overloaded"}})

    def error(self, status: Status) -> bytes:
        """Return the error object."""
        kind = status.kind or _ANTHROPIC_KINDS.get(status.code, "api_error")
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


def _anthropic_event(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()

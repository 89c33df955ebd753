"""A loopback server that speaks OpenAI's chat completions."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kept.core.messages import Usage
from kept.llm.scripted import Says, pieces
from kept.testing.loopback import API_KEY, Loopback, Received, Script, Status

_KINDS = {400: "invalid_request_error", 401: "invalid_request_error", 404: "invalid_request_error"}
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
        """Return what the API refuses: unpaired calls and results, arguments that are no text."""
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
                return _unanswered(waiting)
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
            if any(not isinstance(call["function"]["arguments"], str) for call in message.get("tool_calls") or ()):
                return f"Invalid type for 'messages[{place}].tool_calls[0].function.arguments'."
        return _unanswered(waiting) if waiting else None

    def events(self, says: Says, *, model: str) -> list[bytes]:
        """Return the chunks, the usage chunk and the end mark."""
        deltas = [{"role": "assistant", "content": ""}, *_deltas(says)]
        chunks = [_chunk(model, [{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
        chunks.append(_chunk(model, [{"index": 0, "delta": {}, "finish_reason": _FINISHES[says.stops]}]))
        chunks.append({**_chunk(model, []), "usage": _usage(says.usage)})
        return [*(_event(chunk) for chunk in chunks), b"data: [DONE]\n\n"]

    def failing_event(self, kind: str) -> bytes:
        """Return an error object in place of a chunk."""
        return _event({"error": {"message": "The server had an error", "type": kind, "code": None}})

    def error(self, status: Status) -> bytes:
        """Return the error object."""
        error = {
            "message": status.message or f"Loopback error {status.code}",
            "type": _KINDS.get(status.code, "server_error" if status.code >= 500 else "requests"),
            "param": None,
            "code": status.kind or _CODES.get(status.code),
        }
        return json.dumps({"error": error}).encode()

    def overflow(self) -> Status:
        """Return the refusal of an oversized request."""
        words = "This model's maximum context length is 128000 tokens, your messages resulted in 130000."
        return Status(400, words, kind="context_length_exceeded")

    def instantly(self, path: str, body: Mapping[str, Any]) -> bytes | None:
        """Return embeddings: texts with the same letters get near vectors. The last row comes first."""
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


def _unanswered(ids: list[str]) -> str:
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


def _event(chunk: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()

"""Loopback models for other agents: OpenAI's responses API, and servers that accept whatever a client sends."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from wellkept.llm.scripted import Says, pieces
from wellkept.testing.loopback import Dialect, Loopback, Received, Script, Status
from wellkept.testing.loopback_servers import AnthropicDialect, OpenAIDialect


class LenientAnthropic(AnthropicDialect):
    """The messages API for clients that send fields of their own, and count tokens."""

    def complaint(self, received: Received) -> str | None:
        """Return None: the request of a real client is right."""
        del received
        return None

    def instantly(self, path: str, body: Mapping[str, Any]) -> bytes | None:
        """Return a count of tokens."""
        if not path.endswith("/count_tokens"):
            return None
        return json.dumps({"input_tokens": len(json.dumps(body)) // 4}).encode()


class LenientOpenAI(OpenAIDialect):
    """Chat completions for clients that send fields of their own."""

    def complaint(self, received: Received) -> str | None:
        """Return None: the request of a real client is right."""
        del received
        return None


class ResponsesDialect(OpenAIDialect):
    """The responses API on the wire: the events that a coding agent needs."""

    path = "/v1/responses"

    def complaint(self, received: Received) -> str | None:
        """Return None: the request of a real client is right."""
        del received
        return None

    def events(self, says: Says, *, model: str) -> list[bytes]:
        """Return the whole stream, from response.created to response.completed."""
        return [
            f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
            for event in _response_events(says, model)
        ]

    def failing_event(self, kind: str) -> bytes:
        """Return a failed response."""
        error = {"code": kind, "message": "The server had an error"}
        event = {"type": "response.failed", "response": {"id": "resp_loopback", "status": "failed", "error": error}}
        return f"event: response.failed\ndata: {json.dumps(event)}\n\n".encode()

    def overflow(self) -> Status:
        """Return the refusal of an oversized request."""
        return Status(400, "Your input exceeds the context window of this model.", kind="context_length_exceeded")


def _response_events(says: Says, model: str) -> Iterator[dict[str, Any]]:
    response = {"id": "resp_loopback", "object": "response", "model": model, "output": []}
    yield {"type": "response.created", "response": {**response, "status": "in_progress"}}
    for index, item in enumerate(_items(says)):
        empty = {**item, "content": []} if item["type"] == "message" else {**item, "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": index, "item": empty}
        if item["type"] == "message":
            for piece in pieces(says.text, says.piece_length):
                where = {"item_id": item["id"], "output_index": index, "content_index": 0}
                yield {"type": "response.output_text.delta", **where, "delta": piece}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    usage = {
        "input_tokens": says.usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": says.usage.cache_read_tokens},
        "output_tokens": says.usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": says.usage.prompt_tokens + says.usage.output_tokens,
    }
    yield {"type": "response.completed", "response": {**response, "status": "completed", "usage": usage}}


def _items(says: Says) -> Iterator[dict[str, Any]]:
    if says.text:
        content = [{"type": "output_text", "text": says.text, "annotations": []}]
        yield {"type": "message", "id": "msg_loopback", "role": "assistant", "status": "completed", "content": content}
    for call in says.tool_calls:
        names = {"name": call.name, "arguments": call.arguments, "call_id": call.id}
        yield {"type": "function_call", "id": f"fc_{call.id}", "status": "completed", **names}


def open_agent_server(kind: str, script: Script) -> Loopback:
    """Return a server of the API `anthropic`, `responses` or `chat` that accepts any key."""
    dialects: dict[str, Dialect] = {
        "anthropic": LenientAnthropic(),
        "responses": ResponsesDialect(),
        "chat": LenientOpenAI(),
    }
    server = Loopback(dialects[kind], script)
    server.api_key = None
    return server

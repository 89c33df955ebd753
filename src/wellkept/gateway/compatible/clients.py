"""A client's request, independent of its API: messages, tools, the conversation, or a background request."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import UsageError
from wellkept.core.messages import ImagePart, Message, Part, Role, TextPart
from wellkept.core.text import dumps
from wellkept.core.tools import ToolSchema
from wellkept.formats.codex import CODEX_BACKGROUND

MODELS = ("kept", "kept/plain", "kept/incognito")
SESSION_HEADERS = (
    "x-openwebui-chat-id",
    "x-librechat-conversation-id",
    "x-claude-code-session-id",
    "x-session-id",
    "x-opencode-session-id",
    "session-id",
)
"""Headers in which clients name their conversation. Sub-agents share the name, so it is not sufficient alone."""
_MOST_KEY_CHARACTERS = 300
_TASK_PREFIX = "### Task:"
_TITLE_PROMPTS = ("You are a title generator", "You are naming a coding session")
_COMPACTION_PROMPT = "CRITICAL: Respond with TEXT ONLY"


class InvalidRequest(UsageError):
    """A field of a client's request is wrong; `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}", "correct the request")
        self.field = field


class ClientRequest(Struct, frozen=True):
    """A request for an answer."""

    model: str
    system: str
    messages: tuple[Message, ...]
    places: tuple[int, ...] = ()
    """The position of each message in the list that the client sent."""
    tools: tuple[ToolSchema, ...] = ()
    is_streamed: bool = False
    wants_usage: bool = False
    max_output_tokens: int | None = None

    @property
    def kind(self) -> str:
        """Return which of our models was requested; any other name selects the agent."""
        return self.model if self.model in MODELS else MODELS[0]

    def input_text(self) -> str:
        """Return the text of the last message."""
        return self.messages[-1].text if self.messages else ""


def find_key(request: ClientRequest, headers: Mapping[str, str]) -> str:
    """Return the key of the conversation: the client's own name for it, or the beginning of the conversation.

    `X-Kept-Session` is used as it is. Other names are shared by a client's sub-agents, so the first message is added.
    """
    explicit = headers.get("x-kept-session", "")
    if explicit:
        return f"client:{explicit[:_MOST_KEY_CHARACTERS]}"
    first = next((message.text for message in request.messages if message.role is Role.USER), "")
    named = next((f"{name}={headers[name]}" for name in SESSION_HEADERS if headers.get(name)), "")
    begins = [named[:_MOST_KEY_CHARACTERS], request.model, "" if named else request.system, first]
    return f"client:{hashlib.sha256(dumps(begins).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def is_background_call(request: ClientRequest, headers: Mapping[str, str]) -> bool:
    """Whether a request is not part of the conversation: a title, tags, the client's own summary."""
    if headers.get("x-openwebui-task", "").strip():
        return True
    if _is_codex_background(headers.get("x-codex-turn-metadata") or "{}"):
        return True
    if request.input_text().lstrip().startswith(_COMPACTION_PROMPT):
        return True
    if request.tools:
        return False
    if any(prompt in request.system[:2_000] for prompt in _TITLE_PROMPTS):
        return True
    is_task = len(request.messages) == 1 and request.input_text().lstrip().startswith(_TASK_PREFIX)
    return is_task and not request.is_streamed


def _is_codex_background(metadata: str) -> bool:
    """Whether Codex says that a request is no turn, or that of a thread of its own."""
    try:
        value = json.loads(metadata)
    except ValueError:
        return False
    if not isinstance(value, dict):
        return False
    kind, source = value.get("request_kind"), value.get("thread_source")
    return (isinstance(kind, str) and kind != "turn") or source in CODEX_BACKGROUND


# reading of fields, shared by the APIs


def take_text(value: object, field: str) -> str:
    """Return a text field."""
    if not isinstance(value, str):
        raise InvalidRequest(field, "must be a string")
    return value


def take_list(value: object, field: str) -> list[Any]:
    """Return a list field; None is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequest(field, "must be a list")
    return value


def take_object(value: object, field: str) -> dict[str, Any]:
    """Return an object field."""
    if not isinstance(value, dict):
        raise InvalidRequest(field, "must be an object")
    return value


def take_bool(value: object, field: str) -> bool:
    """Return a boolean field; None is false."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidRequest(field, "must be true or false")


def take_count(value: object, field: str) -> int | None:
    """Return a positive whole number, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest(field, "must be a positive whole number")
    return value


def take_tool(name: object, description: object, parameters: object, field: str) -> ToolSchema:
    """Return a tool that the client runs."""
    schema = take_object({"type": "object"} if parameters is None else parameters, f"{field}.parameters")
    text = "" if description is None else take_text(description, f"{field}.description")
    return ToolSchema(take_text(name, f"{field}.name"), text, schema, "mcp")


def read_image(url: str, field: str) -> Part:
    """Return an inline image; an image that would have to be fetched becomes a placeholder."""
    head, _, data = url.partition(",")
    if url.startswith("data:image/") and ";base64" in head:
        return take_image(head.removeprefix("data:").partition(";")[0], data, field)
    return TextPart("[image]")


def take_image(media_type: str, data: str, field: str) -> ImagePart:
    """Return an inline image; raises InvalidRequest for data that is not base64."""
    try:
        found = base64.b64decode(data, validate=True)
    except ValueError:
        found = b""
    if not found or not media_type.startswith("image/"):
        raise InvalidRequest(field, "must be an image, encoded as base64")
    return ImagePart(media_type, data)


def make_content(parts: Sequence[Part]) -> str | tuple[Part, ...]:
    """Return parts as the content of a message: plain text if there is nothing else."""
    if all(isinstance(part, TextPart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(parts)


def check_messages(request: ClientRequest, field: str = "messages") -> ClientRequest:
    """Return a request without empty messages; refuse one that does not end with something to answer."""
    said = [place for place, one in enumerate(request.messages) if one.content or one.tool_calls]
    messages = tuple(request.messages[place] for place in said)
    if not messages:
        raise InvalidRequest(field, "must contain at least one message")
    if messages[-1].role not in {Role.USER, Role.TOOL}:
        raise InvalidRequest(field, "must end with a user message or tool results")
    return replace(request, messages=messages, places=tuple(request.places[place] for place in said))

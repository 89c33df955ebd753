"""Content that crosses the boundary: cleaned messages to providers, and recalled text and tools from them."""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from wellkept.core.messages import Message
from wellkept.core.settings import Toolset
from wellkept.core.text import JSON, dumps
from wellkept.core.tools import ToolSchema
from wellkept.providers.base import Messages
from wellkept.security.fence import sanitize_context
from wellkept.security.secrets import redact, redact_json

log = logging.getLogger(__name__)

RECALL_TOOL = "memory_recall"
RECALL_SCHEMA = ToolSchema(
    RECALL_TOOL,
    "Search every connected long-term memory at once for what is known about something.",
    {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "What to look for, in plain words."}},
        "required": ["query"],
    },
    "memory",
)
MAX_ANSWER_CHARS = 100_000
MAX_CHARS = 4_000_000
"""The limit of one write; of a longer conversation only the end is sent."""

_TOOL_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")
_SEARCHES = re.compile(r"(^|_)(search|recall|query)$")
_LIST_MARK = re.compile(r"^(?:[\s\-*•#>]+|\d{1,3}[.)]\s+)+")


def plain_messages(messages: Sequence[Message]) -> list[dict[str, JSON]]:
    """Return messages as objects with `role`, `content` and the fields of tool calls."""
    return [_plain_message(message) for message in messages]


def clean_text(text: str) -> str:
    """Return text without recalled memory and secrets."""
    return redact(sanitize_context(text))


def clean_messages(messages: Messages) -> list[dict[str, JSON]]:
    """Return the newest messages that fit into one write, without recalled memory and secrets."""
    newest = list(_newest_that_fit(messages))
    return [{key: _clean(key, value) for key, value in each.items()} for each in reversed(newest)]


def _clean(key: str, value: JSON) -> JSON:
    return clean_text(value) if key == "content" and isinstance(value, str) else redact_json(value)


def _newest_that_fit(messages: Messages) -> Iterator[dict[str, JSON]]:
    left = MAX_CHARS
    for message in reversed(messages):
        left -= len(dumps(message))
        if left < 0:
            return
        yield dict(message)


def _plain_message(message: Message) -> dict[str, JSON]:
    plain: dict[str, JSON] = {"role": message.role.value, "content": message.text}
    if message.tool_calls:
        plain["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        plain["tool_call_id"] = message.tool_call_id
    if message.tool_name is not None:
        plain["name"] = message.tool_name
    return plain


def merge_texts(texts: Sequence[str], *, max_chars: int) -> str:
    """Return the lines of `texts` within `max_chars`, without duplicates.

    Each text keeps its order. If the budget is too small for all, lines are taken from the texts in turn, so
    that no provider uses it up alone.
    """
    unique = _without_duplicates(texts)
    chosen: list[list[str]] = [[] for _ in unique]
    left = max_chars
    for place, line in _round_robin(unique):
        cost = len(line) + 1
        if cost > left:
            if not any(any(lines) for lines in chosen):
                chosen[place].append(line[: max(0, left)])  # a cut line is better than no context
            break
        chosen[place].append(line)
        left -= cost
    return "\n".join(text for text in ("\n".join(lines).strip("\n") for lines in chosen) if text.strip())


def _without_duplicates(texts: Sequence[str]) -> list[list[str]]:
    seen: set[str] = set()
    result = []
    for text in texts:
        lines = []
        for line in text.splitlines():
            key = " ".join(_LIST_MARK.sub("", line).casefold().split()).rstrip(".!;,")
            if not key or key not in seen:
                lines.append(line.rstrip())
            if key:
                seen.add(key)
        result.append(lines)
    return result


def _round_robin(texts: Sequence[Sequence[str]]) -> Iterator[tuple[int, str]]:
    for row in zip_longest(*texts):
        yield from ((place, line) for place, line in enumerate(row) if line is not None)


def tool_schemas(plugin: str, declared: object, toolset: Toolset = "memory") -> Iterator[ToolSchema]:
    """Yield the usable schemas that a plugin declared; unusable ones are logged."""
    kind = "provider" if toolset == "memory" else "context engine"
    if not isinstance(declared, Sequence) or isinstance(declared, str | bytes):
        log.warning("%s %s: its tool schemas are %s, not a list", kind, plugin, type(declared).__name__)
        return
    for each in declared:
        schema = _schema(each, toolset)
        if schema is None:
            log.warning("%s %s: a tool schema without a usable name or parameters was skipped", kind, plugin)
        else:
            yield schema


def is_search(schema: ToolSchema) -> bool:
    """Whether a tool only searches, so that `memory_recall` can replace it."""
    return _SEARCHES.search(schema.name) is not None


def tool_answer(plugin: str, text: object) -> Mapping[str, JSON]:
    """Return a plugin's answer as a JSON object, or an error for the model."""
    if not isinstance(text, str):
        return failure(f"{plugin} answered with {type(text).__name__}, not with JSON text")
    if len(text) > MAX_ANSWER_CHARS:
        return failure(f"{plugin} answered with {len(text):,} characters; ask for less")
    try:
        value: JSON = json.loads(text)
    except (ValueError, RecursionError):
        return {**failure(f"{plugin} answered with text that is not JSON"), "text": text[:2_000]}
    return value if isinstance(value, Mapping) else {"result": value}


def failure(error: str) -> Mapping[str, JSON]:
    """Return a tool answer that reports an error to the model."""
    return {"success": False, "error": error}


def _schema(declared: object, toolset: Toolset) -> ToolSchema | None:
    if isinstance(declared, ToolSchema):
        declared = {name: getattr(declared, name, None) for name in ("name", "description", "parameters")}
    if not isinstance(declared, Mapping):
        return None
    inner = declared.get("function", declared)  # the form of chat endpoints is accepted too
    if not isinstance(inner, Mapping):
        return None
    name, parameters = inner.get("name"), inner.get("parameters", {"type": "object", "properties": {}})
    if not isinstance(name, str) or not _TOOL_NAME.match(name) or not isinstance(parameters, Mapping):
        return None
    try:
        plain = json.loads(json.dumps(parameters))
    except (TypeError, ValueError, RecursionError):
        return None
    return ToolSchema(name, str(inner.get("description", "")), plain, toolset)

"""The tools that providers bring: their schemas made safe to send, their answers made safe to read."""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence

from kept.core.text import JSON
from kept.core.tools import ToolSchema

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

_TOOL_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")
_SEARCHES = re.compile(r"(^|_)(search|recall|query)$")


def tool_schemas(provider: str, declared: object) -> Iterator[ToolSchema]:
    """Yield the usable schemas of what `provider` declared; what is unusable is named in the log."""
    if not isinstance(declared, Sequence) or isinstance(declared, str | bytes):
        log.warning("provider %s: its tool schemas are %s, not a list", provider, type(declared).__name__)
        return
    for each in declared:
        schema = _schema(each)
        if schema is None:
            log.warning("provider %s: a tool schema without a usable name or parameters was skipped", provider)
        else:
            yield schema


def is_search(schema: ToolSchema) -> bool:
    """Tell whether a tool only searches, so that `memory_recall` can stand for it."""
    return _SEARCHES.search(schema.name) is not None


def tool_answer(provider: str, text: object) -> Mapping[str, JSON]:
    """Return a provider's answer as a JSON object, or the error that the model is told."""
    if not isinstance(text, str):
        return failure(f"{provider} answered with {type(text).__name__}, not with JSON text")
    if len(text) > MAX_ANSWER_CHARS:
        return failure(f"{provider} answered with {len(text):,} characters; ask for less")
    try:
        value: JSON = json.loads(text)
    except (ValueError, RecursionError):
        return {**failure(f"{provider} answered with text that is not JSON"), "text": text[:2_000]}
    return value if isinstance(value, Mapping) else {"result": value}


def failure(error: str) -> Mapping[str, JSON]:
    """Return the answer that tells the model of a failure."""
    return {"success": False, "error": error}


def _schema(declared: object) -> ToolSchema | None:
    if not isinstance(declared, Mapping):
        return None
    inner = declared.get("function", declared)  # the form that chat endpoints use is understood too
    if not isinstance(inner, Mapping):
        return None
    name, parameters = inner.get("name"), inner.get("parameters", {"type": "object", "properties": {}})
    if not isinstance(name, str) or not _TOOL_NAME.match(name) or not isinstance(parameters, Mapping):
        return None
    try:
        plain = json.loads(json.dumps(parameters))
    except (TypeError, ValueError, RecursionError):
        return None
    return ToolSchema(name, str(inner.get("description", "")), plain, "memory")

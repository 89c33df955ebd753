"""Parts that both wire formats share: messages, tool-call arguments, rejected parameters."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from wellkept.core.messages import ToolCall
from wellkept.core.text import dumps

WireMessage: TypeAlias = dict[str, Any]
"""One message in the JSON form of an API."""


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments of a call; wrap invalid ones in an object, so that the model sees what it wrote."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"invalid_json": text}


def valid_arguments(text: str) -> str:
    """Return `text` unchanged if it is a JSON object, else wrapped in one.

    Servers parse the arguments of earlier calls again; invalid ones would make every later request of the session
    fail.
    """
    try:
        is_object = isinstance(json.loads(text), dict)
    except ValueError:
        is_object = False
    return text if is_object else dumps({"invalid_json": text})


def merge_neighbours(messages: Sequence[WireMessage]) -> list[WireMessage]:
    """Join consecutive messages of one role; their contents are lists of parts."""
    merged: list[WireMessage] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1] = {**merged[-1], "content": [*merged[-1]["content"], *message["content"]]}
        else:
            merged.append(message)
    return merged


class PartialCall:
    """A tool call that is built from streamed pieces."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []

    def complete(self, fallback_id: str) -> ToolCall:
        """Return the complete call; missing arguments become an empty object."""
        return ToolCall(self.id or fallback_id, self.name, "".join(self.arguments) or "{}")


OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""The same limit has different names at newer models and older servers."""
OPTIONAL = frozenset({*OTHER_NAME, "temperature", "reasoning_effort", "prompt_cache_key", "stream_options"})
"""Parameters that a request can do without; a rejection of any other is an error."""

_REFUSES = re.compile(
    r"unsupported|not support|unrecognized|unknown|unexpected|not permitted|not allowed|deprecated", re.IGNORECASE
)
_NAMES = re.compile(r"\b(?:" + "|".join(sorted(OPTIONAL)) + r")\b")


def find_refused_parameter(body: object, sent: Mapping[str, Any]) -> str | None:
    """Return the optional parameter of `sent` that the error `body` of a 400 rejects, or None."""
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(inner, Mapping):
        return None
    message = str(inner.get("message") or "")
    if not _REFUSES.search(f"{inner.get('code')} {message}"):
        return None
    named = [str(inner.get("param")), *_NAMES.findall(message)]
    return next((name for name in named if name in OPTIONAL and name in sent), None)


def drop_parameters(body: dict[str, Any], refused: frozenset[str]) -> dict[str, Any]:
    """Return `body` without the rejected parameters; a limit is sent under its other name."""
    made: dict[str, Any] = {}
    for name, value in body.items():
        if name not in refused:
            made[name] = value
        elif name in OTHER_NAME and OTHER_NAME[name] not in refused:
            made[OTHER_NAME[name]] = value
    return made

"""What both wire formats share: JSON objects, merged messages, arguments that must parse."""

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from kept.core.messages import ToolCall
from kept.core.text import dumps

WireMessage: TypeAlias = dict[str, Any]
"""One message as the API takes it; a JSON edge."""


def parsed_arguments(text: str) -> dict[str, Any]:
    """Return the arguments as an object; what is none is wrapped, so that the model sees what it wrote."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"invalid_json": text}


def sound_arguments(text: str) -> str:
    """Return `text` byte for byte if it is a JSON object, else that text wrapped in one.

    Servers parse the arguments of earlier calls again; text that is no object would make every
    later request of the session fail.
    """
    try:
        is_object = isinstance(json.loads(text), dict)
    except ValueError:
        is_object = False
    return text if is_object else dumps({"invalid_json": text})


def merged_neighbours(messages: Sequence[WireMessage]) -> list[WireMessage]:
    """Join messages of one role that follow each other; their contents are lists of parts."""
    merged: list[WireMessage] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1] = {**merged[-1], "content": [*merged[-1]["content"], *message["content"]]}
        else:
            merged.append(message)
    return merged


class PartialCall:
    """A tool call while its pieces arrive."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []

    def whole(self, fallback_id: str) -> ToolCall:
        """Return the finished call; one without arguments calls with an empty object."""
        return ToolCall(self.id or fallback_id, self.name, "".join(self.arguments) or "{}")

"""The JSON value type, and the one way we write it."""

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None


def dumps(value: JSON, *, indent: int | None = None) -> str:
    """Return `value` as JSON text with every script readable and keys in the order given."""
    return json.dumps(value, ensure_ascii=False, indent=indent)

"""Checking tool arguments against their JSON Schema, as far as tools use it."""

from collections.abc import Mapping, Sequence
from typing import Any

from kept.core.text import JSON

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list, tuple),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def mismatch(value: Any, schema: Mapping[str, JSON], *, where: str = "arguments") -> str | None:
    """Return what about `value` the schema does not accept, None when it fits."""
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else list(kinds) if isinstance(kinds, Sequence) else []
    if names and not any(_is(value, str(name)) for name in names):
        return f"{where} must be {' or '.join(str(name) for name in names)}"
    allowed = schema.get("enum")
    if isinstance(allowed, Sequence) and not isinstance(allowed, str) and value not in allowed:
        return f"{where} must be one of {', '.join(map(str, allowed))}"
    if isinstance(value, Mapping):
        return _object_mismatch(value, schema, where)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, Mapping):
        found = (mismatch(item, items, where=f"{where}[{place}]") for place, item in enumerate(value))
        return next((trouble for trouble in found if trouble), None)
    return None


def _object_mismatch(value: Mapping[str, Any], schema: Mapping[str, JSON], where: str) -> str | None:
    required, properties = schema.get("required"), schema.get("properties")
    for name in required if isinstance(required, Sequence) else ():
        if name not in value:
            return f"{where} lacks {name!r}"
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        if name in value and isinstance(inner, Mapping):
            trouble = mismatch(value[name], inner, where=name if where == "arguments" else f"{where}.{name}")
            if trouble:
                return trouble
    return None


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name in {"integer", "number"}:
        return False
    return isinstance(value, _TYPES.get(name, (object,)))

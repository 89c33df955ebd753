"""What msgspec.Struct leaves to its users: JSON forms, plain copies of values, and fields that no log shows."""

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from wellkept.core.text import JSON


class JsonStruct(Struct, frozen=True):
    """A value that may be shown as JSON: an object of its fields, under the names that `field(name=…)` gives.

    A field with a name that begins with an underscore is left out.

    A subclass overrides `as_json` where its JSON is of another shape. Other structs have no JSON form on purpose:
    nobody shows their fields by mistake.
    """

    def as_json(self) -> "dict[str, JSON]":
        """Return the JSON form."""
        return {
            key: to_json(getattr(self, name))
            for name, key in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True)
            if not key.startswith("_")
        }


def to_json(value: Any) -> "JSON":
    """Return the JSON form of what a field of a `JsonStruct` holds."""
    shown: JSON
    match value:
        case Enum():
            shown = value.value
        case Path():
            shown = str(value)
        case Mapping():
            shown = {key.value if isinstance(key, Enum) else key: to_json(item) for key, item in value.items()}
        case list() | tuple():
            shown = [to_json(item) for item in value]
        case set() | frozenset():
            shown = sorted(value)
        case None | bool() | int() | float() | str():
            shown = value
        case _:
            shown = value.as_json()
    return shown


def asdict(value: Struct) -> dict[str, Any]:
    """Return the fields of a value, with the values in them as dicts too; containers are new, the rest is shared."""
    return {name: _copy_plainly(getattr(value, name)) for name in value.__struct_fields__}


def _copy_plainly(value: Any) -> Any:
    if isinstance(value, Struct):
        return asdict(value)
    if isinstance(value, list | tuple | set | frozenset):
        items = map(_copy_plainly, value)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return type(value)((name, _copy_plainly(item)) for name, item in value.items())
    return value


def hide(*hidden: str) -> Callable[[Any], str]:
    """Return a `__repr__` that leaves fields out, such as secrets and long texts."""

    def represent(value: Struct) -> str:
        shown = (name for name in value.__struct_fields__ if name not in hidden)
        return f"{type(value).__name__}({', '.join(f'{name}={getattr(value, name)!r}' for name in shown)})"

    return represent

"""What msgspec.Struct leaves to its users: plain copies of values, and fields that no log shows."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct


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

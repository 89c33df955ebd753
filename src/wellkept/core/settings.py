"""Settings as structs: bounds, validation by annotations, and building from values.

Pydantic models would take a third of the time that a command may take to start.
"""

import re
import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from wellkept.core.text import expression

Toolset = Literal["memory", "session_search", "skills", "todo", "delegation", "workspace", "terminal", "mcp", "context"]
"""The groups in which tools are switched on and off."""
REMOTE_TOOLSETS = ("memory", "session_search", "skills", "todo", "context")
"""The toolsets of an agent that is reached over the network: no files, no terminal, no other programs."""


class InvalidSetting(Exception):
    """A value that its setting does not accept."""

    def __init__(self, key: str, value: object, accepted: str) -> None:
        super().__init__(f"{key} cannot be {value!r}")
        self.key = key
        self.value = value
        self.accepted = accepted


@cache
def fields(section: type) -> Mapping[str, Any]:
    """Return the fields of a section with their annotations, including bounds."""
    return get_type_hints(section, include_extras=True)


def is_section(annotation: Any) -> bool:
    """Whether a setting is a nested section."""
    return isinstance(annotation, type) and issubclass(annotation, Struct)


def build(section: type, values: Mapping[str, Any], prefix: str = "") -> Any:
    """Build the section from `values`, or raise InvalidSetting for the first invalid one."""
    checked = {}
    for name, value in values.items():
        annotation, key = fields(section)[name], f"{prefix}{name}"
        if is_section(annotation):
            if not isinstance(value, Mapping):
                raise InvalidSetting(key, value, "a block of settings: " + ", ".join(fields(annotation)))
            checked[name] = build(annotation, value, f"{key}.")
        else:
            checked[name] = _validate(key, value, annotation)
    return section(**checked)


def _validate(key: str, value: Any, annotation: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and _plain_type(annotation) is float:
        value = float(value)
    if not accepts(annotation, value):
        raise InvalidSetting(key, value, describe(annotation))
    return value


def _plain_type(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def accepts(annotation: Any, value: Any) -> bool:
    """Whether `value` has the annotated type and is within its bounds."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [bound for bound in arguments[1:] if isinstance(bound, Above | Between | Address | Matches)]
        return accepts(arguments[0], value) and (value is None or all(bound.holds(value) for bound in bounds))
    if origin in (Union, types.UnionType):
        return any(accepts(option, value) for option in arguments)
    if origin is Literal:
        return any(value == option and type(value) is type(option) for option in arguments)
    if origin in (list, tuple):
        return isinstance(value, list | tuple) and all(accepts(arguments[0], item) for item in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(accepts(arguments[1], item) for item in value.values())
    return _is_plain(annotation, value)


def _is_plain(annotation: Any, value: Any) -> bool:
    if annotation in (Any, object):
        return True
    if annotation in (None, type(None)):
        return value is None
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, annotation) and (annotation is bool or not isinstance(value, bool))


def describe(annotation: Any) -> str:
    """Return a description of the accepted values."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [str(bound) for bound in arguments[1:] if not isinstance(bound, Guarded)]
        return ", ".join([describe(arguments[0]), *bounds])
    if origin in (Union, types.UnionType):
        return " or ".join(describe(option) for option in arguments)
    if origin is Literal:
        return " | ".join(str(option) for option in arguments)
    if origin in (list, tuple):
        return f"a list of {describe(arguments[0])}"
    if origin in (dict, Mapping):
        inside = describe(arguments[1])
        return "a block of names and values" if inside == "any value" else f"a block of names, each with {inside}"
    words = {bool: "true | false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
    return words.get(annotation, getattr(annotation, "__name__", "any value"))


class Guarded(Struct, frozen=True):
    """A setting that protects the person: an agent cannot change it to a value that protects less."""

    values: tuple[Any, ...] = ()
    """The values, the most protective first; without any, every change may protect less."""
    forbids: bool = False
    """Whether the setting is a list of what is forbidden, so that only a shorter list protects less."""

    def loosens(self, before: Any, after: Any) -> bool:
        """Whether a change from one value to another protects less."""
        if before == after:
            return False
        if self.forbids:
            return not set(before or ()) <= set(after or ())
        if before in self.values and after in self.values:
            return self.values.index(after) > self.values.index(before)
        return True


def find_guard(annotation: Any) -> Guarded | None:
    """Return the guard of a setting by its annotation, None if an agent may change it."""
    arguments = get_args(annotation) if get_origin(annotation) is Annotated else ()
    return next((argument for argument in arguments[1:] if isinstance(argument, Guarded)), None)


class Between(Struct, frozen=True):
    """A number from `low` to `high`, inclusive; None means unbounded."""

    low: float | None
    high: float | None = None

    def __str__(self) -> str:
        if self.high is None:
            return f"at least {self.low:g}"
        return f"from {self.low:g} to {self.high:g}" if self.low is not None else f"at most {self.high:g}"

    def holds(self, value: float) -> bool:
        """Whether `value` is within the bounds."""
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


class Address(Struct, frozen=True):
    """The address of an HTTP server."""

    optional: bool = False
    """Whether it may be empty."""

    def __str__(self) -> str:
        return "like https://host or http://127.0.0.1:8000" + (", or empty" if self.optional else "")

    def holds(self, value: str) -> bool:
        """Whether `value` has a scheme and a host."""
        return (self.optional and not value) or _HTTP_ADDRESS.match(value) is not None


_HTTP_ADDRESS = expression(r"https?://[^\s/?#]+\S*$", re.IGNORECASE)


class Above(Struct, frozen=True):
    """A number greater than `low`."""

    low: float

    def __str__(self) -> str:
        return f"greater than {self.low:g}"

    def holds(self, value: float) -> bool:
        """Whether `value` is within the bounds."""
        return value > self.low


class Matches(Struct, frozen=True):
    """A text of one form; `form` describes it."""

    pattern: str
    form: str

    def __str__(self) -> str:
        return self.form

    def holds(self, value: str) -> bool:
        """Whether all of `value` has the form."""
        import re  # lazy: only settings of this kind need it

        return re.fullmatch(self.pattern, value) is not None

"""Dataclasses for a program that starts often: a method is compiled when an instance first needs it.

The standard decorator writes and compiles six methods of every class while its module loads: half a millisecond each
time, and a command loads more than a hundred classes of which it makes half. This one has the same result for the
parameters that it knows, and `dataclasses.fields`, `asdict`, `is_dataclass` and classes derived with the standard
decorator work on it: the attributes that they read are built on first access. Type checkers see the standard decorator.
"""

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_origin

if TYPE_CHECKING:
    from dataclasses import asdict, astuple, dataclass, field, fields, is_dataclass, replace

__all__ = ["asdict", "astuple", "dataclass", "field", "fields", "is_dataclass", "replace", "unguarded"]

T = TypeVar("T")

_ABSENT: Any = object()


class Field:
    """One field of a class: its name, its annotation, and what `field` was given."""

    __slots__ = ("annotation", "default", "factory", "in_comparison", "in_repr", "keyword_only", "name")

    def __init__(self, default: Any, factory: Any, *, in_repr: bool = True, in_comparison: bool = True) -> None:
        self.name = ""
        self.annotation: Any = None
        self.default = default
        self.factory = factory
        self.in_repr = in_repr
        self.in_comparison = in_comparison
        self.keyword_only = False


class _Standard:
    """The attributes that the standard library reads from a dataclass, built on first access."""

    def __init__(self, owner: type, found: Mapping[str, Field], *, frozen: bool) -> None:
        self._owner = owner
        self._found = found
        self._frozen = frozen
        self._built: type | None = None

    def build(self) -> type:
        """Return a class of the standard decorator with the same fields."""
        if self._built is None:
            import dataclasses

            members = []
            for each in self._found.values():
                options: dict[str, Any] = {
                    "repr": each.in_repr,
                    "compare": each.in_comparison,
                    "kw_only": each.keyword_only,
                }
                if each.factory is not _ABSENT:
                    options["default_factory"] = each.factory
                elif each.default is not _ABSENT:
                    options["default"] = each.default
                members.append((each.name, each.annotation, dataclasses.field(**options)))
            self._built = dataclasses.make_dataclass(
                self._owner.__name__, members, frozen=self._frozen, init=False, repr=False, eq=False
            )
        return self._built


class _Derived:
    """An attribute of the standard dataclass that is read through ours."""

    def __init__(self, standard: _Standard, name: str) -> None:
        self._standard = standard
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        return getattr(self._standard.build(), self._name)


def _define(cls: type, *, frozen: bool, slots: bool, eq: bool, kw_only: bool) -> type:
    own = {each.name: each for each in _own_fields(cls, kw_only=kw_only)}
    found = {**_collect_base_fields(cls), **own}
    for name, each in own.items():
        if each.default is not _ABSENT:
            setattr(cls, name, each.default)
        elif name in cls.__dict__:
            delattr(cls, name)
    made = _with_slots(cls, own) if slots else cls
    standard = _Standard(made, found, frozen=frozen)
    members = {
        "__kept_fields__": found,
        "__dataclass_fields__": _Derived(standard, "__dataclass_fields__"),
        "__dataclass_params__": _Derived(standard, "__dataclass_params__"),
        "__match_args__": tuple(name for name, each in found.items() if not each.keyword_only),
        **_make_methods(made, found, frozen=frozen, eq=eq),
    }
    defined = cls.__dict__
    for name, member in members.items():
        # a class that defines `__eq__` has no hash until one is set
        if name not in defined or (name == "__hash__" and defined[name] is None):
            setattr(made, name, member)
    return made


def _own_fields(cls: type, *, kw_only: bool) -> Iterator[Field]:
    for name, annotation in cls.__annotations__.items():
        if _is_of_class(annotation):
            continue
        value = cls.__dict__.get(name, _ABSENT)
        each = value if isinstance(value, Field) else Field(value, _ABSENT)
        if type(each.default).__hash__ is None:
            raise ValueError(f"mutable default for {name}: use default_factory")
        each.name, each.annotation, each.keyword_only = name, annotation, kw_only
        yield each


def _is_of_class(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar"))
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def _collect_base_fields(cls: type) -> dict[str, Field]:
    found: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:]):
        ours = base.__dict__.get("__kept_fields__")
        if ours is not None:
            found.update(ours)
        elif "__dataclass_fields__" in base.__dict__:
            found.update(_read_standard(base))
    return found


def _read_standard(base: type) -> dict[str, Field]:
    """Return the fields of a class that the standard decorator made."""
    import dataclasses

    found = {}
    for one in dataclasses.fields(base):
        default = _ABSENT if one.default is dataclasses.MISSING else one.default
        factory = _ABSENT if one.default_factory is dataclasses.MISSING else one.default_factory
        each = Field(default, factory, in_repr=one.repr, in_comparison=one.compare)
        each.name, each.annotation, each.keyword_only = one.name, one.type, bool(one.kw_only)
        found[one.name] = each
    return found


def _with_slots(cls: type, own: Mapping[str, Field]) -> type:
    """Return the class again with a slot for each of its fields; slots can be declared at creation only."""
    taken = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    kept = {name: member for name, member in cls.__dict__.items() if name not in {*own, "__dict__", "__weakref__"}}
    made = type(cls)(
        cls.__name__, cls.__bases__, {**kept, "__slots__": tuple(name for name in own if name not in taken)}
    )
    made.__qualname__ = cls.__qualname__
    return made


def _make_methods(cls: type, found: Mapping[str, Field], *, frozen: bool, eq: bool) -> dict[str, Any]:
    read = _reader([name for name, each in found.items() if each.in_comparison])
    shown = [name for name, each in found.items() if each.in_repr]

    def __init__(self: Any, *given: Any, **named: Any) -> None:  # noqa: N807 - becomes a method
        cls.__init__ = compiled = _compile_init(cls, found, frozen=frozen)  # type: ignore[misc]  # the stub has done its work
        compiled(self, *given, **named)

    def __repr__(self: Any) -> str:  # noqa: N807
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def __eq__(self: Any, other: object) -> bool:  # noqa: N807
        return bool(read(self) == read(other)) if other.__class__ is self.__class__ else NotImplemented

    methods: dict[str, Any] = {"__init__": __init__, "__repr__": __repr__}
    if eq:
        methods |= {"__eq__": __eq__, "__hash__": (lambda self: hash(read(self))) if frozen else None}
    if frozen:
        methods |= _make_guards(cls, found)
    return methods


def _reader(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that reads these attributes of an instance."""
    if len(names) > 1:
        return attrgetter(*names)
    if names:
        only = attrgetter(names[0])
        return lambda instance: (only(instance),)
    return lambda _: ()


def _make_guards(cls: type, found: Mapping[str, Field]) -> dict[str, Any]:
    """Return the methods that make instances immutable and let `copy` and `pickle` work all the same."""

    def refuse(instance: Any, name: str, *value: object) -> None:
        if type(instance) is cls or name in found:
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
        (object.__setattr__ if value else object.__delattr__)(instance, name, *value)

    def read_state(instance: Any) -> list[Any]:
        return [getattr(instance, name) for name in found]

    def write_state(instance: Any, state: list[Any]) -> None:
        for name, value in zip(found, state, strict=True):
            object.__setattr__(instance, name, value)

    return {"__setattr__": refuse, "__delattr__": refuse, "__getstate__": read_state, "__setstate__": write_state}


def unguarded(cls: type[T]) -> type[T]:
    """Remove the runtime guard of a frozen class, so that its instances are created three times as fast.

    Only the type checker then refuses assignments. For values that one answer creates by the dozen; values that are
    passed to plugins keep their guard.
    """
    assert {"__setattr__", "__delattr__"} <= cls.__dict__.keys(), f"{cls.__name__} is not frozen"
    del cls.__setattr__, cls.__delattr__
    return cls


def _compile_init(cls: type, found: Mapping[str, Field], *, frozen: bool) -> Callable[..., None]:
    frozen = frozen and "__setattr__" in cls.__dict__
    namespace: dict[str, Any] = {"_absent": _ABSENT, "_set": object.__setattr__}
    parameters, named, body = ["self"], list[str](), list[str]()
    for name, each in found.items():
        value, parameter = name, name
        if each.factory is not _ABSENT:
            namespace[f"_make_{name}"] = each.factory
            parameter, value = f"{name}=_absent", f"_make_{name}() if {name} is _absent else {name}"
        elif each.default is not _ABSENT:
            namespace[f"_default_{name}"] = each.default
            parameter = f"{name}=_default_{name}"
        (named if each.keyword_only else parameters).append(parameter)
        slot = getattr(cls, name, None)
        if frozen and isinstance(slot, MemberDescriptorType):
            # half the time of `object.__setattr__`, which looks the slot up by its name
            namespace[f"_set_{name}"] = slot.__set__
            body.append(f"_set_{name}(self, {value})")
        else:
            body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if named:
        parameters += ["*", *named]
    text = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"])
    exec(text, namespace)  # noqa: S102 - names of fields and nothing else, as in the standard library
    compiled: Callable[..., None] = namespace["__init__"]
    compiled.__qualname__ = f"{cls.__qualname__}.__init__"  # errors about missing arguments show this name
    return compiled


if not TYPE_CHECKING:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, kw_only=False):  # noqa: ANN001, ANN201, D103
        def define(cls: type) -> type:
            return _define(cls, frozen=frozen, slots=slots, eq=eq, kw_only=kw_only)

        return define if cls is None else define(cls)

    def field(*, default=_ABSENT, default_factory=_ABSENT, repr=True, compare=True):  # noqa: A002, ANN001, ANN201, D103
        return Field(default, default_factory, in_repr=repr, in_comparison=compare)

    def replace(instance, /, **changes):  # noqa: ANN001, ANN003, ANN201, D103
        kept = getattr(type(instance), "__kept_fields__", None)
        if kept is None:
            import dataclasses

            return dataclasses.replace(instance, **changes)
        return type(instance)(**{name: getattr(instance, name) for name in kept if name not in changes}, **changes)

    def asdict(instance):  # noqa: ANN001, ANN201, D103
        found = getattr(type(instance), "__kept_fields__", None)
        if found is None:
            import dataclasses

            return dataclasses.asdict(instance)
        return {name: _copy_plainly(getattr(instance, name)) for name in found}

    def _copy_plainly(value):  # noqa: ANN001, ANN202
        """Return a value with dataclasses as dicts and containers as new ones; everything else is shared."""
        if is_dataclass(type(value)):
            return asdict(value)
        if isinstance(value, list | tuple | set | frozenset):
            each = map(_copy_plainly, value)
            return type(value)(*each) if hasattr(value, "_fields") else type(value)(each)
        if isinstance(value, dict):
            return type(value)((name, _copy_plainly(each)) for name, each in value.items())
        return value

    def astuple(instance):  # noqa: ANN001, ANN201, D103
        import dataclasses

        return dataclasses.astuple(instance)

    def fields(kind):  # noqa: ANN001, ANN201, D103
        import dataclasses

        return dataclasses.fields(kind)

    def is_dataclass(kind):  # noqa: ANN001, ANN201, D103
        # in this order: reading `__dataclass_fields__` of ours would load the standard library for it
        return hasattr(kind, "__kept_fields__") or hasattr(kind, "__dataclass_fields__")

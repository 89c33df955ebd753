"""Packages whose modules are imported when they are first used."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType, ModuleType


def load_on_use(
    package: str, names: Sequence[str], *, former: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str], ModuleType]:
    """Return a `__getattr__` for a package: importing all modules would take a command a tenth of a second.

    `former` has names that modules had before, which programs of users may use, with those of today.
    """

    def load(name: str) -> ModuleType:
        name = former.get(name, name)
        if name in names:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load

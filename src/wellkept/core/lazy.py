"""Packages whose modules are imported when they are first used."""

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType


def load_on_use(package: str, names: Sequence[str]) -> Callable[[str], ModuleType]:
    """Return a `__getattr__` for a package: importing all modules would take a command a tenth of a second."""

    def load(name: str) -> ModuleType:
        if name in names:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load

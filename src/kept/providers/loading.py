"""Loads a chosen provider: imports it from where it was found and sets the variables it declares."""

import inspect
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

from kept.core.errors import ConfigError, NotFound, ProviderError
from kept.core.plugins import import_package
from kept.providers.base import MemoryProvider
from kept.providers.config import declared_fields
from kept.providers.discovery import ENTRY_POINTS, Found, discover

log = logging.getLogger(__name__)

_SHIM = "agent.memory_provider"


def load(name: str, plugins: Path, environ: Mapping[str, str] = os.environ) -> MemoryProvider:
    """Import the chosen provider, and no other, and return it.

    Variables that it declares and that only `environ` has (from `.env`) are set in the process, where plugins
    look for them.
    """
    found = discover(plugins)
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise NotFound(
            f"there is no memory provider {name!r}",
            f"known here: {known}; `kept providers setup` chooses one, `kept providers off` uses none",
        )
    try:
        provider = _import_provider(found[name])
        set_variables(provider, environ)
    except Exception as error:
        log.warning("the memory provider %r cannot be loaded", name, exc_info=True)
        raise ProviderError(
            f"the memory provider {name!r} cannot be loaded: {type(error).__name__}: {error}",
            "`kept providers status` shows what it needs; `kept providers off` disables it",
        ) from error
    if provider.name != name:
        raise ConfigError(
            f"the plugin {name!r} registers a provider called {provider.name!r}", "rename its folder or its provider"
        )
    return provider


def set_variables(provider: MemoryProvider, environ: Mapping[str, str]) -> None:
    """Set the variables that a provider declares in the process, unless they are set already."""
    for field in declared_fields(provider):
        if field.env_var and environ.get(field.env_var):
            os.environ.setdefault(field.env_var, environ[field.env_var])


def _import_provider(found: Found) -> MemoryProvider:
    with _legacy_module():
        match found.kind:
            case "bundled" | "entry point":
                return _make_provider(EntryPoint(found.name, found.place, ENTRY_POINTS).load())
            case "folder":
                folder = Path(found.place)
                return _make_provider(
                    import_package(folder, f"kept_plugins.{re.sub(r'[^A-Za-z0-9_]', '_', folder.name)}")
                )


def _make_provider(target: object) -> MemoryProvider:
    """Return a provider from a class, an instance, or a module that registers or defines one."""
    if isinstance(target, ModuleType):
        return _from_module(target)
    if inspect.isclass(target):
        target = target()
    elif inspect.isfunction(target):
        return _call_register(target)
    return _check_shape(target)


def _from_module(module: ModuleType) -> MemoryProvider:
    register = getattr(module, "register", None)
    if callable(register):
        return _call_register(register)
    for value in vars(module).values():
        if inspect.isclass(value) and issubclass(value, MemoryProvider) and value is not MemoryProvider:
            return _check_shape(value())
    raise TypeError(f"{module.__name__} has neither register(ctx) nor a subclass of MemoryProvider")


class _Context:
    """The argument of a plugin's `register` function."""

    def __init__(self) -> None:
        self.provider: object = None

    def register_memory_provider(self, provider: object) -> None:
        """Store the provider."""
        self.provider = provider

    def __getattr__(self, name: str) -> object:
        # plugins also register commands, hooks and tools here; everything but the memory is ignored
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_args, **_keywords: None


def _call_register(register: object) -> MemoryProvider:
    context = _Context()
    assert callable(register)
    register(context)
    return _check_shape(context.provider)


def _check_shape(provider: object) -> MemoryProvider:
    """Return `provider` if it has the required members; it need not inherit from our class."""
    required = ("is_available", "initialize", "get_tool_schemas", "handle_tool_call")
    missing = [hook for hook in required if not callable(getattr(provider, hook, None))]
    name = getattr(provider, "name", None)
    if missing or not isinstance(name, str) or not name:
        raise TypeError(f"it lacks {', '.join(missing) or 'a name'}")
    if "/" in name:  # the outbox uses it to separate the provider from the user
        raise TypeError(f"its name {name!r} contains a slash")
    return provider  # type: ignore[return-value] # has the required shape


@contextmanager
def _legacy_module() -> Iterator[None]:
    """Make `agent.memory_provider` importable: plugins written for Hermes import the base class from there."""
    package, shim = ModuleType("agent"), ModuleType(_SHIM)
    package.__path__ = []
    shim.MemoryProvider = MemoryProvider  # type: ignore[attr-defined] # a module built by hand
    package.memory_provider = shim  # type: ignore[attr-defined] # a module built by hand
    names = ("agent", _SHIM)
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update({"agent": package, _SHIM: shim})
    try:
        yield
    finally:
        for name in names:
            old = before[name]
            if old is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = old

"""Discovery: which providers exist here, found without importing any, and how the chosen one is loaded."""

import importlib
import inspect
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Literal

from kept.core.errors import ConfigError, NotFound, ProviderError
from kept.core.jsontypes import JSON
from kept.core.plugins import entry_points, imported, packages
from kept.providers.base import MemoryProvider
from kept.providers.manager import BUILTIN

log = logging.getLogger(__name__)

ENTRY_POINTS = "kept.memory_providers"
Kind = Literal["bundled", "entry point", "folder"]

_BUNDLED = {"holographic": "kept.providers.holographic:HolographicProvider"}
_MARKS = re.compile(r"register_memory_provider|MemoryProvider")
_FOLDER_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
_SHIM = "agent.memory_provider"
_MAX_SCANNED_BYTES = 200_000


@dataclass(frozen=True, slots=True)
class Found:
    """A provider that could be chosen; nothing of it has been imported."""

    name: str
    kind: Kind
    place: str
    """The class, the entry point or the folder."""
    about: Mapping[str, JSON] = field(default_factory=dict)
    """What its `plugin.yaml` says: description, pip_dependencies, external_dependencies."""


def discover(plugins: Path) -> dict[str, Found]:
    """Return every provider by name: bundled ones first, then entry points, then folders; the first wins."""
    found: dict[str, Found] = {}
    for each in (*_bundled(), *_entry_points(), *_folders(plugins)):
        if each.name == BUILTIN:
            log.warning("the name %r is reserved; the provider at %s is passed over", BUILTIN, each.place)
        elif each.name in found:
            log.warning("the provider %r at %s is hidden by the %s one", each.name, each.place, found[each.name].kind)
        else:
            found[each.name] = each
    return found


def load(name: str, plugins: Path) -> MemoryProvider:
    """Import the chosen provider, and only that, and return it."""
    found = discover(plugins)
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise NotFound(
            f"there is no memory provider {name!r}",
            f"known here: {known}; `kept providers setup` chooses one, `kept providers off` uses none",
        )
    try:
        provider = _loaded(found[name])
    except Exception as error:
        log.warning("the memory provider %r cannot be loaded", name, exc_info=True)
        raise ProviderError(
            f"the memory provider {name!r} cannot be loaded: {type(error).__name__}: {error}",
            "`kept providers status` shows what it needs; `kept providers off` goes on without",
        ) from error
    if provider.name != name:
        raise ConfigError(
            f"the plugin {name!r} registers a provider called {provider.name!r}", "rename its folder or its provider"
        )
    return provider


def _bundled() -> Iterator[Found]:
    for name, place in _BUNDLED.items():
        yield Found(name, "bundled", place)


def _entry_points() -> Iterator[Found]:
    for point in entry_points(ENTRY_POINTS):
        yield Found(point.name, "entry point", point.value)


def _folders(plugins: Path) -> Iterator[Found]:
    for folder in packages(plugins):
        if _FOLDER_NAME.match(folder.name) and _is_provider(folder / "__init__.py"):
            yield Found(folder.name, "folder", str(folder), _about(folder / "plugin.yaml"))


def _is_provider(module: Path) -> bool:
    """Tell by its text alone whether a module brings a memory provider."""
    try:
        with module.open("rb") as file:
            return _MARKS.search(file.read(_MAX_SCANNED_BYTES).decode("utf-8", "replace")) is not None
    except OSError:
        return False


def _about(path: Path) -> Mapping[str, JSON]:
    if not path.is_file():
        return {}
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        values = YAML(typ="safe", pure=True).load(path)
    except (OSError, YAMLError, ValueError):
        log.warning("%s cannot be read", path, exc_info=True)
        return {}
    return values if isinstance(values, dict) else {}


def _loaded(found: Found) -> MemoryProvider:
    match found.kind:
        case "bundled":
            return _made(_resolved(found.place))
        case "entry point":
            point = EntryPoint(found.name, found.place, ENTRY_POINTS)
            with shimmed():
                return _made(point.load())
        case "folder":
            folder = Path(found.place)
            with shimmed():
                return _made(imported(folder, f"kept_plugins.{re.sub(r'[^A-Za-z0-9_]', '_', folder.name)}"))


def _resolved(place: str) -> object:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _made(target: object) -> MemoryProvider:
    """Return a provider from a class, a ready object, or a module that registers or defines one."""
    if isinstance(target, ModuleType):
        return _from_module(target)
    if inspect.isclass(target):
        target = target()
    elif inspect.isfunction(target):
        return _registered(target)
    return _checked(target)


def _from_module(module: ModuleType) -> MemoryProvider:
    register = getattr(module, "register", None)
    if callable(register):
        return _registered(register)
    for value in vars(module).values():
        if inspect.isclass(value) and issubclass(value, MemoryProvider) and value is not MemoryProvider:
            return _checked(value())
    raise TypeError(f"{module.__name__} has neither register(ctx) nor a subclass of MemoryProvider")


class _Context:
    """What a plugin's `register` is given."""

    def __init__(self) -> None:
        self.provider: object = None

    def register_memory_provider(self, provider: object) -> None:
        """Take the provider."""
        self.provider = provider

    def __getattr__(self, name: str) -> object:
        # plugins register commands, hooks and tools here too; what is not a memory is passed over
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_args, **_keywords: None


def _registered(register: object) -> MemoryProvider:
    context = _Context()
    assert callable(register)
    register(context)
    return _checked(context.provider)


def _checked(provider: object) -> MemoryProvider:
    """Return the provider; the port is a shape, so a plugin need not inherit from our class to have it."""
    wanted = ("is_available", "initialize", "get_tool_schemas", "handle_tool_call")
    missing = [hook for hook in wanted if not callable(getattr(provider, hook, None))]
    name = getattr(provider, "name", None)
    if missing or not isinstance(name, str) or not name:
        raise TypeError(f"it lacks {', '.join(missing) or 'a name'}")
    return provider  # type: ignore[return-value] # has the required shape


@contextmanager
def shimmed() -> Iterator[None]:
    """Make `agent.memory_provider` importable, under which plugins of another agent know the base class."""
    package, shim = ModuleType("agent"), ModuleType(_SHIM)
    package.__path__ = []
    shim.MemoryProvider = MemoryProvider  # type: ignore[attr-defined] # a module made by hand
    package.memory_provider = shim  # type: ignore[attr-defined] # a module made by hand
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

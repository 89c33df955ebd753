"""Loading a provider: from its class, its module or its `register` function, here or in a process of its own."""

import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import cast

from msgspec import Struct, field

from wellkept.core.errors import ConfigError, NotFound, ProviderError
from wellkept.core.plugins import import_package, module_name, newer_port, read_source
from wellkept.core.text import JSON
from wellkept.core.threads import start_job
from wellkept.providers.base import MemoryProvider
from wellkept.providers.config import declared_fields
from wellkept.providers.hooks import HERMES_MARK, describe_error
from wellkept.providers.plugins import ENTRY_POINTS, Found, discover, find_plugin, manifest_of
from wellkept.providers.settings import Isolate

log = logging.getLogger(__name__)

_OF_HERMES = re.compile(r"^\s*(?:from|import)\s+(?:agent\.memory_provider|hermes_|plugins\.memory)", re.MULTILINE)
IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "FeatureUnavailable"})
"""What is raised when a package is missing, as the process of a plugin names it."""


class Facts(Struct, frozen=True, kw_only=True):
    """What kept answers a plugin that asks for its environment by the names of Hermes."""

    home: Path
    profile: str = "default"
    profiles: tuple[str, ...] = ("default",)
    complete: Callable[[Sequence[Mapping[str, JSON]], int | None], str] | None = None
    choose: Callable[[str], None] | None = None


class PluginPolicy(Struct, frozen=True, kw_only=True):
    """How plugins may run."""

    isolate: Isolate = "off"
    disabled: frozenset[str] = frozenset()
    start_seconds: float = 8.0
    """How long the import and the constructor may take."""
    facts: Facts | None = None

    def isolates(self, found: Found) -> bool:
        """Whether a plugin gets a process of its own: with `auto` all that are not bundled, where pipes allow it."""
        if self.isolate == "auto":
            return found.kind != "bundled" and os.name == "posix"
        return self.isolate == "on" and found.kind != "bundled"


class PluginSource(Struct, frozen=True):
    """Where the plugins of a home come from."""

    plugins: Path
    environ: Mapping[str, str]
    policy: PluginPolicy

    @property
    def home(self) -> Path:
        """Return the home that the folder of the plugins is in."""
        return self.plugins.parent


class LoadedProvider(Struct, frozen=True):
    """A provider that was imported into this process."""

    provider: MemoryProvider
    is_hermes: bool = False
    """Whether it imported names of Hermes, so that it expects what Hermes would pass."""
    notes: tuple[str, ...] = field(default=())
    """What its author should know."""


def load(
    name: str, plugins: Path, environ: Mapping[str, str] = os.environ, policy: PluginPolicy | None = None
) -> MemoryProvider:
    """Import the chosen provider, and no other, and return it.

    Variables that it declares and that only `environ` has (from `.env`) are set in its process, where plugins
    look for them. Whatever the plugin does instead of loading, the result is a ProviderError.
    """
    policy = policy or PluginPolicy()
    everything = discover(plugins)
    plugin = find_plugin(name, everything)
    if plugin is None:
        known = ", ".join(sorted(everything)) or "none"
        raise NotFound(
            f"there is no memory provider {name!r}",
            f"known here: {known}; `kept providers setup` chooses one, `kept providers off` uses none",
        )
    if plugin.name in policy.disabled:
        raise ConfigError(f"the plugin {plugin.name!r} is disabled", f"run: kept plugins enable {plugin.name}")
    if plugin.folder is not None and (port := newer_port(plugin.folder)) is not None:
        raise ProviderError(
            f"the memory provider {plugin.name!r} is written for version {port} of the port, newer than this kept's",
            "update kept, or use an older version of the plugin",
        )
    facts = policy.facts or Facts(home=plugins.parent)
    if policy.isolates(plugin):
        from wellkept.providers.isolation import IsolatedProvider

        isolated = IsolatedProvider(plugin, environ, facts, start_seconds=policy.start_seconds)
        isolated.start()
        return cast("MemoryProvider", isolated)
    if plugin.kind == "bundled":
        try:
            provider = _make_provider(EntryPoint(plugin.name, plugin.place, ENTRY_POINTS).load())
            set_variables(provider, environ)
        except Exception as error:
            raise load_error(
                plugin.name, describe_error(error), needs_package=isinstance(error, ImportError), cause=error
            ) from error
        return provider
    return _load_here(plugin, environ, facts, policy.start_seconds)


def _load_here(found: Found, environ: Mapping[str, str], facts: Facts, seconds: float) -> MemoryProvider:
    """Import a plugin into this process, in a thread: it cannot end the process by an exception, nor take forever."""
    from wellkept.providers.running import plugin_code

    def run() -> LoadedProvider:
        with plugin_code(found.name):
            os.environ.update(_manifest_variables(found, environ))
            loaded = import_provider(found, facts)
            set_variables(loaded.provider, environ)
            return loaded

    job = start_job(run, name="kept-plugin-load")
    if not job.wait(seconds):
        raise load_error(found.name, f"it did not load within {seconds:g} s")
    if job.error is not None:
        needs_package = isinstance(job.error, ImportError)
        raise load_error(
            found.name, describe_error(job.error), needs_package=needs_package, cause=job.error
        ) from job.error
    loaded = job.value()
    for note in loaded.notes:
        log.warning("plugin %s: %s", found.name, note)
    return loaded.provider


class LoadFailed(ProviderError):
    """A plugin cannot be loaded."""

    needs_package = False
    """Whether it imports something that is not installed."""


def load_error(
    name: str, reason: str, *, needs_package: bool = False, cause: BaseException | None = None
) -> LoadFailed:
    """Return the one-line error for a plugin that cannot be loaded."""
    error = LoadFailed(
        f"the memory provider {name!r} cannot be loaded: {reason}",
        f"`kept plugins show {name}` shows what it needs; `kept providers off` disables it",
    )
    error.needs_package = needs_package
    log.warning("%s", error.message, exc_info=cause)
    return error


def _manifest_variables(found: Found, environ: Mapping[str, str]) -> dict[str, str]:
    wanted = manifest_of(found).variables
    return {name: environ[name] for name in wanted if environ.get(name) and name not in os.environ}


def set_variables(provider: MemoryProvider, environ: Mapping[str, str]) -> None:
    """Set the variables that a provider declares in the process, unless they are set already."""
    for each in declared_fields(provider):
        if each.env_var and environ.get(each.env_var):
            os.environ.setdefault(each.env_var, environ[each.env_var])


def import_provider(found: Found, facts: Facts) -> LoadedProvider:
    """Import a plugin that is not bundled into this process and build its provider; may raise anything."""
    from wellkept.providers.hermes import HermesHost
    from wellkept.providers.running import names

    folder = Path(found.place) if found.kind == "folder" else None
    names.offer(
        HermesHost(
            provider=found.name,
            home=facts.home,
            package="" if folder is None else module_name(folder),
            names=frozenset({found.name, *((found.alias,) if found.alias else ())}),
            requirements=manifest_of(found).requirements,
            profile=facts.profile,
            profiles=facts.profiles,
            complete=facts.complete,
            choose=facts.choose,
        )
    )
    notes: list[str] = []
    if folder is None:
        provider = _make_provider(EntryPoint(found.name, found.place, ENTRY_POINTS).load(), notes)
    else:
        provider = _make_provider(import_package(folder), notes)
    modules = [each.__module__ for each in type(provider).__mro__]
    files = (getattr(sys.modules.get(name), "__file__", None) for name in modules if not name.startswith("wellkept."))
    is_hermes = "agent.memory_provider" in modules or any(
        _OF_HERMES.search(read_source(Path(file))) for file in files if file
    )
    if is_hermes:
        setattr(provider, HERMES_MARK, True)
        os.environ["HERMES_HOME"] = str(facts.home)  # an installed Hermes looks for the home here
    return LoadedProvider(provider, is_hermes, tuple(notes))


def _make_provider(target: object, notes: list[str] | None = None) -> MemoryProvider:
    """Return a provider from a class, an instance, or a module that registers or defines one."""
    if isinstance(target, ModuleType):
        return _from_module(target, notes if notes is not None else [])
    if inspect.isclass(target):
        target = target()
    elif inspect.isfunction(target):
        return _call_register(target)
    return _check_shape(target)


def _from_module(module: ModuleType, notes: list[str]) -> MemoryProvider:
    register = getattr(module, "register", None)
    if callable(register):
        return _call_register(register)
    kinds = [
        value
        for value in vars(module).values()
        # a base class that was only imported is not a provider of this plugin
        if inspect.isclass(value) and f"{value.__module__}.".startswith(f"{module.__name__}.") and _is_provider(value)
    ]
    if not kinds:
        raise TypeError("it has neither register(ctx) nor a subclass of MemoryProvider")
    if len(kinds) > 1:
        others = ", ".join(kind.__name__ for kind in kinds[1:])
        notes.append(f"{kinds[0].__name__} is used and {others} is not: register(ctx) would say which one is meant")
    return _check_shape(kinds[0]())


def _is_provider(kind: type) -> bool:
    return not inspect.isabstract(kind) and any(each.__name__ == "MemoryProvider" for each in kind.__mro__[1:])


class _Context:
    """The argument of a plugin's `register` function."""

    def __init__(self) -> None:
        self.provider: object = None

    def register_memory_provider(self, provider: object) -> None:
        """Store the provider."""
        self.provider = provider

    def __getattr__(self, name: str) -> object:
        # plugins also register commands, hooks and tools here; everything except the memory provider is ignored
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_args, **_keywords: None


def _call_register(register: object) -> MemoryProvider:
    context = _Context()
    assert callable(register)
    register(context)
    if context.provider is None:
        raise TypeError("its register(ctx) registered no memory provider")
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

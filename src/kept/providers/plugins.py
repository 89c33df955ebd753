"""Provider plugins: finding them without an import, loading the chosen ones, running their commands."""

import inspect
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Literal, TypeVar

from kept.core.errors import ConfigError, KeptError, NotFound, ProviderError
from kept.core.plugins import entry_points, import_package, packages
from kept.core.text import JSON, resource_path
from kept.core.threads import start_job
from kept.providers.base import BUILTIN, CommandAnswer, MemoryProvider, ProviderCommand, StartContext
from kept.providers.config import declared_fields
from kept.providers.hooks import call_hook, overrides

log = logging.getLogger(__name__)

ENTRY_POINTS = "kept.memory_providers"
Kind = Literal["bundled", "entry point", "folder"]

_BUNDLED = {
    "holographic": "kept.providers.holographic:HolographicProvider",
    "honcho": "kept.providers.honcho:HonchoProvider",
    "mem0": "kept.providers.mem0:Mem0Provider",
    "retaindb": "kept.providers.retaindb:RetainDBProvider",
    "supermemory": "kept.providers.supermemory:SupermemoryProvider",
}
_MARKS = re.compile(r"register_memory_provider|MemoryProvider")
_FOLDER_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
_MAX_SCANNED_BYTES = 200_000


@dataclass(frozen=True, slots=True)
class Found:
    """A provider that could be chosen; it has not been imported."""

    name: str
    kind: Kind
    place: str
    """The class, the entry point or the folder."""

    @property
    def folder(self) -> Path | None:
        """Return the folder of its files; None if it is known only after an import."""
        match self.kind:
            case "bundled":
                return resource_path("kept.providers", self.name)
            case "entry point":
                return None
            case "folder":
                return Path(self.place)


def discover(plugins: Path) -> dict[str, Found]:
    """Return every provider by name: bundled ones first, then entry points, then folders; the first wins."""
    found: dict[str, Found] = {}
    for each in (*_bundled(), *_entry_points(), *_folders(plugins)):
        if each.name == BUILTIN:
            log.warning("the name %r is reserved; the provider at %s is ignored", BUILTIN, each.place)
        elif each.name in found:
            log.warning("the provider %r at %s is hidden by the %s one", each.name, each.place, found[each.name].kind)
        else:
            found[each.name] = each
    return found


def _bundled() -> Iterator[Found]:
    for name, place in _BUNDLED.items():
        yield Found(name, "bundled", place)


def _entry_points() -> Iterator[Found]:
    for point in entry_points(ENTRY_POINTS):
        yield Found(point.name, "entry point", point.value)


def _folders(plugins: Path) -> Iterator[Found]:
    for folder in packages(plugins):
        if _FOLDER_NAME.match(folder.name) and _is_provider(folder / "__init__.py"):
            yield Found(folder.name, "folder", str(folder))


def _is_provider(module: Path) -> bool:
    """Whether the source text of a module mentions a memory provider; the module is not imported."""
    try:
        with module.open("rb") as file:
            return _MARKS.search(file.read(_MAX_SCANNED_BYTES).decode("utf-8", "replace")) is not None
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a provider's `plugin.yaml`."""

    description: str = ""
    requirements: tuple[str, ...] = ()
    """Packages that it needs, in pip's syntax."""
    hints: tuple[str, ...] = ()
    """Programs that it needs; the hints are shown, never run."""


def manifest_of(found: Found) -> Manifest:
    """Return the manifest of a provider; a missing or unreadable one is empty."""
    folder = found.folder
    values = {} if folder is None else _values(folder / "plugin.yaml")
    packages, programs = values.get("pip_dependencies"), values.get("external_dependencies")
    return Manifest(
        str(values.get("description") or ""),
        tuple(each for each in packages if isinstance(each, str)) if isinstance(packages, list) else (),
        tuple(_hint(each) for each in programs if isinstance(each, Mapping) and each.get("name"))
        if isinstance(programs, list)
        else (),
    )


def _hint(program: Mapping[str, JSON]) -> str:
    parts = [f"needs {program['name']}"]
    return "; ".join(parts + [f"{word}: {program[word]}" for word in ("install", "check") if program.get(word)])


def _values(path: Path) -> Mapping[str, JSON]:
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


_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")
_REQUIREMENT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._\[\],<>=!~ -]*$")


def missing(requirements: Iterable[str]) -> list[str]:
    """Return the requirements whose packages are not installed; malformed ones are ignored."""
    return [each for each in requirements if _REQUIREMENT.match(each) and not _is_installed(each)]


def install(requirements: Sequence[str]) -> bool:
    """Install packages into this environment with uv if available, else with pip; return whether it worked."""
    uv = shutil.which("uv")
    program = [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
    return subprocess.run([*program, *requirements], check=False).returncode == 0


def _is_installed(requirement: str) -> bool:
    name = _NAME.match(requirement)
    try:
        distribution(name[0] if name else requirement)
    except PackageNotFoundError:
        return False
    return True


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
        # plugins also register commands, hooks and tools here; everything except the memory provider is ignored
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


T = TypeVar("T")
COMMAND_SECONDS = 120.0
_SEE_STATUS = "see `kept providers status`"


@dataclass(frozen=True, slots=True)
class OfferedCommand:
    """A command and the provider it belongs to."""

    provider: MemoryProvider
    command: ProviderCommand

    @property
    def full_name(self) -> str:
        """Return the name with the provider, which is unique among several providers."""
        return f"{self.provider.name}.{self.command.name}"


def find_commands(names: Sequence[str], plugins: Path, environ: Mapping[str, str]) -> list[OfferedCommand]:
    """Return the commands of the named providers, without starting the providers."""
    found: list[OfferedCommand] = []
    for name in names:
        provider = load(name, plugins, environ)
        if overrides(provider, "get_commands"):
            commands = _run_with_timeout(f"{name}: listing its commands", provider.get_commands)
            found += [OfferedCommand(provider, command) for command in commands]
    return found


def run_command(offered: OfferedCommand, words: Sequence[str], context: StartContext) -> CommandAnswer:
    """Start the provider, run its command with the words after its name, and shut it down."""

    def run() -> CommandAnswer:
        call_hook(offered.provider, "initialize", ("cli",), context.keywords())
        try:
            return offered.command.run(words)
        finally:
            if hasattr(offered.provider, "shutdown"):
                offered.provider.shutdown()

    answer = _run_with_timeout(offered.full_name, run)
    if not isinstance(answer, CommandAnswer):
        raise ProviderError(
            f"{offered.full_name} did not answer with a CommandAnswer", "report it to the author of the plugin"
        )
    return answer


def _run_with_timeout(what: str, work: Callable[[], T]) -> T:
    """Run plugin code with a deadline; whatever it raises becomes a one-line ProviderError."""
    job = start_job(work, name="kept-provider-command")
    if not job.wait(COMMAND_SECONDS):
        raise ProviderError(f"{what} did not finish within {COMMAND_SECONDS:g} s", _SEE_STATUS)
    if job.error is not None and not isinstance(job.error, KeptError):
        raise ProviderError(f"{what} failed: {type(job.error).__name__}: {job.error}", _SEE_STATUS)
    return job.value()

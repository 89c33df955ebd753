"""Provider plugins: finding them without an import, loading the chosen ones, running their commands."""

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import Struct

from wellkept.core.agency import mark_environment
from wellkept.core.errors import KeptError, ProviderError
from wellkept.core.plugins import entry_points, packages, read_name, read_source
from wellkept.core.text import JSON, resource_path
from wellkept.core.threads import start_job
from wellkept.providers.base import BUILTIN, CommandAnswer, MemoryProvider, ProviderCommand, StartContext
from wellkept.providers.hooks import call_hook, close_provider, describe_error, overrides

log = logging.getLogger(__name__)

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")
_REQUIREMENT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._\[\],<>=!~ -]*$")
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


class Manifest(Struct, frozen=True):
    """The contents of a provider's `plugin.yaml`."""

    description: str = ""
    requirements: tuple[str, ...] = ()
    """Packages that it needs, in pip's syntax."""
    hints: tuple[str, ...] = ()
    """Programs that it needs; the hints are shown, never run."""
    version: str = ""
    variables: tuple[str, ...] = ()
    """Environment variables that it needs; those in `.env` are set before it is imported."""


def read_manifest(folder: Path | None) -> Manifest:
    """Return the manifest in a folder; a missing or unreadable one is empty."""
    values = {} if folder is None else read_yaml(folder / "plugin.yaml")
    programs = values.get("external_dependencies")
    version = values.get("version")
    return Manifest(
        str(values.get("description") or ""),
        tuple(_texts(values.get("pip_dependencies"))),
        tuple(_hint(program) for program in programs if isinstance(program, Mapping) and program.get("name"))
        if isinstance(programs, list)
        else (),
        str(version) if isinstance(version, str | int | float) else "",
        tuple(text for text in _texts(values.get("requires_env")) if _VARIABLE.match(text)),
    )


def read_yaml(path: Path) -> Mapping[str, Any]:
    """Return a YAML file as a mapping; empty if it is missing, unreadable or something else."""
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


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _hint(program: Mapping[str, JSON]) -> str:
    parts = [f"needs {program['name']}"]
    return "; ".join(parts + [f"{word}: {program[word]}" for word in ("install", "check") if program.get(word)])


def missing(requirements: Iterable[str]) -> list[str]:
    """Return the requirements whose packages are not installed; malformed ones are ignored."""
    return [
        requirement
        for requirement in requirements
        if _REQUIREMENT.match(requirement) and not _is_installed(requirement)
    ]


def install(requirements: Sequence[str]) -> bool:
    """Install packages into this environment with uv if available, else with pip; return whether it worked."""
    uv = shutil.which("uv")
    program = [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
    return subprocess.run([*program, *requirements], env=mark_environment(os.environ), check=False).returncode == 0


def _is_installed(requirement: str) -> bool:
    name = _NAME.match(requirement)
    try:
        distribution(name[0] if name else requirement)
    except PackageNotFoundError:
        return False
    return True


ENTRY_POINTS = "wellkept.memory_providers"
Kind = Literal["bundled", "entry point", "folder"]

_BUNDLED = {
    "byterover": "wellkept.providers.byterover:ByteRoverProvider",
    "holographic": "wellkept.providers.holographic:HolographicProvider",
    "hindsight": "wellkept.providers.hindsight:HindsightProvider",
    "honcho": "wellkept.providers.honcho:HonchoProvider",
    "mem0": "wellkept.providers.mem0:Mem0Provider",
    "openviking": "wellkept.providers.openviking:OpenVikingProvider",
    "retaindb": "wellkept.providers.retaindb:RetainDBProvider",
    "supermemory": "wellkept.providers.supermemory:SupermemoryProvider",
}
_MARKS = re.compile(r"register_memory_provider|MemoryProvider")
_FOLDER_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")


class Found(Struct, frozen=True):
    """A provider that could be chosen; it has not been imported."""

    name: str
    kind: Kind
    place: str
    """The class, the entry point or the folder."""
    alias: str = ""
    """Another name that it has itself, under which it is found too if no other plugin is called that."""

    @property
    def folder(self) -> Path | None:
        """Return the folder of its files; None if it is known only after an import."""
        match self.kind:
            case "bundled":
                return resource_path("wellkept.providers", self.name)
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
        if _FOLDER_NAME.match(folder.name) and _MARKS.search(read_source(folder / "__init__.py")):
            own = read_name(folder)
            yield Found(folder.name, "folder", str(folder), own if own and own != folder.name else "")


def find_plugin(name: str, found: Mapping[str, Found]) -> Found | None:
    """Return the provider that is called `name`: by its folder or entry point, else by the name that it has itself."""
    if name in found:
        return found[name]
    return next((each for each in found.values() if each.alias == name), None)


def manifest_of(found: Found) -> Manifest:
    """Return the manifest of a provider; a missing or unreadable one is empty."""
    return read_manifest(found.folder)


T = TypeVar("T")
COMMAND_SECONDS = 120.0
_SEE_STATUS = "see `kept providers status`"


class OfferedCommand(Struct, frozen=True):
    """A command and the provider it belongs to."""

    provider: MemoryProvider
    command: ProviderCommand

    @property
    def full_name(self) -> str:
        """Return the name with the provider, which is unique among several providers."""
        return f"{self.provider.name}.{self.command.name}"


def find_commands(providers: Sequence[MemoryProvider]) -> list[OfferedCommand]:
    """Return the commands of the given providers, without starting the providers."""
    found: list[OfferedCommand] = []
    for provider in providers:
        if overrides(provider, "get_commands"):
            commands = _run_with_timeout(f"{provider.name}: listing its commands", provider.get_commands)
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
            close_provider(offered.provider)

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
    if job.error is not None and (not isinstance(job.error, KeptError) or hasattr(job.error, "kind")):
        raise ProviderError(f"{what} failed: {describe_error(job.error)}", _SEE_STATUS)
    return job.value()

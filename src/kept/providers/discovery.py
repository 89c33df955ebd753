"""Discovery: which providers exist here and what they need, without importing any."""

import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Literal

from kept.core.plugins import entry_points, packages
from kept.core.text import JSON, resource_path
from kept.providers.base import BUILTIN

log = logging.getLogger(__name__)

ENTRY_POINTS = "kept.memory_providers"
Kind = Literal["bundled", "entry point", "folder"]

_BUNDLED = {"holographic": "kept.providers.holographic:HolographicProvider"}
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
        """Return the folder of its files; None if only an import could tell."""
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
    """Tell from its source text whether a module defines a memory provider."""
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

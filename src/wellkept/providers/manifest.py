"""The manifest of a plugin (`plugin.yaml`), and the packages that it asks for."""

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from msgspec import Struct

from wellkept.core.agency import mark_environment
from wellkept.core.text import JSON

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
        tuple(_hint(each) for each in programs if isinstance(each, Mapping) and each.get("name"))
        if isinstance(programs, list)
        else (),
        str(version) if isinstance(version, str | int | float) else "",
        tuple(each for each in _texts(values.get("requires_env")) if _VARIABLE.match(each)),
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
    return [each for each in requirements if _REQUIREMENT.match(each) and not _is_installed(each)]


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

"""The manifest of a provider, its `plugin.yaml`: what it is, and what must be installed for it."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kept.core.text import JSON
from kept.providers.discovery import Found

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a provider says of itself without being imported."""

    description: str = ""
    requirements: tuple[str, ...] = ()
    """Packages that it needs, as pip names them."""
    hints: tuple[str, ...] = ()
    """Programs that it needs, in words; they are shown, never run."""


def manifest_of(found: Found) -> Manifest:
    """Return the manifest of a provider; none, or one that cannot be read, is empty."""
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

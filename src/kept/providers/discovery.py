"""Discovery: which providers exist here, found without importing any."""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kept.core.plugins import entry_points, packages
from kept.core.text import resource_path
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
    """A provider that could be chosen; nothing of it has been imported."""

    name: str
    kind: Kind
    place: str
    """The class, the entry point or the folder."""

    @property
    def folder(self) -> Path | None:
        """Return where its files are; None where only an import would tell."""
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
            log.warning("the name %r is reserved; the provider at %s is passed over", BUILTIN, each.place)
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
    """Tell by its text alone whether a module brings a memory provider."""
    try:
        with module.open("rb") as file:
            return _MARKS.search(file.read(_MAX_SCANNED_BYTES).decode("utf-8", "replace")) is not None
    except OSError:
        return False

"""Plugins: packages in folders and entry points, discovered without importing them and imported under our own names."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

from wellkept.core.ids import sha256
from wellkept.core.regular_files import open_regular
from wellkept.core.text import expression

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint
    from pathlib import Path
    from types import FrameType

PARENT = "kept_plugins"
"""The package that holds every imported plugin folder; it has no files."""
PORT = 1
"""The version of the ports that plugins are written for; `port:` in a plugin.yaml names the one that it needs."""
MAX_SCANNED_BYTES = 200_000

_SKIPPED = expression(r"^[._]")
_MANIFEST_NAME = expression(r"""^name:\s*["']?([A-Za-z0-9][\w.-]*)""", re.MULTILINE)
_MANIFEST_PORT = expression(r"""^port:\s*["']?(\d+)""", re.MULTILINE)
_SOURCE_NAME = expression(
    r"""^\s+name\s*(?::[^=\n]+)?=\s*["']([^"'\n]+)["']"""
    r"""|def name\(self\)[^:]*:\s*(?:\"\"\".*?\"\"\"\s*)?return ["']([^"'\n]+)["']""",
    re.MULTILINE | re.DOTALL,
)
_running: ContextVar[str | None] = ContextVar("kept_running_plugin", default=None)
_owners: dict[str, str] = {}
"""The module name of every imported plugin folder → the folder's name."""


def folders(folder: Path) -> list[Path]:
    """Return the folders in `folder` that may be plugins, sorted by name; empty if it does not exist."""
    try:
        return sorted(path for path in folder.iterdir() if not _SKIPPED.match(path.name) and path.is_dir())
    except OSError:  # missing, or unreadable: other places still count
        return []


def packages(folder: Path) -> list[Path]:
    """Return the packages in `folder`, sorted by name; empty if the folder does not exist."""
    return [path for path in folders(folder) if is_package(path)]


def is_package(path: Path) -> bool:
    """Whether a folder has an `__init__.py`; one that cannot be read has none."""
    try:
        return (path / "__init__.py").is_file()
    except OSError:
        return False


def read_source(path: Path, most: int = MAX_SCANNED_BYTES) -> str:
    """Return the beginning of a file as text, for a scan without an import; empty if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def read_name(package: Path) -> str | None:
    """Return the name that a plugin gives itself in its manifest or its source; None if the text does not show it."""
    found = _MANIFEST_NAME.search(read_source(package / "plugin.yaml"))
    if found is not None:
        return found[1]
    found = _SOURCE_NAME.search(read_source(package / "__init__.py"))
    return (found[1] or found[2]) if found is not None else None


def newer_port(package: Path) -> int | None:
    """Return the port version that a plugin needs if it is newer than ours, else None."""
    match = _MANIFEST_PORT.search(read_source(package / "plugin.yaml"))
    return int(match[1]) if match is not None and int(match[1]) > PORT else None


def entry_points(group: str) -> list[EntryPoint]:
    """Return the installed entry points of `group`, also under its name before the rename from kept, sorted by name."""
    return list(_read_entry_points(group, tuple((place, _read_change_time(place)) for place in sys.path)))


def _read_change_time(place: str) -> int:
    """Return when a package was last added to or removed from a folder."""
    try:
        return os.stat(place or os.curdir).st_mtime_ns  # noqa: PTH116 - a name in sys.path, without building a Path
    except OSError:
        return 0


@lru_cache(maxsize=8)  # reading the files of all packages takes 25 ms, and a command asks several times
def _read_entry_points(group: str, _places: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points as installed

    points = {point.name: point for name in (former_group(group), group) for point in installed(group=name)}
    return tuple(points[name] for name in sorted(points))


def former_group(group: str) -> str:
    """Return the name that a group of entry points had when the package was called kept; plugins still declare it."""
    return group.removeprefix("well")


def module_name(package: Path) -> str:
    """Return the name under which a plugin folder is imported; folders of two homes never share one."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", package.name)
    return f"{PARENT}.{plain}_{sha256(str(package).encode()).hexdigest()[:8]}"


def import_package(package: Path) -> ModuleType:
    """Import a plugin folder from its files as they are now; a failed import leaves nothing in `sys.modules`.

    It is a package below `PARENT`, so that relative imports work, also those inside functions that run later.
    """
    name = module_name(package)
    if PARENT not in sys.modules:
        parent = ModuleType(PARENT, "Plugins of kept.")
        parent.__path__ = []
        sys.modules[PARENT] = parent
    _remove_modules(name)
    _owners[name] = package.name
    importlib.invalidate_caches()
    spec = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None and spec.loader is not None  # noqa: PT018 - one fact: a package is a source file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        _remove_modules(name)
        raise
    return module


def _remove_modules(name: str) -> None:
    for module in [known for known in list(sys.modules) if known == name or known.startswith(f"{name}.")]:
        del sys.modules[module]


@contextmanager
def running_plugin(name: str) -> Iterator[None]:
    """Mark what runs in the block as code of the plugin `name`."""
    token = _running.set(name)
    try:
        yield
    finally:
        _running.reset(token)


def find_running_plugin() -> str | None:
    """Return whose code runs: the marked plugin, or the plugin folder that a function on the stack comes from.

    A thread that a plugin started has no mark, but the plugin's functions are on its stack.
    """
    marked = _running.get()
    if marked is not None or not _owners:
        return marked
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to look at the callers
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if isinstance(name, str) and name.startswith(f"{PARENT}."):
            return _owners.get(".".join(name.split(".")[:2]))
        frame = frame.f_back
    return None

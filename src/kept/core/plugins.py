"""Plugins: packages in folders and entry points, discovered without importing them."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from pathlib import Path
    from types import ModuleType


def packages(folder: Path) -> list[Path]:
    """Return the packages in `folder`, sorted by name; empty if the folder does not exist."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _is_package(path))


def entry_points(group: str) -> list[EntryPoint]:
    """Return the installed entry points of `group`, sorted by name."""
    from importlib.metadata import entry_points as installed

    return sorted(installed(group=group), key=lambda point: point.name)


def import_package(package: Path, name: str) -> ModuleType:
    """Import a package outside `sys.path` as `name`; a failed import leaves nothing in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None and spec.loader is not None  # noqa: PT018 - one fact: a package is a source file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _is_package(path: Path) -> bool:
    try:
        return (path / "__init__.py").is_file()
    except OSError:  # an unreadable folder hides only itself
        return False

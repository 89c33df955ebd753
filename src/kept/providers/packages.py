"""Packages that a plugin names in its `plugin.yaml`: which are missing, and how they are installed."""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution

from kept.providers.discovery import Found

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")
_REQUIREMENT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._\[\],<>=!~ -]*$")


def missing_packages(found: Found) -> list[str]:
    """Return the requirements of a plugin whose packages are not installed; what is no requirement is passed over."""
    declared = found.about.get("pip_dependencies")
    wanted = [each for each in declared if isinstance(each, str)] if isinstance(declared, list) else []
    return [each for each in wanted if _REQUIREMENT.match(each) and not _is_installed(each)]


def external_hints(found: Found) -> list[str]:
    """Return what a plugin says of programs it needs; they are shown, never run."""
    declared = found.about.get("external_dependencies")
    hints = []
    for each in declared if isinstance(declared, list) else ():
        if isinstance(each, dict) and each.get("name"):
            parts = [f"needs {each['name']}"]
            parts += [f"{word}: {each[word]}" for word in ("install", "check") if each.get(word)]
            hints.append("; ".join(parts))
    return hints


def install(requirements: Sequence[str]) -> bool:
    """Install packages into this environment with uv if it is there, else with pip; tell whether that worked."""
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

"""Packages that a provider needs: which are missing, and how they are installed."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, distribution

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")
_REQUIREMENT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._\[\],<>=!~ -]*$")


def missing(requirements: Iterable[str]) -> list[str]:
    """Return the requirements whose packages are not installed; what is no requirement is passed over."""
    return [each for each in requirements if _REQUIREMENT.match(each) and not _is_installed(each)]


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

"""How this program was installed: what starts it, and what a person runs to add an extra."""

import json
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "wellkept"
_FORMER = "kept"
"""The name of our command, and of a distribution on the index that belongs to somebody else."""


def name_install(extra: str) -> str:
    """Return the command that adds an extra.

    It names the folder or wheel that this program was installed from, because a name on the index may be somebody
    else's; only what was installed from an index is installed from there again.
    """
    return f"pip install '{_find_source() or DISTRIBUTION}[{extra}]'"


def _find_source() -> str | None:
    """Return the folder or wheel behind this installation; None if it came from an index."""
    from importlib.metadata import PackageNotFoundError, distribution  # takes 0.1 s, and only a hint needs it

    checkout = Path(__file__).parents[3]
    try:
        record = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:  # run from its source, without an installation
        return str(checkout)
    if record is None:
        return str(checkout) if (checkout / "pyproject.toml").is_file() else None
    url = urlsplit(str(json.loads(record).get("url", "")))
    return unquote(url.path) if url.scheme == "file" else None


def find_program() -> tuple[str, ...]:
    """Return how this program is started, with absolute paths."""
    for name in (_FORMER, DISTRIBUTION):
        script = find_script(name)
        if script.exists() and is_ours(script):
            return (str(script),)
    return (sys.executable, "-m", DISTRIBUTION)


def find_script(name: str = _FORMER) -> Path:
    """Return where a script of this environment is, if it exists."""
    return Path(sys.executable).with_name(f"{name}.exe" if sys.platform == "win32" else name)


def is_ours(script: Path) -> bool:
    """Whether a script starts this program and not one of the same name from another package."""
    try:
        return b"wellkept" in script.read_bytes()
    except OSError:
        return False


def has_foreign_package() -> bool:
    """Whether this environment has the package of somebody else that is called like our command."""
    from importlib.metadata import distributions

    return any((found.name or "").lower() == _FORMER for found in distributions(name=_FORMER))

"""The secrets file `.env`: readable by its owner only, weaker than the environment."""

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from kept.core.errors import UsageError
from kept.storage.files import make_folder, read_bytes, write_atomically
from kept.storage.locks import locked

_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$")


def read_secrets(path: Path) -> dict[str, str]:
    """Return the variables of `path`; lines that are no assignment are passed over."""
    raw = read_bytes(path) or b""
    found = {}
    for line in raw.decode("utf-8-sig", "replace").splitlines():
        match = _LINE.match(line)
        if match and not line.lstrip().startswith("#"):
            found[match[1]] = _unquoted(match[2])
    return found


def with_secrets(environ: Mapping[str, str], path: Path) -> dict[str, str]:
    """Return the environment with the secrets of `path` beneath it: the environment wins."""
    return {**read_secrets(path), **environ}


def set_secret(path: Path, name: str, value: str) -> None:
    """Write one variable, keeping every other line, and leave the file at 0600."""
    if not _NAME.match(name) or "\n" in value or "\0" in value:
        raise UsageError(
            f"{name!r} cannot be written to {path.name}", "use letters, digits and _, and one line of text"
        )
    make_folder(path.parent)
    with locked(path.with_name(f"{path.name}.lock")):
        lines = (read_bytes(path) or b"").decode("utf-8-sig", "replace").splitlines()
        kept = [line for line in lines if not ((match := _LINE.match(line)) and match[1] == name)]
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        write_atomically(path, "\n".join([*kept, f'{name}="{quoted}"', ""]).encode())
        path.chmod(0o600)


def is_exposed(path: Path) -> bool:
    """Whether people other than the owner can read the file."""
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except OSError:
        return False


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1]
    return text.partition(" #")[0].rstrip()

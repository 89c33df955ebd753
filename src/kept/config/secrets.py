"""The secrets file `.env`: readable by its owner only, weaker than the environment."""

import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kept.core.errors import UsageError
from kept.storage.files import make_folder, read_bytes, write_atomically
from kept.storage.locks import hold_lock

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)", re.DOTALL)
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)')(?:\s+#.*)?""", re.DOTALL)


def read_secrets(path: Path) -> dict[str, str]:
    """Return the variables of `path`; lines that are no assignment are passed over."""
    return {match[1]: _unquoted(match[2].rstrip()) for line in _lines(path) if (match := _LINE.fullmatch(line))}


def with_secrets(environ: Mapping[str, str], path: Path) -> dict[str, str]:
    """Return the environment with the secrets of `path` beneath it: the environment wins."""
    return {**read_secrets(path), **environ}


def set_secret(path: Path, name: str, value: str) -> None:
    """Write one variable, keeping every other line, and leave the file at 0600."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a variable", "use letters, digits and _, like OPENAI_API_KEY")
    if any(character in value for character in "\n\r\0"):
        raise UsageError(f"the value of {name} is more than one line of text", "give it as one line")
    make_folder(path.parent)
    with hold_lock(path.with_name(f"{path.name}.lock")):
        kept = [line for line in _lines(path) if not ((match := _LINE.fullmatch(line)) and match[1] == name)]
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        with suppress(FileNotFoundError):
            path.chmod(0o600)  # before, because the new bytes take the old mode
        text = "\n".join([*kept, f'{name}="{quoted}"', ""])
        write_atomically(path, text.encode("utf-8", "surrogateescape"))


def is_exposed(path: Path) -> bool:
    """Whether people other than the owner can read the file."""
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except OSError:
        return False


def _lines(path: Path) -> list[str]:
    """Return the lines of the file; bytes that are no text survive a rewrite as they are."""
    text = (read_bytes(path) or b"").decode("utf-8-sig", "surrogateescape")
    return text.removesuffix("\n").split("\n") if text else []


def _unquoted(text: str) -> str:
    if quoted := _QUOTED.fullmatch(text):
        return quoted[2] if quoted[1] is None else re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL)
    return "" if text.startswith("#") else text.partition(" #")[0].rstrip()

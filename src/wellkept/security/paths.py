"""The check that a path named by outside text stays inside its root."""

from pathlib import Path, PureWindowsPath

from wellkept.core.errors import UsageError

_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$", "clock$"]
    + [f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789\u00b9\u00b2\u00b3"]
)


def inside(root: Path, candidate: str | Path) -> Path:
    """Return `candidate` resolved below `root`, or raise UsageError.

    Refused on every platform, so that a name accepted here is safe to copy elsewhere: absolute
    paths, drive letters, `..`, symlinks that leave the root, NUL, Windows device names.
    """
    text = str(candidate)
    reason = refuse_spelling(text)
    if reason is None:
        base = root.resolve()
        try:
            resolved = (base / text).resolve()
        except (OSError, RuntimeError):
            reason = "cannot be resolved (a symlink loop?)"
        else:
            if resolved.is_relative_to(base):
                return resolved
            reason = "leads outside its folder"
    raise UsageError(f"the path {text!r} {reason}", f"give a plain relative path below {root.name!r}")


def refuse_spelling(text: str) -> str | None:
    """Return why the spelling of a path alone is unacceptable, or None."""
    windows = PureWindowsPath(text)
    if not text.strip():
        return "is empty"
    if "\0" in text:
        return "holds a NUL character"
    if text.startswith(("/", "\\", "~")) or windows.drive or windows.is_absolute():
        return "is absolute"
    if ".." in windows.parts:
        return "climbs with '..'"
    if any(_is_device(part) for part in windows.parts):
        return "names a Windows device"
    return None


def _is_device(part: str) -> bool:
    return part.split(".", 1)[0].split(":", 1)[0].rstrip(" ").casefold() in _DEVICES

"""Project files: instructions for agents in the working folder, scanned and truncated."""

from pathlib import Path

from kept.core.errors import StorageError
from kept.storage.files import read_bytes

KINDS = (".kept.md", "AGENTS.md", "CLAUDE.md", ".cursorrules")
"""File names in order of preference; only the first one found is used."""
WINDOW_SHARE = 0.06
CHARS_PER_TOKEN = 4


def project_root(folder: Path) -> Path:
    """Return the repository that `folder` is in, or the folder itself."""
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate
    return folder


def project_files(folder: Path, *, context_length: int) -> list[tuple[str, str]]:
    """Return name and text of the project file, blocked when unsafe and truncated when too long."""
    for kind in KINDS:
        for place in dict.fromkeys((folder, project_root(folder))):
            text = _read_text(place / kind)
            if text is not None:
                return [
                    (kind, _truncate(_block_unsafe(kind, text), int(context_length * WINDOW_SHARE) * CHARS_PER_TOKEN))
                ]
    return []


def _read_text(path: Path) -> str | None:
    try:
        raw = read_bytes(path) if path.is_file() else None
    except StorageError:
        return None
    text = raw.decode("utf-8", "replace").strip() if raw else ""
    return text or None


def _block_unsafe(kind: str, text: str) -> str:
    from kept.security.scan import Scope, scan  # slow to import, and most callers need only the project root

    verdict = scan(text, scope=Scope.CONTEXT)
    if not verdict.blocked:
        return text
    return f"[BLOCKED: {kind} matches {', '.join(verdict.rules)}; the person can look at the file]"


def _truncate(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[… cut after {most:,} of {len(text):,} characters]"

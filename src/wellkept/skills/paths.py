"""Paths inside a skill's folder: which names are safe on every platform, and reading without leaving the folder."""

import os
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.core.regular_files import open_regular

SUPPORT_FOLDERS = ("references", "templates", "scripts", "assets")
MAIN = "SKILL.md"
ROLLBACK_JOURNAL = ".curator/rollback.json"
"""Exists while a rollback of all skills runs; here so that looking for it does not load the curator."""
MOST_FILE_BYTES = 1_048_576
MOST_SKILL_BYTES = 16 * 1_048_576
"""What all files of a skill have together; the fonts and schemas of a document skill have a few."""
MOST_FILES = 1_000
"""Bounds the work per skill, whatever the files hold."""
MOST_DEPTH = 6
_FORBIDDEN = frozenset('<>:"|?*\\')
_PLAIN_REMEDY = "give a path such as 'references/api.md': plain names, at most six deep, '/' between them"


def refuse_path(file_path: str) -> Refused | None:
    """Return why the spelling of `file_path` is unsafe on some platform, or None when it is safe."""
    parts = file_path.split("/")
    if not file_path.strip() or len(parts) > MOST_DEPTH:
        return Refused(Reason.INVALID, f"{file_path[:80]!r} is not a path inside a skill", _PLAIN_REMEDY)
    if not file_path.isprintable() or unicodedata.normalize("NFC", file_path) != file_path:
        return Refused(Reason.INVALID, f"{file_path[:80]!r} holds characters that file systems change", _PLAIN_REMEDY)
    for part in parts:
        odd = not part or part[0] in ".~-" or part[-1] in ". " or part != part.strip() or _FORBIDDEN & set(part)
        if odd or len(part.encode()) > 200:
            return Refused(
                Reason.INVALID, f"{file_path[:80]!r} holds the name {part[:40]!r}, which is not safe", _PLAIN_REMEDY
            )
    from wellkept.security.paths import inside

    try:
        inside(Path("/nowhere"), file_path)
    except UsageError as error:
        return Refused(Reason.INVALID, error.message, _PLAIN_REMEDY)
    return None


def support_file(folder: Path, file_path: str, *, write: bool) -> Path | Refused:
    """Return the path of a support file below `folder`, or why it is refused."""
    refused = refuse_path(file_path)
    if refused is not None:
        return refused
    parts = file_path.split("/")
    if parts[-1].casefold() == MAIN.casefold() and (write or len(parts) == 1):
        remedy = "use skill_view without file_path to read it, and the actions edit or patch to change it"
        return Refused(Reason.INVALID, "SKILL.md is not a support file", remedy)
    if write and (parts[0] not in SUPPORT_FOLDERS or len(parts) < 2):
        remedy = f"put support files below {', '.join(f'{name}/' for name in SUPPORT_FOLDERS)}"
        return Refused(Reason.INVALID, f"{file_path!r} is not in a support folder", remedy)
    return _follow(folder, parts, write=write)


def _follow(folder: Path, parts: list[str], *, write: bool) -> Path | Refused:
    """Follow `parts` one by one, so that neither a link nor a case variant leads elsewhere."""
    place = folder
    for part in parts:
        twin = _case_variant(place, part)
        if twin is not None:
            error = f"{part!r} differs only by case from {twin!r}, which exists"
            return Refused(Reason.INVALID, error, f"write it as {twin!r}")
        place /= part
        if place.is_symlink() and (write or not _is_inside(folder, place)):
            return Refused(Reason.INVALID, f"{'/'.join(parts)!r} is a link that is not followed", "use the real file")
    if place.exists() and not place.is_symlink() and not place.is_file():
        return Refused(
            Reason.INVALID, f"{'/'.join(parts)!r} is not a regular file", "name a file, not a folder or device"
        )
    return place


def _case_variant(folder: Path, name: str) -> str | None:
    """Return an entry of `folder` that a case-insensitive file system would confuse with `name`."""
    try:
        entries = [entry.name for entry in folder.iterdir()]
    except OSError:
        return None
    return next((entry for entry in entries if entry != name and entry.casefold() == name.casefold()), None)


def _is_inside(folder: Path, link: Path) -> bool:
    try:
        return link.resolve(strict=True).is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return False


def read_regular(path: Path, *, most_bytes: int = MOST_FILE_BYTES) -> bytes | None:
    """Return the bytes of a regular file of at most `most_bytes`, None for anything else.

    Never blocks on a pipe or a device at that path.
    """
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
                return None
            data = file.read(most_bytes + 1)
    except OSError:
        return None
    return data if len(data) <= most_bytes else None


def files_of(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the relative path and status of every file in a skill's folder, sorted; links are not followed."""
    for base, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if Path(base, name).is_symlink()]
        folders[:] = [name for name in folders if name not in links and name not in {".git", "__pycache__"}]
        for name in sorted((*names, *links)):
            path = Path(base, name)
            yield path.relative_to(folder).as_posix(), path.lstat()


def is_text(data: bytes) -> bool:
    """Tell whether `data` is UTF-8 text."""
    if b"\0" in data[:8192]:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True

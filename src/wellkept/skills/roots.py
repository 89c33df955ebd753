"""Where skills are: the folders that hold them, in order of precedence, and safe paths inside the folder of one."""

import json
import os
import stat
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.core.plugins import entry_points, former_group
from wellkept.core.regular_files import open_regular
from wellkept.core.text import resource_path
from wellkept.storage.files import read_bytes, write_atomically
from wellkept.storage.locks import hold_lock

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
    """Whether `data` is UTF-8 text."""
    if b"\0" in data[:8192]:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


ENTRY_POINTS = "wellkept.skills"
TRUSTED_FILE = ".trusted.json"


class Kind(StrEnum):
    """Whose folder it is."""

    PROJECT = "project"
    HOME = "home"
    """The folder of the user for whom the library was opened."""
    OWNER = "owner"
    """The owner's folder, as another user reads it."""
    PERSON = "person"
    EXTERNAL = "external"
    BUNDLED = "bundled"
    PLUGIN = "plugin"


class Root(Struct, frozen=True):
    """One folder of skills; only the user's own, of kind HOME, is ever written."""

    path: Path
    kind: Kind
    plugin: str | None = None

    def full_name(self, name: str) -> str:
        """Return the name by which a skill of this root is called."""
        return f"{self.plugin}:{name}" if self.plugin else name

    @property
    def is_copied_on_write(self) -> bool:
        """Whether the first change of a skill of this root copies it to the user's own folder."""
        return self.kind in {Kind.BUNDLED, Kind.OWNER}


def standard_roots(
    home: Path,
    *,
    owner: Path | None = None,
    person: Path | None,
    project: Path | None,
    external: Sequence[str] = (),
    bundled: bool = True,
) -> tuple[Root, ...]:
    """Return the roots for one user whose own skills are in `home`.

    `owner` is the owner's folder when the user is somebody else; it comes after the user's own
    and is only read. Skills of a project count only when this user trusts the project.
    """
    roots: list[Root] = []
    if project is not None and is_trusted(home, project):
        roots += [Root(project / ".agents" / "skills", Kind.PROJECT), Root(project / ".kept" / "skills", Kind.PROJECT)]
    roots.append(Root(home, Kind.HOME))
    if owner is not None:
        roots.append(Root(owner, Kind.OWNER))
    if person is not None:
        roots.append(Root(person / ".agents" / "skills", Kind.PERSON))
    for folder in external:
        path = Path(folder)
        if person is not None and path.parts[:1] == ("~",):
            path = person.joinpath(*path.parts[1:])
        roots.append(Root(path, Kind.EXTERNAL))
    if bundled:
        roots.append(Root(bundled_folder(), Kind.BUNDLED))
    seen: set[Path] = set()
    return tuple(root for root in roots if not (root.path in seen or seen.add(root.path)))  # type: ignore[func-returns-value] # add returns None, so that a new path passes


def bundled_folder() -> Path:
    """Return the folder of the skills that come with kept."""
    return resource_path("wellkept.skills", "bundled")


def plugin_roots() -> Iterator[Root]:
    """Yield the folders that installed packages offer under the entry point `wellkept.skills`.

    Finding the folder imports the parent packages; the package itself is not imported.
    """
    if not any(_offers_skills(Path(folder)) for folder in dict.fromkeys(sys.path) if folder):
        return
    from importlib.util import find_spec

    for point in entry_points(ENTRY_POINTS):
        try:
            spec = find_spec(point.module)
        except (ImportError, ValueError):
            continue
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield Root(Path(place), Kind.PLUGIN, plugin=point.name)
            break


def _offers_skills(folder: Path) -> bool:
    """Look for our entry point in the packages installed in `folder`; importlib.metadata takes 0.1 s to import."""
    try:
        return _find_offer(folder, folder.stat().st_mtime_ns)
    except OSError:
        return False


@lru_cache(maxsize=64)  # a server opens an agent for each conversation
def _find_offer(folder: Path, _changed: int) -> bool:
    """Search the folder again only after packages were installed or removed there."""
    marks = [f"[{group}]".encode() for group in (ENTRY_POINTS, former_group(ENTRY_POINTS))]
    packages = [entry.path for entry in os.scandir(folder) if entry.name.endswith((".dist-info", ".egg-info"))]
    offers = (read_regular(Path(package, "entry_points.txt")) or b"" for package in packages)
    return any(mark in offer for offer in offers for mark in marks)


def is_trusted(home: Path, project: Path) -> bool:
    """Whether the user who owns `home` trusts the project's skills."""
    return str(project.resolve()) in trusted_projects(home)


def trusted_projects(home: Path) -> tuple[str, ...]:
    """Return the projects whose skills the user trusts."""
    raw = read_bytes(home / TRUSTED_FILE)
    try:
        listed = json.loads(raw) if raw else []
    except ValueError:
        return ()  # if the list cannot be read, no project is trusted
    return tuple(item for item in listed if isinstance(item, str)) if isinstance(listed, list) else ()


def set_trust(home: Path, project: Path, *, trusted: bool) -> None:
    """Record whether the skills of `project` may be used."""
    with hold_lock(home / f"{TRUSTED_FILE}.lock"):
        projects = set(trusted_projects(home)) - {str(project.resolve())}
        if trusted:
            projects.add(str(project.resolve()))
        write_atomically(home / TRUSTED_FILE, json.dumps(sorted(projects), indent=1).encode())

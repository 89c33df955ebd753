"""The folders that hold skills, in order of precedence: the first root with a name wins."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from wellkept.core.plugins import entry_points, former_group
from wellkept.core.text import resource_path
from wellkept.skills.paths import read_regular
from wellkept.storage.files import read_bytes, write_atomically
from wellkept.storage.locks import hold_lock

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
        """Tell whether the first change of a skill of this root copies it to the user's own folder."""
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
    """Tell whether the user who owns `home` trusts the project's skills."""
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

"""Cleanup after a migration from OpenClaw: rename its folders, so that nothing uses them any more."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, field

from wellkept.app.caller import Caller, Scope
from wellkept.core.errors import Reason, Refused, StorageError
from wellkept.core.text import JSON
from wellkept.core.values import JsonStruct
from wellkept.storage.files import move

SUFFIX = ".pre-migration"


class Renaming(JsonStruct, frozen=True):
    """A folder of OpenClaw and the name that it gets."""

    old: Path = field(name="from")
    new: Path = field(name="to")
    total_bytes: int = field(name="bytes")

    def as_json(self) -> dict[str, JSON]:
        """Return both names, the size, and how to undo it."""
        return {**super().as_json(), "undo": self.undo}

    @property
    def undo(self) -> str:
        """Return the command that undoes the renaming."""
        from shlex import quote

        return f"mv {quote(str(self.new))} {quote(str(self.old))}"


class Cleanup(Struct, frozen=True):
    """What a cleanup does, or with `is_preview` would do."""

    renamings: tuple[Renaming, ...]
    warnings: tuple[str, ...]
    problems: tuple[tuple[str, str], ...] = ()
    is_preview: bool = True

    def as_json(self) -> dict[str, JSON]:
        """Return the renamings, warnings and problems."""
        return {
            "dry_run": self.is_preview,
            "renamed": [renaming.as_json() for renaming in self.renamings],
            "warnings": list(self.warnings),
            "problems": [{"where": where, "what": what} for where, what in self.problems],
        }


def preview_cleanup(caller: Caller, place: Path | None = None) -> Cleanup | Refused:
    """Return what a cleanup would rename; refuse if there is nothing. Nothing is changed."""
    from wellkept.formats.openclaw import OpenClaw
    from wellkept.formats.openclaw_config import find_running, load_config

    looked = [place] if place is not None else OpenClaw().find_roots(caller.app.environ)
    found = [path.absolute() for path in looked if path.is_dir() and not path.name.endswith(SUFFIX)]
    if not found:
        places = ", ".join(str(path) for path in looked)
        return Refused(Reason.NO_MATCH, f"there is no folder of OpenClaw in {places}", "give the folder with --source")
    own = caller.app.home.path.absolute()
    inside = next((path for path in found if own.is_relative_to(path)), None)
    if inside is not None:
        return Refused(Reason.INVALID, f"{str(inside)!r} contains kept's own home", "move kept's home elsewhere first")
    warnings = []
    for path in found:
        try:
            config = load_config(path)
        except (OSError, ValueError, RecursionError):
            config = {}
        running = find_running(config)
        if running is not None:
            warnings.append(f"{running}: stop it first, or it creates {path} again")
    renamings = tuple(Renaming(path, _choose_name(path), _measure(path)) for path in found)
    return Cleanup(renamings, tuple(dict.fromkeys(warnings)))


def run_cleanup(caller: Caller, plan: Cleanup) -> Cleanup:
    """Rename the folders of a plan; one that cannot be renamed is a problem, not the end."""
    caller.require(Scope.ADMIN)
    done, problems = [], []
    for renaming in plan.renamings:
        if renaming.new.exists():  # a rename would replace an empty folder
            problems.append((str(renaming.old), "cannot be renamed: a file of that name has appeared"))
            continue
        try:
            move(renaming.old, renaming.new)
            done.append(renaming)
        except StorageError as error:
            problems.append((str(renaming.old), error.message))
    return Cleanup(tuple(done), plan.warnings, tuple(problems), is_preview=False)


def _choose_name(path: Path) -> Path:
    """Return the new name of a folder; one that an earlier cleanup used gets a number."""
    name = path.with_name(f"{path.name}{SUFFIX}")
    number = 2
    while name.exists():
        name = path.with_name(f"{path.name}{SUFFIX}-{number}")
        number += 1
    return name


def _measure(path: Path) -> int:
    total = 0
    for one in path.rglob("*"):
        try:
            total += 0 if one.is_symlink() or not one.is_file() else one.stat().st_size
        except OSError:
            continue
    return total

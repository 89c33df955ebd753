"""Profiles (separate homes under one root): create, copy, rename, export, delete; and their settings."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct, field

from wellkept.app.caller import Caller
from wellkept.app.root import explain_no_person_at
from wellkept.config.home import (
    DEFAULT_PROFILE,
    Home,
    active_profile,
    check_profile_name,
    choose_profile,
    settle_active_profile,
)
from wellkept.core.errors import NotFound, StorageError, UsageError
from wellkept.core.regular_files import explain_errors
from wellkept.core.text import JSON
from wellkept.core.values import JsonStruct, asdict
from wellkept.storage.files import (
    SCRATCH_FOLDER,
    make_folder,
    move,
    open_replacement,
    open_scratch,
    publish,
    remove_stale_temps,
    remove_unfinished,
)
from wellkept.storage.log_recovery import is_lone_log
from wellkept.storage.maintenance import copy_file

_LEFT_OUT = re.compile(r"^\.env(\.|$)|\.lock$|\.db-(wal|shm|journal)$|^\.clone-|\.kept-tmp-")
"""Secrets, locks and temporary files, which no copy contains."""
_PASSWORD = re.compile(r"(://[^/?#\s:@]*:).*@")
"""Up to the last @, because a password may contain one."""


class Profile(JsonStruct, frozen=True):
    """A profile and its state."""

    name: str
    path: Path
    state: str
    is_active: bool = field(default=False, name="_is_active")


def list_profiles(root: Path) -> list[Profile]:
    """Return every profile of a root, the default one first."""
    folder = root / "profiles"
    names = [DEFAULT_PROFILE, *sorted(path.name for path in folder.glob("*") if path.is_dir())]
    active = active_profile(root)
    return [Profile(name, Home(root, name).path, "", is_active=name == active) for name in names]


def create_profile(root: Path, name: str) -> Profile:
    """Create an empty profile."""
    home = _new_home(root, name)
    make_folder(home.path)
    return Profile(name, home.path, "created")


def use_profile(root: Path, name: str) -> Profile:
    """Use a profile when none is named."""
    home = Home(root, name) if name == DEFAULT_PROFILE else find_profile(root, name)
    choose_profile(root, name)
    return Profile(name, home.path, "active", is_active=True)


def clone_profile(root: Path, source: str, name: str) -> Profile:
    """Copy a profile without its secrets."""
    origin, home = find_profile(root, source), _new_home(root, name)
    with explain_errors("copy to", home.path), open_scratch(root) as folder:
        publish(_copy(origin.path, folder / name), home.path)
    return Profile(name, home.path, f"cloned from {source}")


def rename_profile(root: Path, old: str, new: str) -> Profile:
    """Give a profile another name."""
    if old == DEFAULT_PROFILE:
        raise UsageError("the default profile is the home itself and keeps its name", "clone it instead")
    origin, home = find_profile(root, old), _new_home(root, new)
    with _keep_active(root, old, instead=new), explain_errors("rename", origin.path):
        move(origin.path, home.path)
    return Profile(new, home.path, f"renamed from {old}")


def export_profile(root: Path, name: str, file: Path) -> Profile:
    """Write a profile to a zip without its secrets."""
    import zipfile

    home = find_profile(root, name)
    if file.exists():
        raise UsageError(f"{str(file)!r} exists already", "choose another file")
    remove_unfinished(root)
    remove_stale_temps(file)
    with explain_errors("write", file), open_scratch(root) as folder:
        copy = _copy(home.path, folder / "profile")
        with (
            open_replacement(file) as packed,
            zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
        ):
            for path in sorted(path for path in copy.rglob("*") if path.is_file()):
                archive.write(path, str(path.relative_to(copy)))
    return Profile(name, home.path, f"exported to {file}")


def delete_profile(root: Path, name: str) -> Profile:
    """Delete a profile with everything in it."""
    remove_unfinished(root)
    home = find_deletable(root, name)
    keep_active = _keep_active(root, name, instead=DEFAULT_PROFILE)
    with explain_errors("delete", home.path), open_scratch(root) as folder, keep_active:
        move(home.path, folder / name)
    return Profile(name, home.path, "deleted")


def find_profile(root: Path, name: str) -> Home:
    """Return the home of a profile; raises NotFound."""
    home = Home(root, check_profile_name(name))
    if not home.path.is_dir():
        raise NotFound(f"there is no profile {name!r}", "`kept profile list` shows all")
    return home


def find_deletable(root: Path, name: str) -> Home:
    """Return the home of a profile that may be deleted."""
    if name == DEFAULT_PROFILE:
        raise UsageError("the default profile is the home itself", "remove the folder by hand if you mean it")
    return find_profile(root, name)


@contextmanager
def _keep_active(root: Path, name: str, *, instead: str) -> Iterator[None]:
    """Make `instead` active, if `name` is, at the moment when the folder of `name` is moved."""
    if active_profile(root) == name:
        choose_profile(root, *((instead, name) if instead != DEFAULT_PROFILE else (name, instead)))
    try:
        yield
    finally:
        with suppress(StorageError):  # both names together mean the same; the next profile command shortens them
            settle_active_profile(root)


def _new_home(root: Path, name: str) -> Home:
    remove_unfinished(root)
    settle_active_profile(root)
    home = Home(root, check_profile_name(name))
    if name == DEFAULT_PROFILE or home.path.exists():
        raise UsageError(f"the profile {name!r} exists already", "choose another name, or delete it first")
    return home


def _copy(source: Path, target: Path) -> Path:
    """Copy a profile without its secrets; databases are copied consistently even while another process writes."""

    def find_left_out(folder: str, names: list[str]) -> set[str]:
        own = {name for name in names if _LEFT_OUT.search(name) and not is_lone_log(Path(folder, name))}
        return own | ({"profiles", "active_profile", SCRATCH_FOLDER} & set(names) if Path(folder) == source else set())

    shutil.copytree(source, target, ignore=find_left_out, copy_function=copy_file, ignore_dangling_symlinks=True)
    return target


class SettingsView(Struct, frozen=True):
    """The requested settings by name: value and origin."""

    rows: Mapping[str, tuple[JSON, str]]

    def as_json(self) -> dict[str, JSON]:
        """Return value and origin by name."""
        return {name: {"value": value, "origin": origin} for name, (value, origin) in self.rows.items()}


def explain_no_person(home: Home, environ: Mapping[str, str]) -> str:
    """Return why this process cannot take the decisions of a person about a home; empty if it can."""
    return explain_no_person_at(home, environ)


def hide_password(value: JSON) -> JSON:
    """Return a setting without the password in a URL."""
    return _PASSWORD.sub(r"\1***@", value) if isinstance(value, str) else value


def show_settings(caller: Caller, key: str | None = None) -> SettingsView:
    """Return every setting, one section or one setting; raises UsageError for an unknown name."""
    from wellkept.config.settings import known_keys, nearest

    rows: dict[str, tuple[JSON, str]] = {}
    values = asdict(caller.app.settings)
    for name in known_keys():
        if key in (None, name) or name.startswith(f"{key}."):
            value = values
            for part in name.split("."):
                value = value[part]
            rows[name] = (hide_password(value), caller.app.origins.get(name, "default"))
    if not rows:
        names = [*known_keys(), *{name.rpartition(".")[0] for name in known_keys()}]
        raise UsageError(f"there is no setting {key!r}{nearest(key or '', names)}", "`kept config show` lists all")
    return SettingsView(rows)

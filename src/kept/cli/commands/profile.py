"""`kept profile`: separate homes for separate lives."""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from kept.cli import completion
from kept.cli.terminal import JsonFlag, YesFlag, confirm, fail, invocation, opened, print_json, say
from kept.config.home import DEFAULT_PROFILE, Home, active_profile, checked_profile, choose_profile, find_home
from kept.core.errors import NotFound, UsageError
from kept.storage.files import explain_errors, make_folder
from kept.storage.maintenance import copy_file

NameArgument = Annotated[str, typer.Argument(help="The name of the profile.", autocompletion=completion.profiles)]

app = typer.Typer(no_args_is_help=True, help="Separate homes for separate lives.", rich_markup_mode=None)
_LEFT_OUT = re.compile(r"^\.env(\.|$)|\.lock$|\.db-(wal|shm|journal)$|^\.(clone|kept-export)-|\.kept-tmp-")


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(app, name="profile")


def _root() -> Path:
    import os

    return find_home(invocation.home, DEFAULT_PROFILE, os.environ).root


def _existing(root: Path, name: str) -> Home:
    home = Home(root, checked_profile(name))
    if not home.path.is_dir():
        raise NotFound(f"there is no profile {name!r}", "`kept profile list` shows all")
    return home


def _fresh(root: Path, name: str) -> Home:
    home = Home(root, checked_profile(name))
    if name == DEFAULT_PROFILE or home.path.exists():
        raise UsageError(f"the profile {name!r} exists already", "choose another name, or delete it first")
    return home


@app.command("list")
def list_(as_json: JsonFlag = False) -> None:
    """List the profiles; the active one is marked."""
    root = _root()
    folder = root / "profiles"
    names = [DEFAULT_PROFILE, *sorted(path.name for path in folder.glob("*") if path.is_dir())]
    active = active_profile(root)
    if as_json:
        print_json([{"name": name, "active": name == active, "path": str(Home(root, name).path)} for name in names])
        return
    for name in names:
        say(f"{'*' if name == active else ' '} {name}  {Home(root, name).path}")


@app.command()
def create(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Create an empty profile."""
    home = _fresh(_root(), name)
    make_folder(home.path)
    _told(home, "created", as_json=as_json)


@app.command()
def use(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Use a profile when none is named with -p."""
    root = _root()
    home = Home(root, name) if name == DEFAULT_PROFILE else _existing(root, name)
    choose_profile(root, name)
    _told(home, "active", as_json=as_json)


@app.command()
def clone(source: NameArgument, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Copy a profile, secrets left out."""
    root = _root()
    origin, home = _existing(root, source), _fresh(root, name)
    make_folder(home.path.parent)
    with explain_errors("copy to", home.path), tempfile.TemporaryDirectory(prefix=".clone-", dir=root) as folder:
        _copy(origin.path, Path(folder) / name).rename(home.path)
    _told(home, f"cloned from {source}", as_json=as_json)


@app.command()
def rename(old: NameArgument, new: NameArgument, as_json: JsonFlag = False) -> None:
    """Give a profile another name."""
    root = _root()
    if old == DEFAULT_PROFILE:
        raise UsageError("the default profile is the home itself and keeps its name", "clone it instead")
    origin, home = _existing(root, old), _fresh(root, new)
    with explain_errors("rename", origin.path):
        origin.path.rename(home.path)
    if active_profile(root) == old:
        choose_profile(root, new)
    _told(home, f"renamed from {old}", as_json=as_json)


@app.command()
def export(
    name: NameArgument, file: Annotated[Path, typer.Argument(help="A .zip to write.")], as_json: JsonFlag = False
) -> None:
    """Write a profile to a zip, secrets left out."""
    import zipfile

    home = _existing(_root(), name)
    if file.exists():
        raise UsageError(f"{str(file)!r} exists already", "choose another file")
    with explain_errors("write", file), tempfile.TemporaryDirectory(prefix=".kept-export-", dir=file.parent) as folder:
        copy, packed = _copy(home.path, Path(folder) / "profile"), Path(folder) / "profile.zip"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for path in sorted(path for path in copy.rglob("*") if path.is_file()):
                archive.write(path, str(path.relative_to(copy)))
        packed.chmod(0o600)
        packed.rename(file)
    _told(home, f"exported to {file}", as_json=as_json)


@app.command()
def delete(name: NameArgument, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Delete a profile with everything in it."""
    root = _root()
    if name == DEFAULT_PROFILE:
        raise UsageError("the default profile is the home itself", "remove the folder by hand if you mean it")
    home = _existing(root, name)
    if not confirm(f"Delete {home.path} with everything in it?", yes=yes):
        fail("nothing was changed", code=1)
    if active_profile(root) == name:
        choose_profile(root, DEFAULT_PROFILE)
    with explain_errors("delete", home.path):
        shutil.rmtree(home.path)
    _told(home, "deleted", as_json=as_json)


@app.command()
def show(as_json: JsonFlag = False) -> None:
    """Print the profile in use and where it lives."""
    with opened() as kept:
        _told(kept.home, "in use", as_json=as_json)


def _copy(source: Path, target: Path) -> Path:
    """Copy a profile without its secrets; databases are copied whole even while another process writes."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        own = {name for name in names if _LEFT_OUT.search(name)}
        return own | ({"profiles", "active_profile"} & set(names) if Path(folder) == source else set())

    shutil.copytree(source, target, ignore=left_out, copy_function=copy_file, ignore_dangling_symlinks=True)
    return target


def _told(home: Home, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"name": home.profile, "path": str(home.path), "state": what})
    else:
        say(f"{home.profile}: {what} ({home.path})")

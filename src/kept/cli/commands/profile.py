"""`kept profile`: separate homes for separate lives."""

import os
from pathlib import Path
from typing import Annotated

import typer

from kept.cli import terminal
from kept.cli.terminal import JsonFlag, YesFlag, confirm, fail, invocation, open_caller, print_json, printable, say
from kept.config.home import DEFAULT_PROFILE, find_home
from kept.operations import profiles

NameArgument = Annotated[
    str, typer.Argument(help="The name of the profile.", autocompletion=terminal.complete_profiles)
]

app = typer.Typer(no_args_is_help=True, help="Separate homes for separate lives.", rich_markup_mode=None)


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(app, name="profile")


def _root() -> Path:
    return find_home(invocation.home, DEFAULT_PROFILE, os.environ).root


@app.command("list")
def list_(as_json: JsonFlag = False) -> None:
    """List the profiles; the active one is marked."""
    found = profiles.list_profiles(_root())
    if as_json:
        print_json([{"name": one.name, "active": one.is_active, "path": str(one.path)} for one in found])
        return
    for one in found:
        say(printable(f"{'*' if one.is_active else ' '} {one.name}  {one.path}"))


@app.command()
def create(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Create an empty profile."""
    _show(profiles.create_profile(_root(), name), as_json=as_json)


@app.command()
def use(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Use a profile when none is named with -p."""
    _show(profiles.use_profile(_root(), name), as_json=as_json)


@app.command()
def clone(source: NameArgument, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Copy a profile, secrets left out."""
    _show(profiles.clone_profile(_root(), source, name), as_json=as_json)


@app.command()
def rename(old: NameArgument, new: NameArgument, as_json: JsonFlag = False) -> None:
    """Give a profile another name."""
    _show(profiles.rename_profile(_root(), old, new), as_json=as_json)


@app.command()
def export(
    name: NameArgument, file: Annotated[Path, typer.Argument(help="A .zip to write.")], as_json: JsonFlag = False
) -> None:
    """Write a profile to a zip, secrets left out."""
    _show(profiles.export_profile(_root(), name, file), as_json=as_json)


@app.command()
def delete(name: NameArgument, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Delete a profile with everything in it."""
    home = profiles.find_deletable(_root(), name)
    if not confirm(f"Delete {home.path} with everything in it?", yes=yes):
        fail("nothing was changed", code=1)
    _show(profiles.delete_profile(_root(), name), as_json=as_json)


@app.command()
def show(as_json: JsonFlag = False) -> None:
    """Print the profile in use and where it lives."""
    with open_caller() as caller:
        home = caller.app.home
    _show(profiles.Profile(home.profile, home.path, "in use"), as_json=as_json)


def _show(profile: profiles.Profile, *, as_json: bool) -> None:
    if as_json:
        print_json(profile.as_json())
    else:
        say(printable(f"{profile.name}: {profile.state} ({profile.path})"))

"""`kept version`."""

import platform

import typer

from kept import __version__
from kept.cli.terminal import JsonFlag, print_json, say


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("version")(version)


def version(as_json: JsonFlag = False) -> None:
    """Print the version."""
    if as_json:
        print_json({"kept": __version__, "python": platform.python_version(), "system": platform.platform()})
    else:
        say(f"kept {__version__} (Python {platform.python_version()})")

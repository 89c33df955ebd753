"""`kept backup` and `kept restore`: a home in one file, and back."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kept import operations
from kept.cli.terminal import JsonFlag, ask, count_noun, fail, note, open_caller, print_json, refuse, say
from kept.core.errors import Refused, UsageError

if TYPE_CHECKING:
    from kept.operations.backup import BackupReport

PassphraseFlag = Annotated[
    str | None,
    typer.Option("--passphrase-env", metavar="NAME", help="Take the passphrase from this environment variable."),
]


def register(program: typer.Typer) -> None:
    """Add the commands of this module."""
    program.command("backup")(backup)


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write, or a folder for a new file in it.")],
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Encrypt it with a passphrase; `age -d` opens it.")
    ] = False,
    passphrase_env: PassphraseFlag = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Read it back and compare all checksums.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write everything to one file: pages, ledger, conversations, skills, and settings without keys.

    It is safe while other processes write. The owner's backup contains all users, another user's only their own.
    """
    passphrase = read_passphrase(passphrase_env, twice=True) if encrypt or passphrase_env is not None else None
    with open_caller() as caller:
        made = operations.backup.create_backup(caller, file, overwrite=overwrite, passphrase=passphrase)
        if isinstance(made, Refused):
            refuse(made, as_json=as_json)
        if verify:
            operations.backup.verify_backup(caller, made.file, passphrase=passphrase)
    if as_json:
        print_json({"success": True, "verified": verify, **made.as_json()})
        return
    show_backup(made)
    say(f"{'written and verified' if verify else 'written'}: {made.file} ({_show_bytes(made.archive_bytes)})")


def show_backup(made: "BackupReport") -> None:
    """Print what is in a backup, and what is not."""
    nouns = {"pages": "page", "sessions": "session", "messages": "message", "skills": "skill", "users": "other user"}
    told = [count_noun(made.parts[name], noun) for name, noun in nouns.items() if made.parts.get(name)]
    size = f"{count_noun(made.files, 'file')}, {_show_bytes(made.content_bytes)}"
    say(f"{', '.join(told) or 'nothing stored yet'}; {size}")
    for one in made.left_out:
        if not one.is_needless:
            note(f"left out: {one.what} ({one.why})")
    for name in made.redacted:
        note(f"without its keys: {name}")
    for problem in made.problems:
        note(f"kept: {problem}")


def read_passphrase(variable: str | None, *, twice: bool = False) -> str:
    """Return the passphrase from an environment variable, or ask for it; never from the command line."""
    if variable is not None:
        found = os.environ.get(variable)
        if not found:
            raise UsageError(f"the environment variable {variable!r} is not set", "set it to the passphrase")
        return found
    if not sys.stdin.isatty():
        fail("there is no terminal to ask for the passphrase", "give --passphrase-env NAME", code=2)
    first = ask("passphrase", hidden=True)
    if twice and ask("again", hidden=True) != first:
        fail("the two passphrases differ", "run it again", code=2)
    return first


def _show_bytes(size: int) -> str:
    return f"{size:,} bytes" if size < 10_000 else f"{size / 1_000_000:,.2f} MB"

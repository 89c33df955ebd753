"""`kept user`: the people who share this home."""

from pathlib import Path
from typing import Annotated

import typer

from kept.cli.commands.export import write_export
from kept.cli.commands.forget import ask_and_forget
from kept.cli.terminal import JsonFlag, YesFlag, counted, open_caller, print_json, printable, refuse, say
from kept.core.errors import Refused
from kept.operations import forget as forgetting
from kept.operations import users

app = typer.Typer(no_args_is_help=True, help="The people who share this home.", rich_markup_mode=None)
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's id.")]


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(app, name="user")


@app.command("list")
def list_(as_json: JsonFlag = False) -> None:
    """List everyone who has memory here, with the number of their conversations."""
    with open_caller() as caller:
        found = users.list_users(caller)
    if as_json:
        print_json([user.as_json() for user in found])
        return
    for user in found:
        say(f"{printable(user.id):<24} {counted(user.sessions, 'session')}")


@app.command()
def create(user: UserArgument, as_json: JsonFlag = False) -> None:
    """Create a user with pages, skills and conversations of their own."""
    with open_caller() as caller:
        made = users.create_user(caller, user)
    if isinstance(made, Refused):
        refuse(made, as_json=as_json)
    if as_json:
        print_json({"success": True, **made.as_json()})
    else:
        say(printable(f"created {made.id}; use it with: kept --as {made.id} COMMAND"))


@app.command()
def export(
    user: UserArgument,
    output: Annotated[Path | None, typer.Option("--output", "--out", "-o", help="Write to this file.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write everything of one user as JSONL, as `kept export --user` does."""
    with open_caller(user) as caller:
        write_export(users.export_user(caller), output, as_json=as_json)


@app.command()
def forget(
    user: UserArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove everything of one user for good, as `kept forget --user` does."""
    with open_caller(user) as caller:
        ask_and_forget(caller, forgetting.plan_forget_user(caller), dry_run=dry_run, yes=yes, as_json=as_json)

"""`kept user` and `kept export`: the people who share a home, and their data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wellkept import forgetting, operations
from wellkept.app import Caller
from wellkept.cli.commands.forget import ask_and_forget
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    count_noun,
    expect,
    note,
    open_caller,
    print_json,
    print_json_line,
    refuse,
    say,
    show_json,
    write_lines,
)
from wellkept.core.errors import Reason, Refused
from wellkept.core.ids import OWNER
from wellkept.core.text import JSON, dumps

if TYPE_CHECKING:
    from wellkept.operations.users import UserExport


def register(program: typer.Typer) -> None:
    """Add the commands of this module."""
    program.add_typer(user_app, name="user")
    program.command("export")(export)


user_app = typer.Typer(no_args_is_help=True, help="The people who share this home.", rich_markup_mode=None)
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's id.")]


@user_app.command("list")
def user_list(as_json: JsonFlag = False) -> None:
    """List the users and the number of their sessions."""
    with open_caller() as caller:
        users = operations.users.list_users(caller)
    show_json(users, as_json=as_json)
    for user in users:
        say(f"{user.id:<24} {count_noun(user.sessions, 'session')}")


@user_app.command("create")
def user_create(user: UserArgument, as_json: JsonFlag = False) -> None:
    """Create a user with separate pages, skills and conversations."""
    with open_caller() as caller:
        made = expect(operations.users.create_user(caller, user), as_json=as_json)
    show_json({"success": True, **made.as_json()}, as_json=as_json)
    say(f"created {made.id}; use it with: kept --as {made.id} COMMAND")


@user_app.command("export")
def user_export(
    user: UserArgument,
    output: Annotated[Path | None, typer.Option("--output", "--out", "-o", help="Write to this file.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write everything of one user as JSONL; same as `kept export --user`."""
    with open_caller(user) as caller:
        write_export(caller, operations.users.export_user(caller), output, as_json=as_json)


@user_app.command("forget")
def user_forget(
    user: UserArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Permanently remove everything of one user; same as `kept forget --user`."""
    with open_caller(user) as caller:
        ask_and_forget(caller, forgetting.forget.plan_forget_user(caller), dry_run=dry_run, yes=yes, as_json=as_json)


_KINDS = {
    "session": "sessions",
    "message": "messages",
    "page": "pages",
    "edit": "edits",
    "pending": "pending writes",
    "skill": "skills",
}
_GRAPH_KINDS = {"entity": "entities", "relation": "relations"}


def export(
    user: Annotated[str, typer.Option("--user", help="Whose; without it the owner of this home.")] = OWNER,
    output: Annotated[Path | None, typer.Option("--output", "--out", "-o", help="Write to this file.")] = None,
    form: Annotated[
        str, typer.Option("--format", help="jsonl for everything; mcp-memory for the pages as a graph.")
    ] = "jsonl",
    as_json: JsonFlag = False,
) -> None:
    """Write everything of one user as JSONL: conversations, pages, edits, pending writes, and skills.

    Lines other than messages have a type. `kept sessions import` imports the conversations again.
    With --json, print one object; with --json and --output, print the counts.
    With --format mcp-memory: the entries of the pages as entities and relations, for the MCP memory server.
    """
    if form not in {"jsonl", "mcp-memory"}:
        unknown = Refused(Reason.INVALID, f"there is no format {form!r}", "use one of: jsonl, mcp-memory")
        refuse(unknown, as_json=as_json, code=2)
    with open_caller(user if user != OWNER else None) as caller:
        export_one = operations.users.export_user if form == "jsonl" else operations.users.export_graph
        write_export(caller, export_one(caller), output, as_json=as_json)


def write_export(caller: Caller, found: "UserExport", output: Path | None, *, as_json: bool) -> None:
    """Write the lines to a file or print them."""
    if output is not None:
        write_lines(output, (dumps(line) for line in found.lines), caller.app.home.root)
        _show_counts(found, output, as_json=as_json)
    elif as_json:
        print_json({"user": found.user, "lines": list(found.lines)})
    else:
        for line in found.lines:
            print_json_line(line)


def _show_counts(found: "UserExport", output: Path, *, as_json: bool) -> None:
    counts = found.counts
    if as_json:
        if counts["entity"]:
            numbers: dict[str, JSON] = {words: counts[kind] for kind, words in _GRAPH_KINDS.items()}
        else:
            numbers = {f"{kind}s" if kind != "pending" else kind: counts[kind] for kind in _KINDS}
        print_json({"user": found.user, "file": str(output), **numbers})
        return
    kinds = {**_KINDS, **_GRAPH_KINDS}
    told = ", ".join(f"{counts[kind]:,} {words}" for kind, words in kinds.items() if counts[kind])
    note(f"{told} in {output}")

"""`kept storage`: where the home is stored, and its migration to a PostgreSQL server and back."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from wellkept import operations
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    confirm,
    count_noun,
    expect,
    fail,
    note,
    open_caller,
    print_json,
    say,
    say_exactly,
    show_json,
)
from wellkept.core.errors import UsageError

if TYPE_CHECKING:
    from wellkept.app import Caller
    from wellkept.operations.storage import MoveReport
    from wellkept.storage.postgres.rewrite import Rewritten

storage_app = typer.Typer(no_args_is_help=True, help="Where the home is stored.", rich_markup_mode=None)

OwnerFlag = Annotated[
    str | None,
    typer.Option("--owner-url-env", metavar="NAME", help="The variable with the URL of the role that owns the tables."),
]


def register(program: typer.Typer) -> None:
    """Add the commands of this module."""
    program.add_typer(storage_app, name="storage")


@storage_app.command("status")
def status(as_json: JsonFlag = False) -> None:
    """Print where the home is stored and its size; for a server, also version and role."""
    with open_caller() as caller:
        storage = operations.storage.show_storage(caller)
    show_json(storage, as_json=as_json)
    say(f"{storage.kind}: {storage.place}")
    for name, value in storage.facts.items():
        say(f"{name:12} {value:,}" if isinstance(value, int) else f"{name:12} {value}")


@storage_app.command("migrate")
def migrate(
    to: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="A postgresql:// URL, or `sqlite` for files in the home.")
    ] = None,
    owner_url_env: OwnerFlag = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Copy the home to a server or back to files, verify the copy, and use it from then on.

    Stop other processes of this home first. The same command continues an interrupted run; the old data stays as it
    was. Without --to, only create or update the tables on the server, as their owner.
    """
    with open_caller() as caller:
        if to is None or owner_url_env is not None:
            done = operations.storage.update_tables(caller, _find_owner_url(caller, owner_url_env))
            if as_json and to is None:
                print_json({"migrations": list(done)})
            else:
                note(f"migrations: {', '.join(map(str, done)) or 'none was due'}")
        if to is None:
            return
        if not confirm(f"Move this home to {operations.profiles.hide_password(to)}?", yes=yes):
            fail("nothing was moved", code=1)
        moved = expect(operations.storage.move_storage(caller, to), as_json=as_json)
    _show_move(moved, as_json=as_json)


def _show_move(moved: "MoveReport", *, as_json: bool) -> None:
    if as_json:
        print_json({"success": True, **moved.as_json()})
        return
    for user, tables in moved.users.items():
        counts = {one.table: one.rows for one in tables}
        told = ", ".join(f"{counts.get(table, 0):,} {table}" for table in ("sessions", "messages", "pages", "edits"))
        say(f"{user}: {told}")
    say(f"moved to {moved.to}: {moved.rows:,} rows, verified by count and checksum; {moved.setting}")


def _find_owner_url(caller: "Caller", variable: str | None) -> str:
    """Return the URL of the owner: from a variable, so that no password is in the list of processes."""
    if variable is None:
        url = caller.app.settings.storage.url
        if not url:
            raise UsageError("no server is named", "set storage.url, or give --owner-url-env NAME")
        return url
    url = os.environ.get(variable) or caller.app.environ.get(variable) or ""
    if not url:
        raise UsageError(f"the variable {variable} is not set", "set it to postgresql://OWNER:PASSWORD@HOST/DATABASE")
    return url


@storage_app.command("rewrite")
def rewrite(
    owner_url_env: OwnerFlag = None,
    query: Annotated[
        str | None, typer.Option("--query", help="Words that were forgotten: look for them in the server's files.")
    ] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Write every table on the server anew, so that its files keep nothing that was forgotten.

    Run it as the owner of the tables; each table is locked while it is written. --query needs a role that may read
    the files of the server. Exit code 1: tables still contain the words; 75: only the server's log does.
    """
    with open_caller() as caller:
        url = _find_owner_url(caller, owner_url_env)
        if not confirm("Lock and rewrite every table of kept on the server, of all users?", yes=yes):
            fail("nothing was rewritten", code=1)
        done = operations.storage.rewrite_tables(caller, url, words=query or "")
    if as_json:
        print_json(done.as_json())
    else:
        _show_rewrite(done, is_asked=query is not None)
    if done.files_left:
        fail("some tables still contain the words", "end old transactions on the server, then run it again", code=1)
    if done.log_files_left:
        fail("the server's log still contains the words", "the server overwrites it as it writes on", code=75)


def _show_rewrite(done: "Rewritten", *, is_asked: bool) -> None:
    say(f"rewritten: {count_noun(done.tables, 'table')}, {done.bytes_before:,} bytes before, {done.bytes_after:,} now")
    if not done.statistics:
        say("not rewritten: the planner's samples of columns, which only the owner of the database can rewrite")
    if not done.checkpoint:
        say("the server's log was not closed: this role may not run CHECKPOINT")
    for name in done.files_left:
        say(f"still in {name}")
    if done.log_files_left:
        say(f"still in {count_noun(done.log_files_left, 'file')} of the server's log")
    if done.files is not None:
        say(f"verified: the files of {count_noun(done.files, 'table or index', 'tables and indexes')} were searched")
    elif is_asked:
        say("not verified: this role may not read the files of the server")


@storage_app.command("create-role")
def create_role(
    role: Annotated[str, typer.Argument(help="The name of the serving role.")] = "kept",
    apply: Annotated[bool, typer.Option("--apply", help="Run the statements, after creating the tables.")] = False,
    owner_url_env: OwnerFlag = None,
    password_env: Annotated[
        str | None, typer.Option("--password-env", metavar="NAME", help="The variable with the role's password.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the statements that create the serving role, which row-level security limits; with --apply, run them."""
    with open_caller() as caller:
        url = _find_owner_url(caller, owner_url_env)
        statements = operations.storage.list_role_statements(caller, role, url)
        if apply:
            password = os.environ.get(password_env) if password_env is not None else None
            operations.storage.create_role(caller, role, url, password=password)
    if as_json:
        print_json({"role": role, "applied": apply, "statements": list(statements)})
    elif apply:
        say(f"the tables are up to date, and {role} may serve")
    else:
        for statement in statements:
            say_exactly(f"{statement};\n")

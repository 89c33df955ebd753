"""`kept serve`: this memory as a server, its tokens and the people of chat platforms; `kept mcp`: for one agent."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace
from typer.core import TyperGroup

from wellkept import operations
from wellkept.cli.terminal import (
    MOST_DAYS,
    JsonFlag,
    expect,
    fail,
    invocation,
    note,
    open_caller,
    print_json_line,
    say,
    show_json,
)
from wellkept.core.errors import KeptError
from wellkept.core.installation import name_install
from wellkept.gateway import state

if TYPE_CHECKING:
    from wellkept.app import Caller


def register(program: typer.Typer) -> None:
    """Add the commands of this module."""
    program.add_typer(serve_app, name="serve")
    program.command("mcp")(mcp)


serve_app = typer.Typer(
    invoke_without_command=True, help="Serve this memory to programs and people (HTTP).", rich_markup_mode=None
)
UserUnitFlag = Annotated[
    bool, typer.Option("--user-unit/--system-unit", help="A systemd unit for this user, or for the whole machine.")
]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Only print the unit.")]
token_app = typer.Typer(no_args_is_help=True, help="Tokens of clients.", rich_markup_mode=None)
serve_app.add_typer(token_app, name="token")


class _CodeOrCommand(TyperGroup):
    """Takes a code in place of a command: `kept serve pair CODE`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names, or the one that accepts it as a code."""
        is_code = args[0] not in self.commands and not args[0].startswith("-")
        return super().resolve_command(ctx, ["accept", *args] if is_code else args)


pair_app = typer.Typer(
    cls=_CodeOrCommand,
    no_args_is_help=True,
    help="Pair people on chat platforms: kept serve pair CODE.",
    rich_markup_mode=None,
)
serve_app.add_typer(pair_app, name="pair")


@serve_app.callback()
def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="The port; 0 chooses a free one.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve sample data in a temporary folder, to look around.")
    ] = False,
    has_proxy: Annotated[
        bool, typer.Option("--proxy", help="Forward requests of clients to their own models, with memory added.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Serve until stopped: the web app, an agent with memory for every client, and every operation as REST.

    Without --port, the next free port is used if 8642 is taken. Requests need a token: kept serve token show. For an
    address that other machines can reach, create one first: kept serve token create.
    """
    if context.invoked_subcommand is not None:
        return
    if any(find_spec(name) is None for name in ("fastapi", "uvicorn", "jinja2", "python_multipart")):
        fail("the server needs additional packages", f"run: {name_install('gateway')}", code=2)
    from wellkept.gateway.server import Address, serve
    from wellkept.mcp_server.server import answer_body

    def tell(address: Address) -> None:
        if as_json:
            print_json_line({"url": address.url, "pid": os.getpid()})
            return
        say(f"kept serves at {address.url}")
        _tell_entrance(caller, address.url)
        if port is None and address.port != caller.app.settings.serve.port:
            note(f"port {caller.app.settings.serve.port} is taken; choose one with --port")

    with open_demo() if demo else open_caller() as caller:
        settings = caller.app.settings.serve
        caller.app.folder = Path("/")  # clients name their own folder; that of this process is not a project
        chosen = settings.port if port is None else port
        address = host or settings.host
        if has_proxy:
            enabled = replace(settings, proxy=replace(settings.proxy, enabled=True))
            caller.app.settings = replace(caller.app.settings, serve=enabled)
        if settings.require_token and state.tokens.ensure_start_token(caller.app).is_new and not demo:
            _tell_change(caller)
        serve(
            caller.app, address, chosen, is_exact=port is not None, is_demo=demo, when_ready=tell,
            answer_mcp=answer_body, tell=note,
        )  # fmt: skip


def _tell_change(caller: "Caller") -> None:
    """Tell the owner of a home that was served without a token what its clients need now."""
    if caller.app.has_database and not state.tokens.has_tokens(caller.app):
        note(
            "requests from this machine now need a token: send `Authorization: Bearer TOKEN` with the token that "
            "`kept serve token show` prints, or allow them without one: kept config set serve.require_token false"
        )


def _tell_entrance(caller: "Caller", url: str) -> None:
    """Tell the person at a terminal how to sign in, and others that requests need a token."""
    from wellkept.app import Scope

    if sys.stdin.isatty() and sys.stdout.isatty() and Scope.DECIDE in caller.scopes:
        try:
            code = state.tokens.create_link(caller)
        except KeptError as error:  # a home that cannot be written can still be read
            note(f"there is no link to sign in with: {error}")
            return
        say(f"open it signed in: {url}/sign-in?link={code}")
        port = url.rpartition(":")[2]
        other = "" if port == str(caller.app.settings.serve.port) else f" --port {port}"
        note(f"this link works once, for 15 minutes; `kept serve link{other}` prints a new one")
    elif caller.app.settings.serve.require_token:
        note("requests need a token: `kept serve token show` prints one")


@contextmanager
def open_demo() -> Iterator["Caller"]:
    """Yield the owner of a home with sample data; it is removed at the end."""
    from datetime import UTC, datetime
    from tempfile import TemporaryDirectory

    from wellkept.app import open_app
    from wellkept.core.clock import FixedClock

    note("writing sample data: six weeks of three agents …")
    with TemporaryDirectory(prefix="kept-demo-") as folder:
        environ = {"HOME": folder, "PATH": os.environ.get("PATH", "")}
        home = str(Path(folder) / "home")
        clock = FixedClock(datetime.now(UTC))
        with closing(open_app(home, environ=environ, clock=clock)) as app:
            operations.demo.fill_home(app.caller(), clock)
        invocation.home, invocation.profile, invocation.user = home, None, None  # hints name the home that is served
        with closing(open_app(home, environ=environ)) as app:
            yield app.caller()


@serve_app.command("link")
def link(
    user: Annotated[str | None, typer.Option("--user", help="The user who signs in; default: that of --as.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65_535, help="The port of the server, if it is another one.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print a link that signs a person in to the web app, once; only there can a browser decide what waits."""
    from wellkept.gateway.server import Address

    with open_caller() as caller:
        code = state.tokens.create_link(caller, user or caller.user)
        settings = caller.app.settings.serve
    address = Address(settings.host, settings.port if port is None else port)
    url = f"{address.url}/sign-in?link={code}"
    show_json({"url": url}, as_json=as_json)
    say(url)
    note("it works once, for 15 minutes")


@serve_app.command("install-service")
def install_service(is_user: UserUnitFlag = True, dry_run: DryRunFlag = False, as_json: JsonFlag = False) -> None:
    """Write a systemd unit that runs this server, and print the commands that start it."""
    with open_caller() as caller:
        made = operations.systemd.install_service(caller, is_system=not is_user, dry_run=dry_run)
        env = caller.app.home.path / ".env"
    made = expect(made, as_json=as_json)
    show_json(made, as_json=as_json)
    if dry_run:
        say(made.unit)
        return
    say(f"written: {made.path}", "\nstart it with:")
    for command in made.commands:
        say(f"  {command}")
    note(f"a service does not see the variables of your shell: put keys into {env}")


@serve_app.command("uninstall-service")
def uninstall_service(is_user: UserUnitFlag = True, as_json: JsonFlag = False) -> None:
    """Remove the systemd unit, and print the commands that stop the running server."""
    with open_caller() as caller:
        gone = expect(operations.systemd.uninstall_service(caller, is_system=not is_user), as_json=as_json)
    show_json(gone, as_json=as_json)
    say(f"removed: {gone.path}", "\nstop the server with:")
    for command in gone.commands:
        say(f"  {command}")


@token_app.command("create")
def token_create(
    user: Annotated[
        str | None, typer.Option("--user", help="The user whose data the token gives access to; default: that of --as.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="A name, to tell tokens apart.")] = "",
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="read, write, admin or act-as; may be repeated.")
    ] = None,
    days: Annotated[
        float | None, typer.Option("--days", min=0.001, max=MOST_DAYS, help="How long it is valid; default: always.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a token; it is shown once and stored only as a hash."""
    with open_caller() as caller:
        made = state.tokens.create_token(caller, user or caller.user, name=name, scopes=scope or (), days=days)
    show_json(made, as_json=as_json)
    say(made.secret)
    note(f"for {made.token.user}: {', '.join(sorted(made.token.scopes))}. It is not shown again.")


@token_app.command("show")
def token_show(as_json: JsonFlag = False) -> None:
    """Print the start-up token of this home: the owner's, for programs on this machine."""
    with open_caller() as caller:
        secret = state.tokens.show_start_token(caller)
    show_json({"token": secret}, as_json=as_json)
    say(secret)


@token_app.command("list")
def token_list(as_json: JsonFlag = False) -> None:
    """List the tokens."""
    with open_caller() as caller:
        tokens = state.tokens.list_tokens(caller)
    show_json(tokens, as_json=as_json)
    for token in tokens:
        shown = token.as_json()
        scopes = ",".join(sorted(token.scopes))
        say(f"{token.id}  {token.user:<16} {scopes:<18} {token.name:<16} last used {shown['last_used'] or 'never'}")
    if not tokens:
        note("there is no token; create one with: kept serve token create")


@token_app.command("revoke")
def token_revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="The id, as `token list` shows it.")],
    as_json: JsonFlag = False,
) -> None:
    """Revoke a token; requests with it fail from now on."""
    with open_caller() as caller:
        gone = state.tokens.revoke_token(caller, token)
    show_json(gone, as_json=as_json)
    say(f"revoked {gone.id} ({gone.name or gone.user})")


@pair_app.command("accept")
def pair_accept(
    code: Annotated[str, typer.Argument(metavar="CODE", help="The code that the person received.")],
    user: Annotated[str | None, typer.Option("--user", help="The user to pair them with; default: a new user.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Pair a person on a chat platform; same as: kept serve pair CODE."""
    with open_caller() as caller:
        person = state.pairing.accept_code(caller, code, user)
    show_json(person, as_json=as_json)
    say(f"{person.name or person.person} on {person.platform} now uses the memory of {person.user}")
    if user is None:
        note("this is a separate memory; for your own account use --user owner")


@pair_app.command("list")
def pair_list(as_json: JsonFlag = False) -> None:
    """List paired people, and those with a code."""
    with open_caller() as caller:
        pairings = state.pairing.list_pairings(caller)
    show_json(pairings, as_json=as_json)
    for person in pairings.people:
        say(f"{person.platform:<12} {person.person:<20} {person.name:<20} uses the memory of {person.user}")
    for stranger in pairings.waiting:
        say(f"{stranger.platform:<12} {stranger.person:<20} {stranger.name:<20} not paired, code {stranger.code}")
    if not pairings.people and not pairings.waiting:
        note("nobody is paired, and nobody has a code")


@pair_app.command("remove")
def pair_remove(
    platform: Annotated[str, typer.Argument(metavar="PLATFORM", help="The platform, as `pair list` shows it.")],
    person: Annotated[str, typer.Argument(metavar="PERSON", help="The id of the person there.")],
    as_json: JsonFlag = False,
) -> None:
    """Remove a pairing; the conversations stay."""
    with open_caller() as caller:
        gone = state.pairing.remove_person(caller, platform, person)
    show_json(gone, as_json=as_json)
    say(f"{gone.name or gone.person} on {gone.platform} is no longer paired")


def mcp() -> None:
    """Serve this memory to an agent over standard input and output (MCP); `kept connect` sets it up."""
    from wellkept.mcp_server.server import serve

    if sys.stdin.isatty():
        note("waiting for an MCP client on standard input; `kept connect` connects agents, Ctrl-C ends this")
    serve(open_caller)

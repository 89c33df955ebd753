"""`kept serve`: this memory as a server, and the tokens of its clients."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from kept import operations
from kept.cli.terminal import MOST_DAYS, JsonFlag, fail, note, open_caller, print_json, print_json_line, say
from kept.core.ids import OWNER


def register(program: typer.Typer) -> None:
    """Add the commands of this module."""
    program.add_typer(serve_app, name="serve")


serve_app = typer.Typer(
    invoke_without_command=True, help="Serve this memory to programs and people (HTTP).", rich_markup_mode=None
)
token_app = typer.Typer(no_args_is_help=True, help="Tokens of clients.", rich_markup_mode=None)
serve_app.add_typer(token_app, name="token")


@serve_app.callback()
def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="The port; 0 chooses a free one.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Serve until stopped: an agent with memory for every client, and every operation as REST.

    Without --port the next free one is used when 8642 is taken. On an address that other machines reach, clients
    need a token: kept serve token create.
    """
    if context.invoked_subcommand is not None:
        return
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        fail("the server needs two more packages", "run: pip install 'kept[gateway]'", code=2)
    from kept.gateway.server import Address, serve
    from kept.mcp_server.server import answer_body

    def tell(address: Address) -> None:
        if as_json:
            print_json_line({"url": address.url, "pid": os.getpid()})
            return
        say(f"kept serves at {address.url}")
        if port is None and address.port != caller.app.settings.serve.port:
            note(f"port {caller.app.settings.serve.port} is taken; choose one with --port")

    with open_caller() as caller:
        settings = caller.app.settings.serve
        caller.app.folder = Path("/")  # clients say where they work; the folder of this process is nobody's project
        chosen = settings.port if port is None else port
        address = host or settings.host
        serve(caller.app, address, chosen, is_exact=port is not None, when_ready=tell, answer_mcp=answer_body)


@token_app.command("create")
def token_create(
    user: Annotated[str, typer.Option("--user", help="Whose data the token opens.")] = OWNER,
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
        made = operations.tokens.create_token(caller, user, name=name, scopes=scope or (), days=days)
    if as_json:
        print_json(made.as_json())
        return
    say(made.secret)
    note(f"for {made.token.user}: {', '.join(sorted(made.token.scopes))}. It is not shown again.")


@token_app.command("list")
def token_list(as_json: JsonFlag = False) -> None:
    """List the tokens."""
    with open_caller() as caller:
        found = operations.tokens.list_tokens(caller)
    if as_json:
        print_json([token.as_json() for token in found])
        return
    for token in found:
        shown = token.as_json()
        scopes = ",".join(sorted(token.scopes))
        say(f"{token.id}  {token.user:<16} {scopes:<18} {token.name:<16} last used {shown['last_used'] or 'never'}")
    if not found:
        note("there is no token; create one with: kept serve token create")


@token_app.command("revoke")
def token_revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="The id, as `token list` shows it.")],
    as_json: JsonFlag = False,
) -> None:
    """Revoke a token; requests with it fail from now on."""
    with open_caller() as caller:
        gone = operations.tokens.revoke_token(caller, token)
    if as_json:
        print_json(gone.as_json())
        return
    say(f"revoked {gone.id} ({gone.name or gone.user})")

"""`kept context`: which engine keeps conversations inside the window, and how full one is."""

from typing import Annotated

import typer

from kept.cli.terminal import JsonFlag, chosen_home, fail, note, open_caller, print_json, refuse, say
from kept.core.errors import Refused
from kept.operations import conversations

app = typer.Typer(no_args_is_help=True, help="How long conversations are kept in the window.", rich_markup_mode=None)


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(app, name="context")


@app.command("list")
def list_(as_json: JsonFlag = False) -> None:
    """List the engines that can be used."""
    with open_caller() as caller:
        found = conversations.list_engines(caller)
    if as_json:
        print_json(found.as_json())
        return
    for name, source, description in found.engines:
        say(f"{'*' if name == found.used else ' '} {name:14} {source:12} {description}".rstrip())
    if found.used not in {name for name, _, _ in found.engines}:
        note(f"{found.used!r} is configured but does not exist; choose one with `kept context use NAME`")


@app.command()
def use(
    name: Annotated[str, typer.Argument(help="An engine of `kept context list`.")], as_json: JsonFlag = False
) -> None:
    """Choose the engine; conversations use it from their next start on."""
    from kept.config.file import set_value
    from kept.context.engines import choose_engine

    home = chosen_home()
    found = choose_engine(name, home=home.path)
    if found.warning:
        fail(found.warning.partition(";")[0], "`kept context list` shows the engines", code=2)
    set_value(home, "context.engine", name)
    if as_json:
        print_json({"engine": name})
    else:
        say(f"context.engine = {name!r} in {home.config_file}")


@app.command()
def status(
    session: Annotated[str | None, typer.Argument(help="A session's id or title; without it only the limits.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the limits of the window and, for a session, how full it is and whether compaction waits."""
    with open_caller() as caller:
        found = conversations.report_window(caller, session)
    if isinstance(found, Refused):
        refuse(found, as_json=False, code=2)
    if as_json:
        print_json(found.as_json())
        return
    for key, value in found.as_json().items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        say(f"{key.replace('_', ' '):20} {shown}")

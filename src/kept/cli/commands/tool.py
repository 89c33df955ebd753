"""`kept tool NAME '{json}'`: run any tool of the agent, exactly as the agent would."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from kept.cli.terminal import JsonFlag, fail, opened, print_json, read_input, say
from kept.config.settings import nearest
from kept.core.ids import SessionId
from kept.core.tools import ToolContext, ToolSchema


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("tool")(tool)


def tool(
    name: Annotated[str | None, typer.Argument(help="The tool; without it all are listed.")] = None,
    arguments: Annotated[str, typer.Argument(help="A JSON object; - reads it from standard input.")] = "{}",
    session: Annotated[str | None, typer.Option("--session", help="Call it as from this session.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a tool and print its JSON; exit 1 when it refuses."""
    with opened() as kept:
        tools = kept.tools()
        if name is None:
            _list([each.schema for each in tools.values()], as_json=as_json)
            return
        if name not in tools:
            fail(f"there is no tool {name!r}{nearest(name, tools)}", f"known: {', '.join(tools)}", code=2)
        text = read_input() if arguments == "-" else arguments
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as error:
            fail(
                f"the arguments are not JSON: {error}",
                f'write them like: kept tool {name} \'{{"key": "value"}}\'',
                code=2,
            )
        if not isinstance(given, dict):
            fail(
                "the arguments must be a JSON object",
                f'write them like: kept tool {name} \'{{"key": "value"}}\'',
                code=2,
            )
        context = ToolContext(session_id=SessionId(session) if session else None)
        answer = tools[name].call(given, context)
        print_json(answer)
    if answer.get("success") is False or (answer.get("error") and "success" not in answer):
        raise typer.Exit(1)


def _list(schemas: Sequence[ToolSchema], *, as_json: bool) -> None:
    """Print the tools; a call prints JSON either way."""
    if as_json:
        print_json(
            [
                {"name": one.name, "toolset": one.toolset, "description": one.description, "parameters": one.parameters}
                for one in schemas
            ]
        )
        return
    for one in schemas:
        say(f"{one.name}  [{one.toolset}]  {one.description.splitlines()[0]}")

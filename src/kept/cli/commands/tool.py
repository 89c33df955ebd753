"""`kept tool NAME '{json}'`: run any tool of the agent, exactly as the agent would."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from kept.cli.terminal import JsonFlag, open_caller, print_json, read_input, say
from kept.core.errors import UsageError
from kept.core.ids import SessionId
from kept.core.text import JSON
from kept.core.tools import ToolSchema
from kept.operations import tools


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
    with open_caller() as caller:
        if name is None:
            _list(tools.list_tools(caller), as_json=as_json)
            return
        chosen = replace(caller, session_id=SessionId(session) if session else None)
        answer = tools.run_tool(chosen, name, _parse(name, read_input() if arguments == "-" else arguments))
        print_json(answer)
    if answer.get("success") is False or (answer.get("error") and "success" not in answer):
        raise typer.Exit(1)


def _parse(name: str, text: str) -> dict[str, JSON]:
    example = f'write them like: kept tool {name} \'{{"key": "value"}}\''
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the arguments are not JSON: {error}", example) from None
    if not isinstance(given, dict):
        raise UsageError("the arguments must be a JSON object", example)
    return given


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

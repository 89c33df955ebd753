"""`kept providers do`: commands that the providers in use bring."""

from difflib import get_close_matches
from typing import Annotated

import typer

from kept.cli.terminal import JsonFlag, fail, opened, print_json, say
from kept.cli.text import printable
from kept.core.errors import UsageError
from kept.providers.commands import OfferedCommand

NameArgument = Annotated[str | None, typer.Argument(metavar="COMMAND", help="Its command; without it they are listed.")]
WordsArgument = Annotated[list[str] | None, typer.Argument(metavar="WORDS", help="What the command is given.")]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("do")(do)


def do(name: NameArgument = None, words: WordsArgument = None, as_json: JsonFlag = False) -> None:
    """Run a command of the provider in use, or list what it offers."""
    from kept.providers.base import StartContext
    from kept.providers.commands import find_commands, run_command
    from kept.providers.manager import chosen_names

    with opened() as kept:
        chosen = chosen_names(kept.settings.memory.provider)
        if not chosen:
            fail("no provider is switched on", "choose one with `kept providers setup`")
        found = find_commands(chosen, kept.home.plugins, kept.environ)
        if name is None:
            _list(found, as_json=as_json)
            return
        context = StartContext(kept_home=str(kept.home.path), agent_identity=kept.home.profile)
        answer = run_command(_named(name, found), words or [], context)
    if as_json:
        print_json(answer.value)
    else:
        say(printable(answer.text))


def _list(found: list[OfferedCommand], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {"provider": each.provider.name, "command": each.command.name, "summary": each.command.summary}
                for each in found
            ]
        )
        return
    for each in found:
        say(f"{each.full_name:<28} {each.command.summary}")
    if not found:
        say("the provider in use brings no commands")


def _named(name: str, found: list[OfferedCommand]) -> OfferedCommand:
    fitting = [each for each in found if name in {each.command.name, each.full_name}]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"{name!r} is a command of several providers", f"say {fitting[0].full_name}, for instance")
    near = get_close_matches(name, [each.command.name for each in found], 1)
    known = (
        f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(each.full_name for each in found) or 'none'}"
    )
    raise UsageError(f"no provider in use has a command {name!r}", known)

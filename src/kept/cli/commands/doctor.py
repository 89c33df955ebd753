"""`kept doctor`: check the whole installation by running the real paths."""

from typing import Annotated

import typer

from kept.cli.terminal import JsonFlag, open_caller, print_json, printable, say
from kept.operations.doctor import check_everything

_MARKS = {"ok": "✓", "warning": "!", "error": "✗"}


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("doctor")(doctor)


def doctor(
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the model or a provider.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check everything: real writes and searches in a temporary home, reading only in yours."""
    checks = []
    with open_caller() as caller:
        for check in check_everything(caller, offline=offline):
            checks.append(check)
            if not as_json:
                remedy = f"\n    next: {check.remedy}" if check.remedy else ""
                say(printable(f"{_MARKS[check.health]} {check.name}: {check.said}{remedy}"))
    failed = [check for check in checks if check.health == "error"]
    if as_json:
        print_json({"ok": not failed, "checks": [check.as_json() for check in checks]})
    elif not failed:
        say("Everything is in order.")
    if failed:
        raise typer.Exit(1)

"""What the commands of `kept memory` share: the page they are about, and how an edit is shown."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from kept.cli.terminal import confirm, note, print_json, refuse, say
from kept.cli.text import printable
from kept.core.errors import Reason, Refused
from kept.memory.edits import Target
from kept.memory.store import Outcome

TargetOption = Annotated[Target | None, typer.Option("--target", "-t", help="Which page: memory or user.")]


def pages(target: Target | None) -> list[Target]:
    """Return the page that was named, both when none was."""
    return [target] if target is not None else list(Target)


def asked_if_held(
    outcome: Outcome | Refused, keep: Callable[[Refused], Outcome | Refused], *, yes: bool
) -> Outcome | Refused:
    """Ask the person at the terminal instead of staging: they are the one who would approve."""
    if not isinstance(outcome, Refused) or outcome.reason is not Reason.HELD:
        return outcome
    if not yes and not sys.stdin.isatty():
        return dataclasses.replace(outcome, remedy="give --yes to keep it all the same")
    note(outcome.error)
    return keep(outcome) if confirm("Keep it all the same?", yes=yes) else outcome


def show_outcome(outcome: Outcome | Refused, *, as_json: bool, way_back: str = "undo: kept memory undo") -> None:
    """Print an accepted edit with the way back, or leave with its refusal."""
    if isinstance(outcome, Refused):
        matches = outcome.detail.get("matches")
        for match in matches if isinstance(matches, list) else []:
            note(f"  · {printable(str(match))}")
        refuse(outcome, as_json=as_json)
    if as_json:
        print_json(outcome.as_json())
        return
    percent = f"{outcome.used_chars:,}/{outcome.char_limit:,} chars"
    entries = "1 entry" if outcome.entry_count == 1 else f"{outcome.entry_count} entries"
    hint = f"  ({way_back})" if outcome.ledger_ids else ""
    say(f"{outcome.message} {outcome.target.value}: {entries}, {percent}.{hint}")
    if outcome.note and outcome.change.overflow:  # a warning was told by the sink already
        note(outcome.note)

"""`kept memory pending | approve | reject`: the writes that wait for a person."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from kept.app import App
from kept.cli.commands.memory_frame import TargetOption, show_outcome
from kept.cli.terminal import JsonFlag, opened, print_json, say
from kept.cli.text import printable
from kept.core.clock import from_epoch
from kept.core.errors import Reason, Refused
from kept.memory.approval import Pending, Rejected
from kept.memory.edits import Target

T = TypeVar("T")

WhichArgument = Annotated[str, typer.Argument(metavar="ID", help="The id, or `all`.")]


def add_to(group: typer.Typer) -> None:
    """Add the commands to `kept memory`."""
    for command in (pending, approve, reject):
        group.command()(command)


def pending(target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """List writes that wait for approval."""
    with opened() as kept:
        waiting = _waiting(kept, target)
    if as_json:
        print_json([item.as_json() for item in waiting])
        return
    for item in waiting:
        day = f"{from_epoch(item.created).astimezone():%Y-%m-%d %H:%M}"
        say(f"{item.id}  {day}  {item.target.value}  {item.origin}: {printable(item.summary)}  ({item.why})")
    say(f"{len(waiting)} waiting." + (" `kept memory approve ID` or `reject ID`." if waiting else ""))


def approve(pending_id: WhichArgument, target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Accept a waiting write: it is checked again, then applied."""
    with opened() as kept:
        _decide(kept, pending_id, target, kept.approvals.approve, lambda done: show_outcome(done, as_json=as_json))


def reject(pending_id: WhichArgument, target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Turn a waiting write down; its text goes to the archive."""

    def show(item: Rejected | Refused) -> None:
        if isinstance(item, Refused):
            show_outcome(item, as_json=as_json)
        elif as_json:
            print_json(item.as_json())
        else:
            say(f"Rejected {item.pending.id}: {printable(item.pending.summary)}")

    with opened() as kept:
        _decide(kept, pending_id, target, kept.approvals.reject, show)


def _waiting(kept: App, target: Target | None) -> list[Pending]:
    return [item for item in kept.approvals.waiting() if target in (None, item.target)]


def _decide(
    kept: App, which: str, target: Target | None, decide: Callable[[str], T], show: Callable[[T | Refused], None]
) -> None:
    """Decide each chosen write and show how it went; one that is refused does not keep the others waiting."""
    chosen = [item.id for item in _waiting(kept, target)] if which == "all" else [which]
    if not chosen:
        show(Refused(Reason.NO_MATCH, "Nothing waits for approval.", "`kept memory pending` lists what waits."))
    worst = 0
    for one in chosen:
        try:
            show(decide(one))
        except typer.Exit as refused:
            worst = max(worst, refused.exit_code)
    if worst:
        raise typer.Exit(worst)

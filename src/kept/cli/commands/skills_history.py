"""`kept skills log | diff | undo | stats | pending | approve | reject | doctor`."""

from typing import Annotated

import typer

from kept.cli.commands.skills import NameArgument, show_change
from kept.cli.terminal import JsonFlag, note, open_caller, print_json, printable, refuse, say
from kept.core.errors import Refused
from kept.operations import skills


def add_to(app: typer.Typer) -> None:
    """Add these commands to the group."""
    for command in (log, diff, undo, stats, pending, approve, reject, doctor):
        app.command()(command)


def log(name: NameArgument, as_json: JsonFlag = False) -> None:
    """List the changes of a skill, newest first."""
    with open_caller() as caller:
        found = skills.read_log(caller, name)
    if isinstance(found, Refused):
        refuse(found, as_json=as_json)
    if as_json:
        print_json(found.as_json())
        return
    for version in found.versions:
        undone = f"  (undoes {version.undoes})" if version.undoes else ""
        reason = f"  {version.reason}" if version.reason else ""
        line = f"{version.number:>4}  {version.time[:19]}Z  {version.action:<11} {version.id}  [{version.origin}]"
        say(printable(f"{line}{undone}{reason}"))


def diff(
    name: NameArgument,
    number: Annotated[int | None, typer.Argument(help="The change; the newest by default.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a change did."""
    with open_caller() as caller:
        found = skills.diff_skill(caller, name, number)
    if isinstance(found, Refused):
        refuse(found, as_json=as_json)
    if as_json:
        print_json(found.as_json())
    else:
        say(printable(found.text))


def undo(
    name: NameArgument,
    number: Annotated[int | None, typer.Argument(help="The change; the newest that stands by default.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Take a change back; repeating it walks back, undoing an undo brings the text again."""
    with open_caller() as caller:
        undone = skills.undo_change(caller, name, number)
    show_change(undone, as_json=as_json)


def stats(name: Annotated[str | None, typer.Argument(help="One skill.")] = None, as_json: JsonFlag = False) -> None:
    """Show how often turns with each version of a skill went badly."""
    with open_caller() as caller:
        found = skills.measure_skills(caller, name)
    if as_json:
        print_json(found.as_json())
        return
    for one in found.stats:
        use, skill = found.usage.get(one.skill), printable(one.skill)
        say(f"{skill}  used {use.use_count if use else 0} times, patched {use.patch_count if use else 0} times")
        for version in one.versions:
            flag = f"  ← worse than before: `kept skills undo {skill}`" if version.version == one.flagged else ""
            say(f"    {printable(version.version)}  {version.uses:>4} turns  {version.rate:>4.0%} went badly{flag}")
    if not found.stats:
        note("no turn with a skill is recorded yet")


def pending(as_json: JsonFlag = False) -> None:
    """List the changes that wait for you."""
    with open_caller() as caller:
        waiting = skills.list_pending(caller)
    if as_json:
        print_json(waiting.as_json())
        return
    for one in waiting.changes:
        say(printable(f"{one.id}  {one.created_at[:16]}Z  {one.action} {one.change.name}  [{one.origin}]"))
        for finding in one.findings:
            say(printable(f"          {finding}"))
    if not waiting.changes:
        note("nothing waits")


PendingId = Annotated[str, typer.Argument(help="The id that `kept skills pending` shows.")]


def approve(pending_id: PendingId, as_json: JsonFlag = False) -> None:
    """Make a change that waits."""
    with open_caller() as caller:
        approved = skills.approve(caller, pending_id)
    show_change(approved, as_json=as_json)


def reject(pending_id: PendingId, as_json: JsonFlag = False) -> None:
    """Drop a change that waits."""
    with open_caller() as caller:
        rejected = skills.reject(caller, pending_id)
    if isinstance(rejected, Refused):
        refuse(rejected, as_json=as_json)
    if as_json:
        print_json(rejected.as_json())
    else:
        say(printable(f"{rejected.change.action} {rejected.change.change.name} dropped"))


def doctor(as_json: JsonFlag = False) -> None:
    """List what is wrong with any skill, with the fix; exit 1 when something is not loaded."""
    with open_caller() as caller:
        found = skills.check_skills(caller)
    if as_json:
        print_json(found.as_json())
    else:
        for one in found.problems:
            kind = "warning" if one.loaded else "not loaded"
            say(printable(f"{kind}: {one.path}\n    {one.problem}\n    fix: {one.fix}"))
        if not found.problems:
            say("every skill is in order")
    if found.has_unloaded:
        raise typer.Exit(1)

"""`kept skills log | diff | undo | stats | pending | approve | reject | doctor`."""

from typing import Annotated

import typer

from kept.cli.commands.skills import PERSON, NameArgument, told
from kept.cli.terminal import JsonFlag, fail, note, opened, print_json, refuse, say
from kept.core.errors import Refused
from kept.core.text import JSON
from kept.skills.editor import undo as take_back
from kept.skills.library import SkillLibrary
from kept.skills.usage import Stats
from kept.skills.versions import Version


def add_to(app: typer.Typer) -> None:
    """Add these commands to the group."""
    for command in (log, diff, undo, stats, pending, approve, reject, doctor):
        app.command()(command)


def log(name: NameArgument, as_json: JsonFlag = False) -> None:
    """List the changes of a skill, newest first."""
    with opened() as kept:
        versions = [version for version in reversed(_versions(kept.skill_tools.library, name)) if not version.voided]
    if as_json:
        print_json([_row(version) for version in versions])
        return
    for version in versions:
        undone = f"  (undoes {version.undoes})" if version.undoes else ""
        reason = f"  {version.reason}" if version.reason else ""
        line = f"{version.number:>4}  {version.time[:19]}Z  {version.action:<11} {version.id}  [{version.origin}]"
        say(f"{line}{undone}{reason}")


def _versions(library: SkillLibrary, name: str) -> list[Version]:
    from kept.skills.document import refuse_name

    versions = [] if refuse_name(name) is not None else library.versions.of(name)
    if not versions:
        fail(f"no change of {name!r} is recorded", "`kept skills list` shows the names")
    return versions


def _row(version: Version) -> dict[str, JSON]:
    return {
        "change": version.number,
        "time": version.time,
        "action": version.action,
        "version": version.id,
        "origin": version.origin,
        "session_id": version.session_id,
        "undoes": version.undoes,
        "files": list(version.touched),
        "reason": version.reason,
    }


def diff(
    name: NameArgument,
    number: Annotated[int | None, typer.Argument(help="The change; the newest by default.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a change did."""
    with opened() as kept:
        library = kept.skill_tools.library
        versions = _versions(library, name)
        chosen = versions[-1] if number is None else next((one for one in versions if one.number == number), None)
        if chosen is None:
            fail(f"{name!r} has no change {number}", f"`kept skills log {name}` lists them")
        text = library.versions.diff(name, chosen)
    if as_json:
        print_json({**_row(chosen), "diff": text})
    else:
        say(text)


def undo(
    name: NameArgument,
    number: Annotated[int | None, typer.Argument(help="The change; the newest that stands by default.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Take a change back; repeating it walks back, undoing an undo brings the text again."""
    with opened() as kept:
        told(take_back(kept.skill_tools.editor, name, PERSON, number=number), as_json=as_json)


def stats(name: Annotated[str | None, typer.Argument(help="One skill.")] = None, as_json: JsonFlag = False) -> None:
    """Show how often turns with each version of a skill went badly."""
    with opened() as kept:
        library = kept.skill_tools.library
        found = library.outcomes.stats(min_uses=library.settings.flag_min_uses)
        usage = library.usage.read()
    chosen = [one for skill, one in found.items() if name in {None, skill}]
    if as_json:
        print_json([_stats_row(one) for one in chosen])
        return
    for one in chosen:
        use = usage.get(one.skill)
        say(f"{one.skill}  used {use.use_count if use else 0} times, patched {use.patch_count if use else 0} times")
        for version in one.versions:
            flag = (
                "  ← worse than before: `kept skills undo " + one.skill + "`" if version.version == one.flagged else ""
            )
            say(f"    {version.version}  {version.uses:>4} turns  {version.rate:>4.0%} went badly{flag}")
    if not chosen:
        note("no turn with a skill is recorded yet")


def _stats_row(one: Stats) -> dict[str, JSON]:
    versions: list[JSON] = [
        {"version": item.version, "uses": item.uses, "failures": item.failures, "failure_rate": round(item.rate, 3)}
        for item in one.versions
    ]
    return {"name": one.skill, "versions": versions, "flagged": one.flagged}


def pending(as_json: JsonFlag = False) -> None:
    """List the changes that wait for you."""
    with opened() as kept:
        waiting = kept.skill_tools.pending.waiting()
    if as_json:
        print_json(
            [
                {"id": one.id, "created_at": one.created_at, "action": one.action, "name": one.change.name}
                | {"origin": one.origin, "rules": list(one.rules), "findings": list(one.findings)}
                for one in waiting
            ]
        )
        return
    for one in waiting:
        say(f"{one.id}  {one.created_at[:16]}Z  {one.action} {one.change.name}  [{one.origin}]")
        for finding in one.findings:
            say(f"          {finding}")
    if not waiting:
        note("nothing waits")


PendingId = Annotated[str, typer.Argument(help="The id that `kept skills pending` shows.")]


def approve(pending_id: PendingId, as_json: JsonFlag = False) -> None:
    """Make a change that waits."""
    with opened() as kept:
        told(kept.skill_tools.pending.approve(pending_id, kept.skill_tools.editor), as_json=as_json)


def reject(pending_id: PendingId, as_json: JsonFlag = False) -> None:
    """Drop a change that waits."""
    with opened() as kept:
        dropped = kept.skill_tools.pending.reject(pending_id)
    if isinstance(dropped, Refused):
        refuse(dropped, as_json=as_json)
    if as_json:
        print_json({"success": True, "id": dropped.id})
    else:
        say(f"{dropped.action} {dropped.change.name} dropped")


def doctor(as_json: JsonFlag = False) -> None:
    """List what is wrong with any skill, with the fix; exit 1 when something is not loaded."""
    with opened() as kept:
        problems = kept.skill_tools.library.doctor()
    if as_json:
        print_json(
            [{"path": str(one.path), "problem": one.problem, "fix": one.fix, "loaded": one.loaded} for one in problems]
        )
    else:
        for one in problems:
            say(f"{'warning' if one.loaded else 'not loaded'}: {one.path}\n    {one.problem}\n    fix: {one.fix}")
        if not problems:
            say("every skill is in order")
    if any(not one.loaded for one in problems):
        raise typer.Exit(1)

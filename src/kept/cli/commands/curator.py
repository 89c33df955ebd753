"""`kept curator`: what nobody uses grows stale, then goes to the archive."""

from typing import Annotated

import typer

from kept.app import App
from kept.cli.commands.skills import NameArgument, told
from kept.cli.terminal import JsonFlag, YesFlag, confirm, fail, note, opened, print_json, refuse, say
from kept.core.errors import Refused
from kept.core.text import JSON
from kept.curation.curator import Curator

app = typer.Typer(no_args_is_help=True, help="Tidy skills that are not used.", rich_markup_mode=None)


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(app, name="curator")


def _curator(kept: App) -> Curator:
    return Curator(kept.skill_tools.editor, kept.settings.curator)


@app.command()
def status(as_json: JsonFlag = False) -> None:
    """Show when the curator ran, what it would do now, and what it leaves alone."""
    with opened() as kept:
        curator = _curator(kept)
        state, moves, protected = curator.state(), curator.plan(), curator.protected_skills()
        usage = kept.skill_tools.library.usage.read()
        archived = [path.name for path in kept.skill_tools.editor.archive_folders()]
        backups = curator.backups.names()
    counts: dict[str, JSON] = {}
    for use in usage.values():
        counts[str(use.state)] = int(str(counts.get(str(use.state), 0))) + 1
    row: dict[str, JSON] = {
        "last_run_at": state.last_run_at,
        "paused": state.paused,
        "states": counts,
        "would_move": [{"name": one.name, "becomes": str(one.becomes), "idle_days": one.idle_days} for one in moves],
        "protected": {**protected},
        "archived": [*archived],
        "backups": [*backups],
    }
    if as_json:
        print_json(row)
        return
    say(f"last run: {state.last_run_at or 'never'}{' (paused)' if state.paused else ''}")
    say(f"would move: {', '.join(f'{one.name} → {one.becomes}' for one in moves) or 'nothing'}")
    say(f"left alone: {', '.join(f'{name} ({why})' for name, why in sorted(protected.items())) or 'none'}")
    say(f"archived: {', '.join(archived) or 'none'}")
    say(f"backups: {', '.join(backups) or 'none'}")


@app.command()
def run(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    merge: Annotated[
        bool, typer.Option("--consolidate", help="Let the model propose merges of narrow skills.")
    ] = False,
    plan: Annotated[str | None, typer.Option("--plan", help="Carry out a plan of --consolidate.")] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Move what is due, after a backup; with --consolidate, propose merges and carry them out after your yes."""
    with opened() as kept:
        if plan is not None:
            _carried_out(kept, plan, yes=yes, as_json=as_json)
            return
        report = _curator(kept).run(dry_run=dry_run)
        if as_json and not merge:
            print_json(report.as_json())
        elif not as_json:
            say(report.as_text())
        if merge:
            _proposed(kept, ask=not (dry_run or as_json), yes=yes, as_json=as_json)


def _proposed(kept: App, *, ask: bool, yes: bool, as_json: bool) -> None:
    from kept.curation import consolidate

    model = kept.models.auxiliary("review", kept.models.chat())
    if model is None:
        fail("merging skills needs a model, and none is configured", "`kept model set` connects one")
    curator = _curator(kept)
    made = consolidate.propose(kept.skill_tools.editor, model, protected=curator.protected_skills())
    if isinstance(made, Refused):
        refuse(made, as_json=as_json)
    if as_json:
        rows: list[JSON] = [{"into": one.into, "from": list(one.sources), "reason": one.reason} for one in made.merges]
        print_json({"plan": made.id, "merges": rows, "dropped": list(made.dropped)})
        return
    say(consolidate.shown(made))
    if made.merges and ask:
        _carried_out(kept, made.id, yes=yes, as_json=False)
    elif made.merges:
        note(f"nothing was changed; `kept curator run --plan {made.id}` carries it out")


def _carried_out(kept: App, plan_id: str, *, yes: bool, as_json: bool) -> None:
    from kept.curation import consolidate

    editor = kept.skill_tools.editor
    plan = consolidate.read_plan(editor, plan_id)
    if isinstance(plan, Refused):
        refuse(plan, as_json=as_json)
    if not confirm(f"carry out plan {plan_id} ({len(plan.merges)} merges)?", yes=yes):
        raise typer.Exit(1)
    done = consolidate.apply(editor, plan, _curator(kept).backups)
    if isinstance(done, Refused):
        refuse(done, as_json=as_json)
    if as_json:
        print_json({"success": True, "changes": [{"name": one.name, "action": one.action} for one in done]})
        return
    for one in done:
        say(one.message)


@app.command()
def pause() -> None:
    """Stop running by itself."""
    with opened() as kept:
        _curator(kept).pause(paused=True)
    say("the curator is paused")


@app.command()
def resume() -> None:
    """Run by itself again when due."""
    with opened() as kept:
        _curator(kept).pause(paused=False)
    say("the curator runs when it is due")


@app.command()
def pin(name: NameArgument) -> None:
    """Keep the curator's hands off a skill."""
    _pinned(name, pinned=True)


@app.command()
def unpin(name: NameArgument) -> None:
    """Let the curator look after a skill again."""
    _pinned(name, pinned=False)


def _pinned(name: str, *, pinned: bool) -> None:
    with opened() as kept:
        library = kept.skill_tools.library
        if library.skill(name) is None:
            fail(f"there is no skill {name!r}", "`kept skills list` shows the names")
        library.usage.pin(name, pinned=pinned)
    say(f"{name} is {'pinned' if pinned else 'no longer pinned'}")


@app.command()
def archive(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Archive one skill now."""
    with opened() as kept:
        told(_curator(kept).archive(name), as_json=as_json)


@app.command()
def restore(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Bring one skill back from the archive."""
    with opened() as kept:
        told(_curator(kept).restore(name), as_json=as_json)


@app.command()
def backup() -> None:
    """Back up all skills of the home."""
    with opened() as kept:
        say(_curator(kept).backups.take())


@app.command()
def rollback(
    name: Annotated[str | None, typer.Argument(help="The backup; the newest by default.")] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Put every skill back as a backup has it, byte for byte; the present state is backed up first."""
    with opened() as kept:
        if not confirm(f"put all skills back as {name or 'the newest backup'} has them?", yes=yes):
            raise typer.Exit(1)
        done = _curator(kept).roll_back(name)
    if as_json:
        print_json({"success": True, "backup": done.backup, "restored": list(done.restored)})
    else:
        say(f"{done.backup}: {', '.join(done.restored) or 'nothing differed'}")


@app.command()
def report(as_json: JsonFlag = False) -> None:
    """Show the report of the last run."""
    with opened() as kept:
        found = _curator(kept).report()
    if found is None:
        fail("the curator has not run yet", "`kept curator run`")
    if as_json:
        print_json(found.as_json())
    else:
        say(found.as_text())

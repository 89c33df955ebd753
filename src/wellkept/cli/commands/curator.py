"""`kept curator`: archive unused skills, merge narrow ones, back up and restore."""

from typing import TYPE_CHECKING, Annotated

import typer

from wellkept import operations
from wellkept.cli.commands.skills import NameArgument, show_change
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    confirm,
    expect,
    note,
    open_caller,
    print_json,
    refuse,
    say,
    show_json,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.app import Caller
    from wellkept.curation.consolidate import Plan

app = typer.Typer(no_args_is_help=True, help="Archive unused skills.", rich_markup_mode=None)


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(app, name="curator")


@app.command()
def status(as_json: JsonFlag = False) -> None:
    """Show the last run, what a run would do now, and exclusions."""
    with open_caller() as caller:
        status = operations.curator.report_status(caller)
    show_json(status, as_json=as_json)
    say(f"last run: {status.state.last_run_at or 'never'}{' (paused)' if status.state.paused else ''}")
    _say_list("would move", [f"{move.name} → {move.becomes}" for move in status.moves], "nothing")
    _say_list("left alone", [f"{name} ({why})" for name, why in sorted(status.protected.items())])
    _say_list("archived", status.archived)
    _say_list("backups", status.backups)


def _say_list(title: str, items: "Sequence[str]", otherwise: str = "none") -> None:
    say(f"{title}: {', '.join(items) or otherwise}")


@app.command()
def run(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    merge: Annotated[
        bool, typer.Option("--consolidate", help="Let the model propose merges of narrow skills.")
    ] = False,
    plan: Annotated[str | None, typer.Option("--plan", help="Apply a plan of --consolidate.")] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Archive unused skills after a backup; with --consolidate, propose merges and apply them after confirmation."""
    with open_caller() as caller:
        if plan is not None:
            stored = expect(operations.curator.read_plan(caller, plan), as_json=as_json)
            _carry_out(caller, stored, yes=yes, as_json=as_json)
            return
        report = operations.curator.run(caller, dry_run=dry_run)
        if as_json and not merge:
            print_json(report.as_json())
        elif not as_json:
            say(report.as_text())
        if merge:
            _propose(caller, ask=not (dry_run or as_json), yes=yes, as_json=as_json)


def _propose(caller: "Caller", *, ask: bool, yes: bool, as_json: bool) -> None:
    made = expect(operations.curator.propose_merges(caller), as_json=as_json)
    if as_json:
        print_json(made.as_json())
        return
    say(made.as_text())
    if made.merges and ask:
        _carry_out(caller, made, yes=yes, as_json=False)
    elif made.merges:
        note(f"nothing was changed; `kept curator run --plan {made.id}` applies it")


def _carry_out(caller: "Caller", plan: "Plan", *, yes: bool, as_json: bool) -> None:
    if not confirm(f"apply plan {plan.id} ({len(plan.merges)} merges)?", yes=yes):
        raise typer.Exit(1)
    done = expect(operations.curator.carry_out_plan(caller, plan), as_json=as_json)
    if as_json:
        print_json(done.as_json())
        return
    for change in done.changes:
        say(change.message)


@app.command()
def pause(as_json: JsonFlag = False) -> None:
    """Disable automatic runs."""
    _pause(as_json=as_json, paused=True)


@app.command()
def resume(as_json: JsonFlag = False) -> None:
    """Enable automatic runs."""
    _pause(as_json=as_json, paused=False)


def _pause(*, as_json: bool, paused: bool) -> None:
    with open_caller() as caller:
        operations.curator.pause(caller, paused=paused)
    if as_json:
        print_json({"paused": paused})
    else:
        say(f"automatic runs are {'disabled' if paused else 'enabled'}")


@app.command()
def pin(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Exclude a skill from the curator."""
    _pin(name, as_json=as_json, pinned=True)


@app.command()
def unpin(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Include an excluded skill again."""
    _pin(name, as_json=as_json, pinned=False)


def _pin(name: str, *, as_json: bool, pinned: bool) -> None:
    with open_caller() as caller:
        refused = operations.curator.pin_skill(caller, name, pinned=pinned)
    if refused is not None:
        refuse(refused, as_json=as_json)
    if as_json:
        print_json({"name": name, "pinned": pinned})
        return
    say(f"{name} is {'pinned' if pinned else 'no longer pinned'}")


@app.command()
def archive(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Archive one skill now."""
    with open_caller() as caller:
        archived = operations.curator.archive_skill(caller, name)
    show_change(archived, as_json=as_json)


@app.command()
def restore(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Restore one skill from the archive."""
    with open_caller() as caller:
        restored = operations.curator.restore_skill(caller, name)
    show_change(restored, as_json=as_json)


@app.command()
def backup(as_json: JsonFlag = False) -> None:
    """Back up all skills of the home."""
    with open_caller() as caller:
        name = operations.curator.back_up(caller)
    show_json({"backup": name}, as_json=as_json)
    say(name)


@app.command()
def rollback(
    name: Annotated[str | None, typer.Argument(help="The backup; the newest by default.")] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Restore every skill from a backup, byte for byte; the current state is backed up first."""
    with open_caller() as caller:
        if not confirm(f"restore all skills from {name or 'the newest backup'}?", yes=yes):
            raise typer.Exit(1)
        done = operations.curator.roll_back(caller, name)
    show_json(done, as_json=as_json)
    say(f"{done.backup}: {', '.join(done.restored) or 'nothing differed'}")


@app.command()
def report(as_json: JsonFlag = False) -> None:
    """Show the report of the last run."""
    with open_caller() as caller:
        found = expect(operations.curator.read_report(caller), as_json=as_json)
    show_json(found, as_json=as_json)
    say(found.as_text())

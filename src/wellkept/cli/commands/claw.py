"""`kept claw`: the migration from OpenClaw, and the cleanup after it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wellkept import imports
from wellkept.cli.commands.imports import Wanted, import_sources
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    confirm,
    count_noun,
    fail,
    note,
    open_caller,
    print_json,
    refuse,
    say,
)
from wellkept.core.errors import Refused
from wellkept.core.text import printable

if TYPE_CHECKING:
    from wellkept.imports.openclaw import Cleanup

SourceOption = Annotated[
    Path | None, typer.Option("--source", help="The folder of OpenClaw, instead of ~/.openclaw and its former names.")
]


def register(program: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Move from OpenClaw to kept.")
    group.command("migrate")(migrate)
    group.command("cleanup")(clean_up)
    program.add_typer(group, name="claw")


def migrate(
    place: SourceOption = None,
    preset: Annotated[
        str, typer.Option("--preset", help="user-data (memory, notes, skills, conversations, SOUL/AGENTS) or full.")
    ] = "full",
    skill_conflict: Annotated[
        str, typer.Option("--skill-conflict", help="A skill whose name is taken: skip, overwrite or rename.")
    ] = "skip",
    workspace_target: Annotated[
        str | None, typer.Option("--workspace-target", help="The folder that gets AGENTS.md.")
    ] = None,
    migrate_secrets: Annotated[
        bool, typer.Option("--migrate-secrets", help="Also take the API keys that kept can use.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be stored.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what was changed here and in OpenClaw.")
    ] = False,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="Do not back up the home first.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import everything from OpenClaw; same as `kept import openclaw`."""
    from wellkept.imports.sources import ImportChoices

    options = {"preset": preset}
    if workspace_target is not None:
        options["workspace-target"] = workspace_target
    if migrate_secrets:
        options["migrate-secrets"] = "yes"
    choices = ImportChoices(overwrite=overwrite, skill_conflict=skill_conflict, with_backup=not no_backup)
    with open_caller() as caller:
        wanted = Wanted("openclaw", place, None, options, choices, dry_run=dry_run, yes=yes, as_json=as_json)
        import_sources(caller, wanted)


def clean_up(
    place: SourceOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be renamed.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Rename the folders of OpenClaw, so that nothing uses them any more; renaming them back undoes that."""
    with open_caller() as caller:
        plan = imports.openclaw.preview_cleanup(caller, place)
        if isinstance(plan, Refused):
            refuse(plan, as_json=as_json, code=1)
        if not as_json:
            _show(plan)
        done = plan
        if not dry_run:
            if not confirm(f"rename {count_noun(len(plan.renamings), 'folder')}?", yes=yes):
                fail("nothing was renamed")
            done = imports.openclaw.run_cleanup(caller, plan)
            if not as_json:
                _show(done)
        if as_json:
            print_json(done.as_json())
        if done.problems:
            raise typer.Exit(1)


def _show(cleanup: "Cleanup") -> None:
    verb = "would be renamed" if cleanup.is_preview else "renamed"
    for one in cleanup.renamings:
        say(printable(f"{verb}: {one.old} → {one.new} ({one.total_bytes / 1e6:,.1f} MB)"))
        if not cleanup.is_preview:
            say(printable(f"  undo: {one.undo}"))
    for text in cleanup.warnings if cleanup.is_preview else ():
        note(printable(f"warning: {text}"))
    for where, what in cleanup.problems:
        note(printable(f"{where}: {what}"))

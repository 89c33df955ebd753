"""`kept import`: conversations of other agents; `kept claw`: the move from OpenClaw, and the cleanup after it."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from wellkept import imports
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    confirm,
    count_noun,
    expect,
    fail,
    moment,
    note,
    open_caller,
    print_json,
    refuse,
    say,
)
from wellkept.core.clock import from_epoch
from wellkept.core.errors import Reason, Refused, StorageError
from wellkept.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.app import Caller
    from wellkept.imports.openclaw import Cleanup
    from wellkept.imports.run import ImportReport
    from wellkept.imports.sources import FoundSource, ImportChoices
    from wellkept.imports.undo import UndoneImport

_WATCH_SECONDS = 1.0
_PARTIAL = 3
"""Exit code of an import that stored what it understood, but did not understand everything."""
_SHOWN = 10
"""How many problems and conflicts are printed; the report has all."""
_LIST, _UNDO = "list", "undo"


def register(program: typer.Typer) -> None:
    """Add the command and the group."""
    program.command("import")(import_)
    group = typer.Typer(no_args_is_help=True, help="Move from OpenClaw to kept.")
    group.command("migrate")(migrate)
    group.command("cleanup")(clean_up)
    program.add_typer(group, name="claw")


def _complete(incomplete: str) -> list[str]:
    from wellkept.formats.port import SOURCES

    return [name for name in (*SOURCES, imports.sources.ALL, _LIST, _UNDO) if name.startswith(incomplete)]


def import_(  # the options of a command
    source: Annotated[
        str | None,
        typer.Argument(
            help="A program (`kept import` lists them), `all`, `list` for past imports, or `undo`.",
            autocompletion=_complete,
        ),
    ] = None,
    import_id: Annotated[str | None, typer.Argument(metavar="ID", help="With `undo`: which import.")] = None,
    place: Annotated[
        Path | None, typer.Option("--source", help="A folder, transcript or archive instead of the usual place.")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help="Only transcripts that changed since this date.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be stored.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what was changed here and in the source.")
    ] = False,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="Do not back up the home first.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Keep running, and store new turns.")] = False,
    preset: Annotated[str | None, typer.Option("--preset", help="openclaw: user-data or full.")] = None,
    skill_conflict: Annotated[
        str, typer.Option("--skill-conflict", help="A skill whose name is taken: skip, overwrite or rename.")
    ] = "skip",
    workspace_target: Annotated[
        str | None, typer.Option("--workspace-target", help="openclaw: where AGENTS.md goes.")
    ] = None,
    migrate_secrets: Annotated[
        bool, typer.Option("--migrate-secrets", help="openclaw: also take known API keys.")
    ] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import conversations, memory files and skills of other programs; a second run adds only what is new.

    Without a name, list what was found on this machine. The sources are read and never changed. Reminders, hook
    output, injected memory, other machine-written text, and `<private>…</private>` are left out.
    `kept import undo ID` undoes an import.
    """
    from wellkept.imports.sources import ImportChoices

    given = {
        "preset": preset,
        "workspace-target": workspace_target,
        "migrate-secrets": "yes" if migrate_secrets else None,
    }
    request = Wanted(
        source, place, since, {name: value for name, value in given.items() if value is not None},
        ImportChoices(overwrite=overwrite, skill_conflict=skill_conflict, with_backup=not no_backup),
        dry_run=dry_run, watch=watch, yes=yes, as_json=as_json,
    )  # fmt: skip
    with open_caller() as caller:
        if source == _LIST:
            _list_imports(caller, as_json=as_json)
        elif source == _UNDO:
            _undo(caller, import_id, dry_run=dry_run, yes=yes, as_json=as_json)
        else:
            if import_id is not None:
                unknown = Refused(Reason.INVALID, f"{import_id!r} is not expected here", "kept import undo ID")
                refuse(unknown, as_json=as_json, code=2)
            import_sources(caller, request)


class Wanted(Struct, frozen=True):
    """The options of an import, also used by `kept claw migrate`."""

    source: str | None
    place: Path | None
    since: str | None
    options: dict[str, str]
    choices: "ImportChoices"
    dry_run: bool = False
    watch: bool = False
    yes: bool = False
    as_json: bool = False


def import_sources(caller: "Caller", wanted: Wanted) -> None:
    """Find, preview, ask, import and report; without a source, list what was found."""
    everything = imports.sources.ALL
    if wanted.source is None and wanted.place is not None:
        unnamed = Refused(Reason.INVALID, "--source needs the name of a program", "kept import codex --source PATH")
        refuse(unnamed, as_json=wanted.as_json, code=2)
    if wanted.dry_run or (wanted.source is None and not wanted.watch):
        caller.app.preview_only()
    start = moment(wanted.since, now=time.time()) if wanted.since is not None else 0.0
    name = wanted.source or everything
    sources = imports.sources.find_sources(
        caller, name, wanted.place, since=start, options=wanted.options, choices=wanted.choices
    )
    if isinstance(sources, Refused):
        refuse(sources, as_json=wanted.as_json, code=1 if sources.reason is Reason.NO_MATCH else 2)
    if wanted.source is None and not wanted.watch:
        _list_sources(sources.sources, as_json=wanted.as_json)
        return
    chosen = [source for source in sources.sources if not source.is_empty]
    if not chosen and not wanted.watch:
        _refuse_empty(sources.sources, as_json=wanted.as_json)
    reports = [_import(caller, source, wanted) for source in chosen]
    if wanted.as_json:
        values = [report.as_json() for report in reports]
        print_json(values[0] if len(values) == 1 and wanted.source != everything else values)
    if wanted.watch and not wanted.dry_run:
        _watch(caller, [one.source for one in sources.sources], wanted.place)
    _end(reports)


def _end(reports: "Sequence[ImportReport]") -> None:
    """End with an error code if the disk refused something, or if not everything could be read."""
    if any(report.assets.is_incomplete for report in reports):
        note("not everything could be stored; the same command stores the rest")
        raise typer.Exit(StorageError.exit_code)
    if reports and all(report.is_refused for report in reports):
        raise typer.Exit(1)
    if not all(report.is_complete for report in reports):
        note("not everything was understood: the problems above are not stored, everything else is")
        raise typer.Exit(_PARTIAL)


def _list_sources(sources: "Sequence[FoundSource]", *, as_json: bool) -> None:
    if as_json:
        print_json([one.as_json() for one in sources])
        return
    say(f"{'source':<12} {'transcripts':>11} {'new':>7} {'MB':>9} {'memory':>7} {'new':>5} {'skills':>7}  place")
    for source in sources:
        size = f"{source.total_bytes / 1e6:,.1f}"
        places = ", ".join(str(place) for place in source.places)
        memory = f"{source.memory_files:>7,} {source.new_memory_files:>5,} {source.skills:>7,}"
        say(
            printable(
                f"{source.source:<12} {len(source.transcripts):>11,} {source.new:>7,} {size:>9} {memory}  {places}"
            )
        )
    if any(one.new or one.new_memory_files for one in sources):
        note("preview: kept import NAME --dry-run; store all: kept import all")


def _refuse_empty(sources: "Sequence[FoundSource]", *, as_json: bool) -> None:
    looked = ", ".join(str(place) for source in sources for place in source.places)
    remedy = "give the place with --source"
    refuse(Refused(Reason.NO_MATCH, f"nothing to import was found in {looked}", remedy), as_json=as_json, code=1)


def _import(caller: "Caller", found: "FoundSource", wanted: Wanted) -> "ImportReport":
    yes = wanted.yes or wanted.watch
    if wanted.dry_run or not yes:
        preview = imports.run.preview_import(caller, found, wanted.choices)
        if not wanted.as_json:
            show_report(preview)
        if wanted.dry_run:
            return preview
        if preview.is_empty:
            if not wanted.as_json:
                say(f"{found.source}: nothing new")
            return preview
        if not confirm(f"import this from {found.source}?", yes=yes):
            fail("nothing was imported")
    report = expect(imports.run.run_import(caller, found, wanted.choices), as_json=wanted.as_json)
    if not wanted.as_json:
        show_report(report)
    return report


def show_report(report: "ImportReport") -> None:
    """Print what was created, merged, skipped or in conflict, or would be."""
    say(f"{report.source}: {'would be imported' if report.is_preview else 'imported'}")
    say(f"  {'':<14} {'created':>9} {'merged':>9} {'skipped':>9} {'conflicts':>9}")
    for name, counts in report.rows():
        say(f"  {name:<14} " + " ".join(f"{count:>9,}" for count in counts))
    if report.left:
        left = ", ".join(f"{why} {count:,}" for why, count in report.left.items())
        say(f"  left out: {left}")
    for caution in report.assets.cautions:
        note(printable(f"  warning: {caution}"))
    _show_pairs("conflict", report.conflicts)
    _show_pairs("left in the archive of the report", report.assets.left)
    _show_pairs("problem", report.problems)
    if report.report is not None:
        say(f"  report: {report.report}")
    if report.import_id is not None:
        say(f"  undo: kept import undo {report.import_id}")
        if sum(report.assets.entries.values()):
            note("imported memory appears in new sessions")


def _show_pairs(name: str, pairs: "Sequence[tuple[str, str]]") -> None:
    for where, what in pairs[:_SHOWN]:
        note(printable(f"  {name}: {where}: {what}"))
    if len(pairs) > _SHOWN:
        note(f"  and {len(pairs) - _SHOWN:,} more, see the report")


def _list_imports(caller: "Caller", *, as_json: bool) -> None:
    listed = imports.undo.list_imports(caller)
    if as_json:
        print_json(listed.as_json())
        return
    if not listed.runs:
        say("no imports")
        return
    for run in listed.runs:
        state = "undone" if run.undone is not None else "" if run.finished is not None else "interrupted"
        parts = [f"{run.id}  {from_epoch(run.started):%Y-%m-%d %H:%M}  {run.source:<12}"]
        sessions, entries = run.counts.get("sessions"), run.counts.get("entries")
        if isinstance(sessions, dict) and isinstance(entries, dict):
            parts.append(
                f"{sessions['new']:,} new conversations, {sessions['updated']:,} updated, {entries['added']:,} entries"
            )
        say(printable("  ".join([*parts, state]).rstrip()))


def _undo(caller: "Caller", import_id: str | None, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    if import_id is None:
        refuse(Refused(Reason.INVALID, "no import named", "`kept import list` shows the ids"), as_json=as_json, code=2)
    preview = expect(imports.undo.undo_import(caller, import_id, is_preview=True), as_json=as_json)
    if not as_json:
        _show_undo(preview)
    done = preview
    if not dry_run:
        if not confirm("undo all of this?", yes=yes):
            fail("nothing was changed")
        done = expect(imports.undo.undo_import(caller, import_id), as_json=as_json)
        if not as_json:
            _show_undo(done)
    if as_json:
        print_json(done.as_json())


def _show_undo(result: "UndoneImport") -> None:
    verb = "would be removed" if result.is_preview else "removed"
    counts = [
        count_noun(result.sessions, "conversation"), count_noun(result.messages, "message"),
        count_noun(result.entries, "edit"), count_noun(result.skills, "skill"), count_noun(result.others, "setting"),
    ]  # fmt: skip
    say(f"{result.source} {result.import_id}: {', '.join(counts)} {verb}")
    _show_pairs("stays", result.kept)


def _watch(caller: "Caller", names: list[str], place: Path | None) -> None:
    """Follow the transcripts until the person stops it."""
    watch = imports.run.Watch(caller, names, place)
    note(f"watching {', '.join(names)}; stop with Ctrl-C")
    while True:
        for client, path, added in watch.step():
            say(printable(f"{client}: {count_noun(added, 'message')} from {path}"))
        time.sleep(_WATCH_SECONDS)


SourceOption = Annotated[
    Path | None, typer.Option("--source", help="The folder of OpenClaw, instead of ~/.openclaw and its former names.")
]


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
        plan = expect(imports.openclaw.preview_cleanup(caller, place), as_json=as_json, code=1)
        if not as_json:
            _show_cleanup(plan)
        done = plan
        if not dry_run:
            if not confirm(f"rename {count_noun(len(plan.renamings), 'folder')}?", yes=yes):
                fail("nothing was renamed")
            done = imports.openclaw.run_cleanup(caller, plan)
            if not as_json:
                _show_cleanup(done)
        if as_json:
            print_json(done.as_json())
        if done.problems:
            raise typer.Exit(1)


def _show_cleanup(cleanup: "Cleanup") -> None:
    verb = "would be renamed" if cleanup.is_preview else "renamed"
    for renaming in cleanup.renamings:
        say(printable(f"{verb}: {renaming.old} → {renaming.new} ({renaming.total_bytes / 1e6:,.1f} MB)"))
        if not cleanup.is_preview:
            say(printable(f"  undo: {renaming.undo}"))
    for text in cleanup.warnings if cleanup.is_preview else ():
        note(printable(f"warning: {text}"))
    for where, what in cleanup.problems:
        note(printable(f"{where}: {what}"))

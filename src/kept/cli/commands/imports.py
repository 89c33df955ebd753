"""`kept import`: conversations of other programs on this machine, found, previewed, stored and followed."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kept import operations
from kept.cli.terminal import (
    JsonFlag,
    YesFlag,
    confirm,
    count_noun,
    fail,
    moment,
    note,
    open_caller,
    print_json,
    refuse,
    say,
)
from kept.core.errors import Reason, Refused
from kept.core.text import printable

if TYPE_CHECKING:
    from kept.app import Caller
    from kept.operations.imports import FoundSource, ImportReport

_WATCH_SECONDS = 1.0
_PROBLEMS_SHOWN = 10


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("import")(import_)


def _complete(incomplete: str) -> list[str]:
    from kept.importers.port import SOURCES

    return [name for name in (*SOURCES, operations.imports.ALL) if name.startswith(incomplete)]


def import_(
    source: Annotated[
        str | None,
        typer.Argument(help="claude-code, codex, opencode, or all.", autocompletion=_complete),
    ] = None,
    place: Annotated[
        Path | None, typer.Option("--source", help="A folder or a transcript instead of the usual place.")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help="Only transcripts that changed since this date.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be stored.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on: store new turns as they are written.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Store conversations of other programs; a second run adds only what is new.

    Without a name: what was found on this machine. The sources are read and never changed. What is left out:
    reminders, hooks, injected memory and everything else that nobody said, and `<private>…</private>`.
    """
    with open_caller() as caller:
        if source is None and place is not None:
            unnamed = Refused(Reason.INVALID, "--source needs the name of a program", "kept import codex --source PATH")
            refuse(unnamed, as_json=as_json, code=2)
        start = moment(since, now=time.time()) if since is not None else 0.0
        found = operations.imports.find_sources(caller, source or operations.imports.ALL, place, since=start)
        if isinstance(found, Refused):
            refuse(found, as_json=as_json, code=2)
        if source is None and not watch:
            _list(found.sources, as_json=as_json)
            return
        chosen = [one for one in found.sources if one.transcripts]
        if not chosen and not watch:
            _refuse_empty(found.sources, as_json=as_json)
        reports = [_import(caller, one, dry_run=dry_run, yes=yes or watch, as_json=as_json) for one in chosen]
        if as_json:
            values = [report.as_json() for report in reports]
            print_json(values[0] if len(values) == 1 and source != operations.imports.ALL else values)
        if watch and not dry_run:
            _watch(caller, [one.source for one in found.sources], place)


def _list(sources: "tuple[FoundSource, ...]", *, as_json: bool) -> None:
    if as_json:
        print_json([one.as_json() for one in sources])
        return
    say(f"{'source':<12} {'transcripts':>11} {'new':>7} {'MB':>9}  place")
    for one in sources:
        size = f"{one.total_bytes / 1e6:,.1f}"
        places = ", ".join(str(place) for place in one.places)
        say(printable(f"{one.source:<12} {len(one.transcripts):>11,} {one.new:>7,} {size:>9}  {places}"))
    if any(one.new for one in sources):
        note("preview: kept import NAME --dry-run; store all: kept import all")


def _refuse_empty(sources: "tuple[FoundSource, ...]", *, as_json: bool) -> None:
    looked = ", ".join(str(place) for one in sources for place in one.places)
    remedy = "give the place with --source"
    refuse(Refused(Reason.NO_MATCH, f"no transcripts were found in {looked}", remedy), as_json=as_json, code=1)


def _import(caller: "Caller", found: "FoundSource", *, dry_run: bool, yes: bool, as_json: bool) -> "ImportReport":
    if dry_run or not yes:
        preview = operations.imports.preview_import(caller, found)
        if not as_json:
            _show(preview)
        if dry_run:
            return preview
        new = preview.sessions["new"] + preview.sessions["updated"]
        if not new:
            if not as_json:
                say(f"{found.source}: nothing new")
            return preview
        if not confirm(f"store {count_noun(new, 'conversation')} from {found.source}?", yes=yes):
            fail("nothing was imported")
    report = operations.imports.run_import(caller, found)
    if not as_json:
        _show(report)
    return report


def _show(report: "ImportReport") -> None:
    sessions, messages = report.sessions, report.messages
    verb = "would be stored" if report.is_preview else "stored"
    say(f"{report.source}: {verb}")
    for name, count in (("created", sessions["new"]), ("merged", sessions["updated"])):
        say(f"  {name:<12} {count_noun(count, 'conversation')}")
    say(f"  {'skipped':<12} {sessions['unchanged']:,} without anything new, {sessions['skipped']:,} not read")
    say(f"  {'conflicts':<12} {count_noun(report.conflicts, 'message')} changed in the source")
    counted = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in messages.items())
    say(f"  {'messages':<12} {counted}")
    if report.left:
        left = ", ".join(f"{why} {count:,}" for why, count in report.left.items())
        say(f"  {'left out':<12} {left}")
    for where, what in report.problems[:_PROBLEMS_SHOWN]:
        note(printable(f"  {where}: {what}"))
    if len(report.problems) > _PROBLEMS_SHOWN:
        note(f"  and {count_noun(len(report.problems) - _PROBLEMS_SHOWN, 'more problem')}, see the report")
    if report.report is not None:
        say(f"  {'report':<12} {report.report}")


def _watch(caller: "Caller", names: list[str], place: Path | None) -> None:
    """Follow the transcripts until the person stops it."""
    watch = operations.imports.Watch(caller, names, place)
    note(f"watching {', '.join(names)}; stop with Ctrl-C")
    while True:
        for client, path, added in watch.step():
            say(printable(f"{client}: {count_noun(added, 'message')} from {path}"))
        time.sleep(_WATCH_SECONDS)

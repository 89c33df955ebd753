"""`kept memory log | diff | undo | at | search | restore`: the past of the pages."""

from typing import Annotated

import typer

from kept.cli.commands.memory import TargetOption, show_outcome
from kept.cli.terminal import JsonFlag, moment, note, open_caller, print_json, printable, say
from kept.core.clock import from_epoch
from kept.core.errors import Refused
from kept.memory.edits import EditRecord
from kept.memory.page import preview
from kept.operations import pages

app = typer.Typer()

EditArgument = Annotated[int, typer.Argument(help="The number of the edit, as `kept memory log` prints it.")]
SIGNS = {"add": "+", "remove": "-", "replace": "~", "archive": "·"}


@app.command()
def log(
    target: TargetOption = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only edits after this moment: 2026-11-15, last week.")
    ] = None,
    review: Annotated[str | None, typer.Option("--review", help="Only the edits of one review or batch.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List edits, newest first."""
    with open_caller() as caller:
        after = moment(since, now=caller.app.clock.now().timestamp()) if since else 0.0
        found = pages.read_log(caller, target=target, since=after, group_id=review)
    if as_json:
        print_json(found.as_json())
        return
    if not found.records:
        note("no edit fits" if found.is_filtered else "no edits yet")
    for row in found.records:
        mark = "  (undone)" if row.id in found.undone else f"  (undoes {row.undoes})" if row.undoes else ""
        say(_line(row, text=row.step.after or row.step.before or "") + mark)
    for gap in found.gaps:
        say(f"gap: {gap}")


def _line(row: EditRecord, *, text: str) -> str:
    when = f"{from_epoch(row.time).astimezone():%Y-%m-%d %H:%M:%S}"
    shown = printable(preview(text))
    return f"{row.id:>5}  {when}  {row.target.value:<6}  {SIGNS[row.step.action]} {shown}  [{row.origin}]"


@app.command()
def diff(ledger_id: EditArgument, target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Show what one edit changed."""
    with open_caller() as caller:
        row = pages.read_edit(caller, ledger_id, target)
    if as_json:
        print_json(row.as_json())
        return
    say(f"edit {row.id} on {row.target.value}, {from_epoch(row.time).astimezone():%Y-%m-%d %H:%M:%S}, by {row.origin}")
    for sign, text in (("-", row.step.before), ("+", row.step.after)):
        for line in (text or "").splitlines():
            say(f"{sign} {printable(line)}")


@app.command()
def undo(
    ledger_id: Annotated[int | None, typer.Argument(help="The edit; without it the newest one not yet undone.")] = None,
    review: Annotated[str | None, typer.Option("--review", help="All edits of one review or batch.")] = None,
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Take an edit back, as a new edit; repeating it walks back, undoing an undo's id brings it back."""
    with open_caller() as caller:
        result = pages.undo(caller, ledger_id=ledger_id, group_id=review, target=target)
        if isinstance(result, Refused):
            show_outcome(result, as_json=as_json)
            return
        if as_json:
            print_json(result.as_json())
            return
        for outcome in result.outcomes:
            show_outcome(outcome, as_json=False, way_back=f"redo: {result.redo_command}")


@app.command()
def at(
    time: Annotated[str, typer.Argument(help="A moment: 2026-11-15, 2026-11-15T18:30, yesterday, 3 days ago.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the pages as they were at a moment."""
    with open_caller() as caller:
        past = pages.read_pages_at(caller, moment(time, now=caller.app.clock.now().timestamp()), target)
    if as_json:
        print_json(past.as_json())
        return
    for page, entries in past.pages.items():
        say(page.value)
        for entry in entries:
            say(f"  § {printable(entry)}".replace("\n", "\n    "))


@app.command()
def search(
    words: Annotated[list[str], typer.Argument(help="Words that the text must hold.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Search the archive: what was removed, replaced or displaced."""
    with open_caller() as caller:
        hits = pages.search_archive(caller, " ".join(words), target)
    if as_json:
        print_json(hits.as_json())
        return
    found = hits.records
    for row in found:
        say(_line(row, text=row.step.before or ""))
    say(f"{len(found)} found." + (" `kept memory restore ID` puts one back." if found else ""))


@app.command()
def restore(ledger_id: EditArgument, target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Put an archived text back on its page."""
    with open_caller() as caller:
        show_outcome(pages.restore(caller, ledger_id, target), as_json=as_json)

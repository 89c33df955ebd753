"""`kept memory log | diff | undo | at | search | restore`: the past of the pages."""

from collections.abc import Sequence
from typing import Annotated

import typer

from kept.cli.commands.memory_frame import TargetOption, outcome_json, pages, show_outcome
from kept.cli.terminal import JsonFlag, moment, note, opened, print_json, say
from kept.cli.text import printable
from kept.core.clock import from_epoch
from kept.core.errors import Refused, Unreadable, UsageError
from kept.core.ids import LedgerId
from kept.memory.edits import Entered, Target, undone
from kept.memory.history import History, edit_json
from kept.memory.page import preview

EditArgument = Annotated[int, typer.Argument(help="The number of the edit, as `kept memory log` prints it.")]
SIGNS = {"add": "+", "remove": "-", "replace": "~", "archive": "·"}


def add_to(app: typer.Typer) -> None:
    """Add the commands to the group."""
    for command in (log, diff, undo, at, search, restore):
        app.command()(command)


def log(
    target: TargetOption = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only edits after this moment: 2026-11-15, last week.")
    ] = None,
    review: Annotated[str | None, typer.Option("--review", help="Only the edits of one review or batch.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List edits, newest first."""
    with opened() as kept:
        history = History(kept.memory)
        every = history.rows()
        gone = undone(every)
        after = moment(since, now=kept.clock.now().timestamp()) if since else 0.0
        rows = [
            row for row in reversed(every)
            if target in (None, row.target) and row.time >= after and review in (None, row.group_id)
        ]  # fmt: skip
        gaps = [gap for page in Target if (gap := _gap(history, page))]
    if as_json:
        print_json([edit_json(row, gone) for row in rows])
        return
    if not rows:
        note("no edits yet" if not every else "no edit fits")
    for row in rows:
        mark = "  (undone)" if row.id in gone else f"  (undoes {row.undoes})" if row.undoes else ""
        say(_line(row, text=row.step.after or row.step.before or "") + mark)
    for gap in gaps:
        say(f"gap: {gap}")


def _gap(history: History, page: Target) -> str | None:
    """Return what stands between the rows and a page; one that cannot be read is one."""
    try:
        return history.gap(page)
    except Unreadable as error:
        return f"{error.message}; {error.remedy}"


def _line(row: Entered, *, text: str) -> str:
    when = f"{from_epoch(row.time).astimezone():%Y-%m-%d %H:%M:%S}"
    shown = printable(preview(text))
    return f"{row.id:>5}  {when}  {row.target.value:<6}  {SIGNS[row.step.action]} {shown}  [{row.origin}]"


def diff(ledger_id: EditArgument, target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Show what one edit changed."""
    with opened() as kept:
        row = _row_on(History(kept.memory), ledger_id, target)
    if as_json:
        print_json(edit_json(row, set()))
        return
    say(f"edit {row.id} on {row.target.value}, {from_epoch(row.time).astimezone():%Y-%m-%d %H:%M:%S}, by {row.origin}")
    for sign, text in (("-", row.step.before), ("+", row.step.after)):
        for line in (text or "").splitlines():
            say(f"{sign} {printable(line)}")


def _row_on(history: History, ledger_id: int, target: Target | None) -> Entered:
    row = history.row(ledger_id)
    if target not in (None, row.target):
        raise UsageError(f"edit {ledger_id} is on the page '{row.target}'", f"leave --target out, or name {row.target}")
    return row


def undo(
    ledger_id: Annotated[int | None, typer.Argument(help="The edit; without it the newest one not yet undone.")] = None,
    review: Annotated[str | None, typer.Option("--review", help="All edits of one review or batch.")] = None,
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Take an edit back, as a new edit; repeating it walks back, undoing an undo's id brings it back."""
    from kept.memory.undo import undo as take_back

    with opened() as kept:
        result = take_back(kept.memory, ledger_id=ledger_id, group_id=review, target=target)
        if isinstance(result, Refused):
            show_outcome(result, as_json=as_json)
            return
        if as_json:
            print_json({"success": True, "undone": [outcome_json(outcome) for outcome in result]})
            return
        way_back = _redo(History(kept.memory), [number for outcome in result for number in outcome.ledger_ids])
        for outcome in result:
            show_outcome(outcome, as_json=False, way_back=way_back)


def _redo(history: History, numbers: Sequence[LedgerId]) -> str:
    """Return how to bring back what was undone: without a number, `undo` would walk further back."""
    if len(numbers) == 1:
        return f"redo: kept memory undo {numbers[0]}"
    return f"redo: kept memory undo --review {history.row(numbers[0]).group_id}" if numbers else ""


def at(
    time: Annotated[str, typer.Argument(help="A moment: 2026-11-15, 2026-11-15T18:30, yesterday, 3 days ago.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the pages as they were at a moment."""
    with opened() as kept:
        history = History(kept.memory)
        then = moment(time, now=kept.clock.now().timestamp())
        past = {page: history.at(page, then) for page in pages(target)}
    if as_json:
        print_json({page.value: {"entries": list(entries)} for page, entries in past.items()})
        return
    for page, entries in past.items():
        say(page.value)
        for entry in entries:
            say(f"  § {printable(entry)}".replace("\n", "\n    "))


def search(
    words: Annotated[list[str], typer.Argument(help="Words that the text must hold.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Search the archive: what was removed, replaced or displaced."""
    with opened() as kept:
        found = History(kept.memory).archive(" ".join(words), target)
    if as_json:
        print_json([{**edit_json(row, set()), "text": row.step.before} for row in found])
        return
    for row in found:
        say(_line(row, text=row.step.before or ""))
    say(f"{len(found)} found." + (" `kept memory restore ID` puts one back." if found else ""))


def restore(ledger_id: EditArgument, target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Put an archived text back on its page."""
    from kept.memory.undo import restore as put_back

    with opened() as kept:
        row = _row_on(History(kept.memory), ledger_id, target)
        show_outcome(put_back(kept.memory, row), as_json=as_json)

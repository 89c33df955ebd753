"""`kept memory log | diff | undo | at | search | restore | repair | edit | reset | export | import`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wellkept.app import Caller
from wellkept.cli.commands.memory import TargetOption, ask_if_held, show_outcome
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    complete_hint,
    confirm,
    count_noun,
    fail,
    moment,
    note,
    open_caller,
    print_json,
    read_input,
    refuse,
    say,
)
from wellkept.core.clock import from_epoch
from wellkept.core.errors import Refused, UsageError
from wellkept.core.regular_files import load_text
from wellkept.core.text import JSON
from wellkept.memory.page import ENTRY_DELIMITER, EditRecord, Target, preview
from wellkept.operations import memory

if TYPE_CHECKING:
    from wellkept.memory.rewrite import Proposal


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
        found = memory.read_log(caller, target=target, since=after, group_id=review)
    if as_json:
        print_json(found.as_json())
        return
    if not found.records:
        note("no matching edits" if found.is_filtered else "no edits yet")
    for row in found.records:
        mark = "  (undone)" if row.id in found.undone else f"  (undoes {row.undoes})" if row.undoes else ""
        say(_line(row, text=row.step.after or row.step.before or "") + mark)
    for gap in found.gaps:
        say(f"gap: {gap}")


def _line(row: EditRecord, *, text: str) -> str:
    when = f"{from_epoch(row.time).astimezone():%Y-%m-%d %H:%M:%S}"
    shown = preview(text)
    head = f"{row.id:>5}  {when}  {row.target.value:<6}"
    return f"{head}  {SIGNS[row.step.action]} {shown}  [{row.origin}{_tell_source(row)}]"


def _tell_source(row: EditRecord) -> str:
    if row.source is None:
        return ""
    from wellkept.core.provenance import describe

    return f", after reading {describe(row.source)}"


@app.command()
def diff(ledger_id: EditArgument, target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Show what one edit changed."""
    with open_caller() as caller:
        row = memory.read_edit(caller, ledger_id, target)
    if as_json:
        print_json(row.as_json())
        return
    when = f"{from_epoch(row.time).astimezone():%Y-%m-%d %H:%M:%S}"
    say(f"edit {row.id} on {row.target.value}, {when}, by {row.origin}{_tell_source(row)}")
    for sign, text in (("-", row.step.before), ("+", row.step.after)):
        for line in (text or "").splitlines():
            say(f"{sign} {line}")


@app.command()
def undo(
    ledger_id: Annotated[int | None, typer.Argument(help="The edit; without it the newest one not yet undone.")] = None,
    review: Annotated[str | None, typer.Option("--review", help="All edits of one review or batch.")] = None,
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Undo an edit; repeat it to undo earlier ones; undoing an undo restores it."""
    with open_caller() as caller:
        result = memory.undo(caller, ledger_id=ledger_id, group_id=review, target=target)
        if isinstance(result, Refused):
            show_outcome(result, as_json=as_json)
            return
        if as_json:
            print_json(result.as_json())
            return
        for outcome in result.outcomes:
            show_outcome(outcome, as_json=False, undo_hint=f"redo: {result.redo_command}")


@app.command()
def at(
    time: Annotated[str, typer.Argument(help="A moment: 2026-11-15, 2026-11-15T18:30, yesterday, 3 days ago.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the pages as they were at a moment."""
    with open_caller() as caller:
        past = memory.read_pages_at(caller, moment(time, now=caller.app.clock.now().timestamp()), target)
    if as_json:
        print_json(past.as_json())
        return
    for page, entries in past.pages.items():
        say(page.value)
        for entry in entries:
            say(f"  § {entry}".replace("\n", "\n    "))


@app.command()
def search(
    words: Annotated[list[str], typer.Argument(help="Words that the text must contain.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Search the archive: what was removed, replaced or displaced."""
    with open_caller() as caller:
        hits = memory.search_archive(caller, " ".join(words), target)
    if as_json:
        print_json(hits.as_json())
        return
    found = hits.records
    for row in found:
        say(_line(row, text=row.step.before or ""))
    say(f"{len(found)} found." + (complete_hint(" `kept memory restore ID` puts one back.") if found else ""))


@app.command()
def restore(ledger_id: EditArgument, target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Put an archived text back on its page."""
    with open_caller() as caller:
        show_outcome(memory.restore(caller, ledger_id, target), as_json=as_json)


@app.command()
def repair(target: TargetOption = None, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Repair an unreadable page, one that another program changed, and damaged rows of the ledger."""
    with open_caller() as caller:
        done: dict[str, JSON] = {
            page.value: _repair(caller, page, yes=yes, as_json=as_json) for page in memory.list_pages(caller, target)
        }
        ledger = memory.repair_ledger(caller)
    if ledger.rebuilt or ledger.marked or ledger.put_aside:
        done["ledger"] = ledger.as_json()
    if as_json:
        print_json(done)
        return
    if ledger.put_aside:
        saved = count_noun(ledger.saved, "edit", "edits")
        say(f"ledger: the file was damaged: {saved} saved; the old file is {ledger.put_aside}")
    for ids, what in ((ledger.rebuilt, "rebuilt"), (ledger.marked, "cannot be rebuilt, and marked as damaged")):
        if ids:
            say(f"ledger: {count_noun(len(ids), 'edit', 'edits')} {what}: {', '.join(map(str, ids))}")


def _repair(caller: Caller, page: Target, *, yes: bool, as_json: bool) -> dict[str, JSON]:
    def tell(text: str) -> None:
        if not as_json:
            say(text)

    proposal = memory.propose_repair(caller, page)
    if not proposal.is_needed:
        tell(f"{page.value}: nothing to repair")
        return {"success": True, "needed": False}
    tell(_diff(page, proposal))
    if not confirm(f"Write this {page.value} page?", yes=yes):
        fail("nothing was changed", code=1)
    done = memory.repair_page(caller, page, proposal)
    if isinstance(done, Refused):
        refuse(done, as_json=as_json)
    assert done.outcome is not None
    entries = count_noun(done.outcome.entry_count, "entry", "entries")
    tell(f"{page.value}: repaired, {entries}, {len(done.archived)} archived")
    return done.as_json()


def _diff(page: Target, proposal: "Proposal") -> str:
    import difflib

    lines = difflib.unified_diff(
        proposal.current.splitlines(),
        ENTRY_DELIMITER.join(proposal.entries).splitlines(),
        f"{page.value} (now)",
        f"{page.value} (proposed)",
        lineterm="",
    )
    same = (f"{page.value}: not UTF-8; read in another encoding:", *proposal.entries)
    return "\n".join([*(list(lines) or same), *(f"to the archive: {text}" for text in proposal.archived)])


@app.command()
def edit(target: TargetOption = None, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Open a page in $EDITOR; the result is checked before it is saved."""
    from wellkept.cli.terminal import edit_text

    page = target or Target.MEMORY
    with open_caller() as caller:
        before = memory.read_page(caller, page)
        text, file = edit_text(before.text, name=page.value, otherwise="use `kept memory add`, `replace` and `remove`")
        written = partial(memory.replace_page, caller, page, text, before=before)
        outcome = ask_if_held(written(), lambda _held: written(keep_held=True), yes=yes)
    if isinstance(outcome, Refused):
        note(f"your text is in {file}")
    else:
        file.unlink(missing_ok=True)
    show_outcome(outcome, as_json=as_json)


@app.command()
def reset(target: TargetOption = None, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Empty the pages; every entry stays in the archive, and `undo` restores them."""
    with open_caller() as caller:
        count = memory.count_entries(caller, target)
        if not confirm(f"Remove {count_noun(count, 'entry', 'entries')}?", yes=yes):
            fail("nothing was changed", code=1)
        done = memory.reset_pages(caller, target)
        if isinstance(done, Refused):
            refuse(done, as_json=as_json)
    if as_json:
        print_json(done.as_json())
        return
    for page, outcome in done.outcomes.items():
        removed = len(outcome.change.steps)
        undo_hint = complete_hint(" (undo: kept memory undo)") if removed else ""
        say(f"{page.value}: {count_noun(removed, 'entry', 'entries')} removed{undo_hint}")


@app.command()
def export(target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Print the pages as JSON, for `kept memory import`."""
    with open_caller() as caller:
        print_json(memory.export_pages(caller, target).as_json())
    _ = as_json  # the export is JSON either way; the flag is accepted because every command takes it


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="An export, a page file, or - for standard input.")],
    target: TargetOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Also keep entries that the scanner holds.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Add the entries of an export or of a page file; what does not fit goes to the archive."""
    try:
        text = read_input() if file == "-" else load_text(Path(file), encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {file!r}: {why}", "give an export or a page file in UTF-8") from error
    with open_caller() as caller:
        imported = memory.import_pages(caller, text, target, keep_held=yes)
    if as_json:
        print_json({page.value: done.as_json() for page, done in imported.items()})
    for page, done in imported.items():
        if not as_json:
            say(f"{page.value}: {len(done.added)} added, {len(done.present)} present, {len(done.archived)} archived")
            for entry, why in done.refused:
                note(f"  refused: {entry!r}: {why}")
    if any(done.refused for done in imported.values()):
        note("  next: --yes keeps held entries; `kept memory add --allow RULE` adds a blocked one")
        raise typer.Exit(1)

"""`kept memory repair | edit | reset | export | import`: whole pages at once."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kept.cli.commands.memory_frame import TargetOption, asked_if_held, pages, show_outcome
from kept.cli.terminal import JsonFlag, YesFlag, confirm, fail, note, opened, print_json, read_input, refuse, say
from kept.cli.text import counted, printable
from kept.core.errors import Refused, UsageError
from kept.core.text import JSON
from kept.memory.edits import Target
from kept.memory.page import ENTRY_DELIMITER, parse
from kept.memory.store import MemoryStore

if TYPE_CHECKING:
    from kept.memory.rewrite import Proposal


def add_to(app: typer.Typer) -> None:
    """Add the commands to the group."""
    for command in (repair, edit, reset, export):
        app.command()(command)
    app.command("import")(import_)


def repair(target: TargetOption = None, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Turn a page that was changed from outside, or cannot be read, into a clean one."""
    with opened() as kept:
        done: dict[str, JSON] = {
            page.value: _repaired(kept.memory, page, yes=yes, as_json=as_json) for page in pages(target)
        }
    if as_json:
        print_json(done)


def _repaired(store: MemoryStore, page: Target, *, yes: bool, as_json: bool) -> dict[str, JSON]:
    from kept.memory.rewrite import propose_repair, repair_page

    def tell(text: str) -> None:
        if not as_json:
            say(text)

    proposal = propose_repair(store, page)
    if not proposal.is_needed:
        tell(f"{page.value}: nothing to repair")
        return {"success": True, "needed": False}
    tell(_diff(page, proposal))
    if not confirm(f"Write this {page.value} page?", yes=yes):
        fail("nothing was changed", code=1)
    done = repair_page(store, page, proposal)
    if isinstance(done, Refused):
        refuse(done, as_json=as_json)
    assert done.outcome is not None
    entries = counted(done.outcome.entry_count, "entry", "entries")
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
    same = (f"{page.value}: the bytes are no UTF-8; read in another encoding they say:", *proposal.entries)
    return printable("\n".join([*(list(lines) or same), *(f"to the archive: {text}" for text in proposal.archived)]))


def edit(target: TargetOption = None, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Open a page in $EDITOR; what comes back is checked before it is kept."""
    from kept.cli.commands.editor import edited
    from kept.memory.rewrite import edit_page

    page = target or Target.MEMORY
    with opened() as kept:
        before = kept.memory.page(page)
        text, file = edited(before.text, name=page.value, otherwise="use `kept memory add`, `replace` and `remove`")
        written = partial(edit_page, kept.memory, page, parse(text), before=before)
        outcome = asked_if_held(written(), lambda _held: written(keep_held=True), yes=yes)
    if isinstance(outcome, Refused):
        note(f"your text is kept in {file}")
    else:
        file.unlink(missing_ok=True)
    show_outcome(outcome, as_json=as_json)


def reset(target: TargetOption = None, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Empty the pages; every entry stays in the archive, and `undo` brings them back."""
    from kept.memory.rewrite import reset_pages

    with opened() as kept:
        count = sum(len(kept.memory.page(page).entries) for page in pages(target))
        if not confirm(f"Remove {counted(count, 'entry', 'entries')}?", yes=yes):
            fail("nothing was changed", code=1)
        done = reset_pages(kept.memory, target=target)
        if isinstance(done, Refused):
            refuse(done, as_json=as_json)
    if as_json:
        print_json(done.as_json())
        return
    for page, outcome in done.outcomes.items():
        removed = len(outcome.change.steps)
        way_back = " (undo: kept memory undo)" if removed else ""
        say(f"{page.value}: {counted(removed, 'entry', 'entries')} removed{way_back}")


def export(target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Print the pages as JSON, for `kept memory import`."""
    from kept.memory.rewrite import export_pages

    with opened() as kept:
        print_json(export_pages(kept.memory, target=target).as_json())
    _ = as_json  # the export is JSON either way; the flag is accepted because every command takes it


def import_(
    file: Annotated[str, typer.Argument(help="An export, a page file, or - for standard input.")],
    target: TargetOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Keep what looks like an order or a risk, too.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Add the entries of an export or of a page file; what does not fit goes to the archive."""
    from kept.memory.rewrite import import_pages

    try:
        text = read_input() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {file!r}: {why}", "give an export or a page file in UTF-8") from error
    with opened() as kept:
        imported = import_pages(kept.memory, text, target=target, keep_held=yes)
    if as_json:
        print_json({page.value: done.as_json() for page, done in imported.items()})
    for page, done in imported.items():
        if not as_json:
            say(f"{page.value}: {len(done.added)} added, {len(done.present)} present, {len(done.archived)} archived")
            for entry, why in done.refused:
                note(f"  refused: {entry!r}: {why}")
    if any(done.refused for done in imported.values()):
        note("  next: --yes keeps what is only held; `kept memory add --allow RULE` one that is blocked")
        raise typer.Exit(1)

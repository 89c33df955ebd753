"""`kept memory repair | edit | reset | export | import`: whole pages at once."""

import difflib
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from kept.cli.frame import JsonFlag, YesFlag, confirmed, fail, note, opened, print_json, say
from kept.core.errors import UsageError
from kept.core.jsontypes import JSON
from kept.core.refusal import Reason, Refused
from kept.memory.edits import Target, steps_between
from kept.memory.ledger import Author, Change
from kept.memory.page import ENTRY_DELIMITER, Page, clean, parse

TargetOption = Annotated[Target | None, typer.Option("--target", "-t", help="Which page: memory or user.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the group."""
    for command in (repair, edit, reset, export):
        app.command()(command)
    app.command("import")(import_)


def repair(target: TargetOption = None, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Turn a page that was changed from outside, or cannot be read, into a clean one."""
    from kept.cli.memory import outcome_json
    from kept.memory.repair import propose
    from kept.memory.repair import repair as write_repaired

    done: dict[str, JSON] = {}
    with opened() as kept:
        for page in [target] if target else list(Target):
            proposal = propose(kept.memory, page)
            if not proposal.needed:
                done[page.value] = {"success": True, "needed": False}
                if not as_json:
                    say(f"{page.value}: nothing to repair")
                continue
            if not as_json:
                _show_diff(page, proposal.current, ENTRY_DELIMITER.join(proposal.entries), proposal.archived)
            if not confirmed(f"Write this {page.value} page?", yes=yes):
                fail("nothing was changed", code=1)
            outcome = write_repaired(kept.memory, page, proposal)
            assert not isinstance(outcome, Refused)
            done[page.value] = {**outcome_json(outcome), "needed": True, "archived": list(proposal.archived)}
            if not as_json:
                say(f"{page.value}: repaired, {outcome.entry_count} entries, {len(proposal.archived)} archived")
    if as_json:
        print_json(done)


def _show_diff(page: Target, old: str, new: str, archived: tuple[str, ...]) -> None:
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"{page.value} (now)", f"{page.value} (proposed)", lineterm=""
    )
    for line in lines:
        say(line)
    for text in archived:
        say(f"to the archive: {text}")


def edit(target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Open a page in $EDITOR; what comes back is checked before it is kept."""
    from kept.cli.memory import show_outcome
    from kept.memory.store import threat

    page = target or Target.MEMORY
    with opened() as kept:
        before = kept.memory.page(page)
        entries = tuple(_cleaned(entry) for entry in parse(_edited_text(before.text)))
        for entry in entries:
            if entry not in before.entries and (objection := threat(entry, frozenset())) is not None:
                show_outcome(objection, as_json=as_json)

        def decide(live: Page) -> Change | Refused:
            if live.entries != before.entries:
                return Refused(Reason.MOVED_ON, "The page was changed while you edited it.", "edit it again")
            if not live.fits(entries):
                return Refused(Reason.OVER_BUDGET, f"That is longer than {live.limit:,} characters.", "shorten it")
            return Change(entries, steps_between(live.entries, entries))

        show_outcome(kept.memory.write(page, decide, Author(origin="user"), messages=["Page edited."]), as_json=as_json)


def _edited_text(text: str) -> str:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.md"
        file.write_text(text, encoding="utf-8")
        try:
            code = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
        except OSError as error:
            raise UsageError(f"cannot start the editor {editor!r}: {error.strerror}", "set $EDITOR to one") from error
        if code != 0:
            raise UsageError(f"the editor {editor!r} ended with {code}; nothing was changed", "try again")
        return file.read_text(encoding="utf-8")


def _cleaned(entry: str) -> str:
    found = clean(entry)
    if isinstance(found, Refused):
        fail(found.error, found.remedy)
    return found


def reset(target: TargetOption = None, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Empty the pages; every entry stays in the archive, and `undo` brings them back."""
    from kept.cli.memory import outcome_json

    with opened() as kept:
        pages = [target] if target else list(Target)
        count = sum(len(kept.memory.page(page).entries) for page in pages)
        if not confirmed(f"Remove all {count} entries?", yes=yes):
            fail("nothing was changed", code=1)
        author = Author(origin="user", reason="reset")
        done: dict[str, JSON] = {}
        for page in pages:
            entries = kept.memory.page(page).entries
            result = kept.memory.write(
                page,
                lambda live: Change((), steps_between(live.entries, ())),
                author,
                messages=[f"{len(entries)} entries archived."],
            )
            assert not isinstance(result, Refused) or result.reason is Reason.DRIFT
            if isinstance(result, Refused):
                fail(result.error, result.remedy)
            done[page.value] = outcome_json(result)
            if not as_json:
                say(f"{page.value}: {len(entries)} entries removed (undo: kept memory undo)")
    if as_json:
        print_json(done)


def export(target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Print the pages as JSON, for `kept memory import`."""
    with opened() as kept:
        pages = [target] if target else list(Target)
        print_json({page.value: {"entries": kept.memory.entries(page)} for page in pages})
    _ = as_json  # the export is JSON either way; the flag is accepted because every command takes it


def import_(
    file: Annotated[str, typer.Argument(help="An export, a page file, or - for standard input.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Add the entries of an export or of a page file; what does not fit goes to the archive."""
    from kept.memory.transfer import import_page, read_pages

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file!r}: {error}", "give an export or a page file in UTF-8") from error
    report: dict[str, JSON] = {}
    refused = 0
    with opened() as kept:
        for page, entries in read_pages(text, target or Target.MEMORY).items():
            if target not in (None, page):
                continue
            done = import_page(kept.memory, page, entries)
            refused += len(done.refused)
            report[page.value] = {
                "added": len(done.added), "present": len(done.present), "archived": len(done.archived),
                "refused": [list(pair) for pair in done.refused], "group_id": done.group_id,
            }  # fmt: skip
            if not as_json:
                say(
                    f"{page.value}: {len(done.added)} added, {len(done.present)} present, {len(done.archived)} archived"
                )
                for entry, why in done.refused:
                    note(f"  refused: {entry!r}: {why}")
    if as_json:
        print_json(report)
    if refused:
        raise typer.Exit(1)

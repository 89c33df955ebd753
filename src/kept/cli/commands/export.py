"""`kept export`: everything of one user, the counterpart of forgetting them."""

from pathlib import Path
from typing import Annotated

import typer

from kept.cli.terminal import JsonFlag, note, open_caller, print_json, say, write_lines
from kept.core.ids import OWNER
from kept.core.text import JSON, dumps
from kept.operations.users import UserExport, export_user

_KINDS = {"session": "sessions", "message": "messages", "page": "pages", "edit": "edits", "pending": "pending writes"}


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("export")(export)


def export(
    user: Annotated[str, typer.Option("--user", help="Whose; without it the owner of this home.")] = OWNER,
    output: Annotated[Path | None, typer.Option("--output", "--out", "-o", help="Write to this file.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write everything of one user as JSONL: conversations, pages, edits, and pending writes.

    Each line that is no message names its type. `kept sessions import` takes the conversations back.
    With --json it is one object, or with --output the numbers of what was written.
    """
    with open_caller(user if user != OWNER else None) as caller:
        write_export(export_user(caller), output, as_json=as_json)


def write_export(found: UserExport, output: Path | None, *, as_json: bool) -> None:
    """Write the lines to a file or print them."""
    if output is not None:
        write_lines(output, (dumps(line) for line in found.lines))
        _show_counts(found, output, as_json=as_json)
    elif as_json:
        print_json({"user": found.user, "lines": list(found.lines)})
    else:
        for line in found.lines:
            say(dumps(line))


def _show_counts(found: UserExport, output: Path, *, as_json: bool) -> None:
    counts = found.counts
    if as_json:
        numbers: dict[str, JSON] = {f"{kind}s" if kind != "pending" else kind: counts[kind] for kind in _KINDS}
        print_json({"user": found.user, "file": str(output), **numbers})
        return
    told = ", ".join(f"{counts[kind]:,} {words}" for kind, words in _KINDS.items() if counts[kind])
    note(f"{told} in {output}")

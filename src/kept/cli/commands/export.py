"""`kept export`: everything of one user, the counterpart of forgetting them."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kept.cli.commands.sessions_transfer import written
from kept.cli.terminal import JsonFlag, note, opened, print_json, say
from kept.core.errors import NotFound
from kept.core.ids import OWNER, UserId
from kept.core.text import JSON, dumps


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("export")(export)


def export(
    user: Annotated[str, typer.Option("--user", help="Whose; without it the owner of this home.")] = OWNER,
    output: Annotated[Path | None, typer.Option("--output", "--out", "-o", help="Write to this file.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write everything of one user as JSONL: conversations, pages, edits, and what waits for approval.

    Each line that is no message names its type. `kept sessions import` takes the conversations back.
    With --json it is one object, or with --output the numbers of what was written.
    """
    with opened() as kept:
        from kept.curation.export import export_user

        lines = export_user(kept.sessions, kept.memory, kept.approvals, user=UserId(user))
        first = next(lines, None)
        if first is None:
            raise NotFound(f"nothing of a user {user!r} is kept here", "`kept sessions export` names the user of each")
        counts: Counter[str] = Counter()
        every = _counted(first, lines, counts)
        if output is not None:
            written(output, (dumps(line) for line in every))
            _tell(user, output, counts, as_json=as_json)
        elif as_json:
            print_json({"user": user, "lines": list(every)})
        else:
            for line in every:
                say(dumps(line))


def _counted(
    first: dict[str, JSON], rest: Iterator[dict[str, JSON]], counts: Counter[str]
) -> Iterator[dict[str, JSON]]:
    for line in (first, *rest):
        counts[str(line.get("type", "message"))] += 1
        yield line


def _tell(user: str, output: Path, counts: Counter[str], *, as_json: bool) -> None:
    if as_json:
        numbers: dict[str, JSON] = {f"{kind}s" if kind != "pending" else kind: counts[kind] for kind in _KINDS}
        print_json({"user": user, "file": str(output), **numbers})
        return
    told = ", ".join(f"{counts[kind]:,} {words}" for kind, words in _KINDS.items() if counts[kind])
    note(f"{told} in {output}")


_KINDS = {"session": "sessions", "message": "messages", "page": "pages", "edit": "edits", "pending": "waiting writes"}

"""`kept sessions import` and `export`: conversations as JSONL."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from kept.cli.commands.sessions_embed import waiting_vectors
from kept.cli.terminal import JsonFlag, note, opened, print_json, say
from kept.cli.text import counted
from kept.core.errors import UsageError
from kept.core.ids import SessionId, UserId
from kept.core.text import dumps
from kept.storage.files import explain_errors

MOST_SHOWN = 20


def add_to(app: typer.Typer) -> None:
    """Add the commands to their group."""
    app.command("import")(import_)
    app.command()(export)


def import_(
    file: Annotated[str, typer.Argument(help="A JSONL file with one message per line; - reads it.")],
    source: Annotated[str, typer.Option("--source", help="The source of lines that name none.")] = "import:jsonl",
    as_json: JsonFlag = False,
) -> None:
    """Take conversations in; lines that are stored already add nothing, bad ones are named and skipped."""
    with opened() as kept:
        transfer = kept.sessions.transfer
        if file == "-":
            report = transfer.imported(sys.stdin.buffer, source=source)
        else:
            with _readable(Path(file)) as lines:
                report = transfer.imported(lines, source=source, total=_count(Path(file)))
        waiting = waiting_vectors(kept) if report.messages else 0
    for number, why in report.problems[:MOST_SHOWN]:
        note(f"line {number}: {why}")
    if report.bad > MOST_SHOWN:
        note(f"and {counted(report.bad - MOST_SHOWN, 'more bad line')}")
    if as_json:
        print_json({**report.as_json(), "vectors_waiting": waiting})
    else:
        forgotten = f"; {report.forgotten:,} stay forgotten" if report.forgotten else ""
        bad = f"; {counted(report.bad, 'bad line')} skipped" if report.bad else ""
        new = f"{counted(report.messages, 'message')} in {counted(report.sessions, 'new session')}"
        say(f"{new}; {report.known:,} known already{forgotten}{bad}")
    if waiting:
        note(f"{counted(waiting, 'message')} without vectors, found by their words alone; run: kept sessions embed")
    if report.bad and not report.messages and not report.known and not report.forgotten:
        raise typer.Exit(1)


def _readable(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}", "give a JSONL file") from error


def _count(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def export(
    names: Annotated[list[str] | None, typer.Argument(help="Sessions; without any, all.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="This user's instead of the owner's.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "--output", "-o", help="Write to this file.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Also what was sent to the model.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write conversations as JSONL: one line for the session, then one per message; `import` takes it back."""
    with opened() as kept:
        store = kept.sessions if user is None else kept.sessions.for_user(UserId(user))
        ids: list[SessionId | None] = [store.resolve(name) for name in names] if names else [None]
        lines = (dumps(line) for one in ids for line in store.transfer.exported(session_id=one, raw=raw))
        if out is None:
            for line in lines:
                say(line)
            return
        count = written(out, lines)
        if as_json:
            print_json({"file": str(out), "lines": count})
        else:
            note(f"{counted(count, 'line')} in {out}")


def written(out: Path, lines: Iterable[str]) -> int:
    """Write each line into a file that only the person can read; return how many there were."""
    count = 0
    with explain_errors("write", out), out.open("w", encoding="utf-8", newline="\n") as file:
        out.chmod(0o600)
        for line in lines:
            file.write(f"{line}\n")
            count += 1
    return count

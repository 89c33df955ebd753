"""`kept sessions import | export`: conversations as JSONL."""

import sys
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from wellkept import operations
from wellkept.cli.terminal import JsonFlag, count_noun, note, open_caller, print_json, print_json_line, say, write_lines
from wellkept.core.errors import UsageError
from wellkept.core.regular_files import open_regular
from wellkept.core.text import dumps

app = typer.Typer()

_PROBLEMS_SHOWN = 20


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="Messages or conversations as JSONL or JSON; - reads it.")],
    source: Annotated[str, typer.Option("--source", help="The source of lines that name none.")] = "import:jsonl",
    as_json: JsonFlag = False,
) -> None:
    """Import conversations; known lines are skipped, invalid ones are reported.

    A line is a message as `kept sessions export` writes it, or a message or a whole conversation in the shape of
    OpenAI's or Anthropic's API. A JSON array of them is accepted too.
    """
    with open_caller() as caller:
        if file == "-":
            done = operations.sessions.import_sessions(caller, sys.stdin.buffer, source=source)
        else:
            path = Path(file)
            with _open_file(path) as lines:
                done = operations.sessions.import_sessions(caller, lines, source=source, total=_count_lines(path))
    _show_import(done, as_json=as_json)
    if done.failed:
        raise typer.Exit(1)


def _show_import(done: "operations.sessions.Imported", *, as_json: bool) -> None:
    report = done.report
    for number, why in report.problems[:_PROBLEMS_SHOWN]:
        note(f"line {number}: {why}")
    if report.bad > _PROBLEMS_SHOWN:
        note(f"and {count_noun(report.bad - _PROBLEMS_SHOWN, 'more bad line')}")
    if as_json:
        print_json(done.as_json())
    else:
        forgotten = f"; {report.forgotten:,} stay forgotten" if report.forgotten else ""
        bad = f"; {count_noun(report.bad, 'bad line')} skipped" if report.bad else ""
        new = f"{count_noun(report.messages, 'message')} in {count_noun(report.sessions, 'new session')}"
        say(f"{new}; {report.known:,} already known{forgotten}{bad}")
    if done.vectors_waiting:
        waiting = count_noun(done.vectors_waiting, "message")
        note(f"{waiting} without vectors; to search them by meaning, run: kept sessions embed")


def _open_file(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}", "give a JSONL file") from error


def _count_lines(path: Path) -> int:
    with open_regular(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


@app.command()
def export(
    names: Annotated[list[str] | None, typer.Argument(help="Sessions; without any, all.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="This user's instead of the owner's.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "--output", "-o", help="Write to this file.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Also what was sent to the model.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write conversations as JSONL: one line for the session, then one per message; `import` reads it."""
    with open_caller(user) as caller:
        lines = operations.sessions.export_sessions(caller, names or (), raw=raw)
        if out is None:
            for line in lines:
                print_json_line(line)
            return
        count = write_lines(out, map(dumps, lines), caller.app.home.root)
    if as_json:
        print_json({"file": str(out), "lines": count})
    else:
        note(f"{count_noun(count, 'line')} in {out}")

"""`kept scan`: check a text, or many, for threats, as every memory write is checked."""

import json
from pathlib import Path
from typing import Annotated

import typer

from kept.cli.terminal import JsonFlag, note, print_json, read_input, say
from kept.core.errors import UsageError
from kept.core.text import JSON, dumps
from kept.security.scan import Finding, Verdict
from kept.security.scan import scan as scan_text

_UNREADABLE_LINE = 2


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("scan")(scan)


def scan(
    file: Annotated[str | None, typer.Argument(help="The file to check; - or nothing reads standard input.")] = None,
    batch: Annotated[
        Path | None, typer.Option("--batch", help='A JSON Lines file with {"text"} per line; one verdict per line.')
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a text for threats; exit 0 when it is clean, 1 when it is held or blocked."""
    if batch is not None and file is not None:
        raise UsageError("a file and --batch were given", "give one of them")
    if batch is not None:
        _scan_batch(batch, as_json=as_json)
        return
    verdict = scan_text(read_input() if file in (None, "-") else _read(Path(file)))
    if as_json:
        print_json(_answer(verdict))
    else:
        say(_line(verdict))
    if verdict.findings:
        raise typer.Exit(1)


def _scan_batch(path: Path, *, as_json: bool) -> None:
    """Print one verdict per line; a line that cannot be read gets an error and the exit code 2."""
    unreadable = 0
    for number, line in enumerate(_read(path).removesuffix("\n").split("\n"), start=1):
        text = _text_of(line)
        if text is None:
            unreadable += 1
            error = f'line {number} is not a JSON object with a "text" string'
            say(dumps({"error": error}) if as_json else f"error: {error}")
        else:
            verdict = scan_text(text)
            say(dumps(_answer(verdict)) if as_json else _line(verdict))
    if unreadable:
        note(f"kept: {unreadable} of the lines could not be read; the others were checked")
        raise typer.Exit(_UNREADABLE_LINE)


def _text_of(line: str) -> str | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    text = row.get("text") if isinstance(row, dict) else None
    return text if isinstance(text, str) else None


def _read(path: Path) -> str:
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}", "name a file, or - for standard input")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{str(path)!r} is not UTF-8 text (byte {error.start})", "convert it to UTF-8 first") from None


def _answer(verdict: Verdict) -> JSON:
    return {
        "verdict": verdict.verdict,
        "blocked": verdict.blocked,
        "held": verdict.held,
        "findings": [_finding(finding) for finding in verdict.findings],
    }


def _finding(finding: Finding) -> dict[str, JSON]:
    answer: dict[str, JSON] = {
        "rule": finding.rule,
        "category": finding.category,
        "severity": finding.severity.value,
    }
    if finding.detail is not None:
        answer["detail"] = finding.detail
    return answer


def _line(verdict: Verdict) -> str:
    """Return the verdict for a person: the word, then each rule with what it found."""
    found = [f"{item.rule}{f' ({item.detail})' if item.detail else ''}" for item in verdict.findings]
    return f"{verdict.verdict}: {'; '.join(found)}" if found else verdict.verdict

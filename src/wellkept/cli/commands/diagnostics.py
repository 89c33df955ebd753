"""`kept doctor`, `kept eval`, `kept scan`, `kept tool`, `kept usage` and `kept version`: checks and figures."""

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec.structs import replace

from wellkept import __version__, operations
from wellkept.cli.terminal import (
    MOST_DAYS,
    JsonFlag,
    complete_hint,
    count_noun,
    expect,
    note,
    open_caller,
    print_json,
    print_json_line,
    read_input,
    say,
    show_json,
)
from wellkept.core.clock import from_epoch
from wellkept.core.errors import UsageError
from wellkept.core.ids import SessionId
from wellkept.core.regular_files import load_bytes
from wellkept.core.text import JSON
from wellkept.core.tools import ToolSchema

if TYPE_CHECKING:
    from wellkept.operations.evaluation import Evaluation
    from wellkept.security.scan import Finding, Verdict


def register(program: typer.Typer) -> None:
    """Add the commands of this module."""
    program.command("doctor")(doctor)
    program.command("eval")(evaluate)
    program.command("scan")(scan)
    program.command("tool")(tool)
    program.command("usage")(usage)
    program.command("version")(version)


_MARKS = {"ok": "✓", "warning": "!", "error": "✗"}


def doctor(
    offline: Annotated[bool, typer.Option("--offline", help="Skip the model and providers.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check everything: real writes and searches in a temporary home, read-only checks in yours."""
    checks = []
    with open_caller() as caller:
        for check in operations.doctor.check_everything(caller, offline=offline):
            checks.append(check)
            if not as_json:
                remedy = f"\n    next: {complete_hint(check.remedy)}" if check.remedy else ""
                say(f"{_MARKS[check.health]} {check.name}: {check.said}{remedy}")
    failed = [check for check in checks if check.health == "error"]
    warned = [check for check in checks if check.health == "warning"]
    if as_json:
        print_json({"ok": not failed, "warnings": len(warned), "checks": [check.as_json() for check in checks]})
    elif not failed and not warned:
        say("Everything is in order.")
    elif not failed:
        say(f"It works, with {count_noun(len(warned), 'warning')}: see the lines that begin with !")
    if failed:
        raise typer.Exit(1)


def evaluate(
    compare: Annotated[
        str | None,
        typer.Option("--compare", metavar="SETTING=VALUE", help="Ask the same questions with this setting too."),
    ] = None,
    cases: Annotated[int, typer.Option("--cases", min=1, max=5_000, help="How many questions of each kind.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """Measure the search with questions from your own history; nothing leaves the machine."""
    with open_caller() as caller:
        done = expect(operations.evaluation.evaluate(caller, compare=compare, cases=cases), as_json=as_json)
    show_json(done, as_json=as_json)
    _show_evaluation(done)


def _show_evaluation(done: "Evaluation") -> None:
    say(f"{count_noun(done.conversations, 'conversation')}, {count_noun(done.messages, 'message')}")
    _show_figures("current settings", done.current.as_json())
    if done.compared is not None:
        _show_figures(done.compared_with or "", done.compared.as_json())
        pairs = [(one.rank, done.compared.outcomes[key].rank) for key, one in done.current.outcomes.items()]
        gained = sum(other == 1 != own for own, other in pairs)
        lost = sum(own == 1 != other for own, other in pairs)
        say(f"with it: {gained} questions gain the first place, {lost} lose it")
    if done.last is not None:
        _show_figures(f"last run, {from_epoch(done.last.when).astimezone():%Y-%m-%d %H:%M}", done.last.figures)
        say(
            f"since then: {done.last.gained} questions gained the first place, {done.last.lost} lost it "
            f"({done.last.in_both:,} were asked in both runs)"
        )
        if done.last.changed_settings:
            say(f"settings changed since: {', '.join(done.last.changed_settings)}")
    for line in done.notes:
        note(f"kept: {line}")


def _show_figures(title: str, figures: Mapping[str, Any]) -> None:
    say(f"\n{title:<34} questions   hit@1   hit@5")
    for kind, score in (*figures["kinds"].items(), ("all", figures["all"])):
        shares = f"{score['hit_at_1']:>7.3f} {score['hit_at_5']:>7.3f}" if score["cases"] else f"{'–':>7} {'–':>7}"
        say(f"  {kind:<32} {score['cases']:>9,} {shares}")
    for name, said in (("no_answer", "nothing shown, no answer there"), ("answer", "nothing shown, answer there")):
        counts = figures["abstention"][name]
        say(f"  {said:<32} {counts['abstained']:>4,} of {counts['cases']:,}")
    latency = figures["latency_ms"]
    say(f"  {'latency':<32} {latency['median']:>6.1f} ms median, {latency['p95']:.1f} ms p95")


_UNREADABLE_LINE = 2


def scan(
    file: Annotated[str | None, typer.Argument(help="The file to check; - or nothing reads standard input.")] = None,
    batch: Annotated[
        Path | None, typer.Option("--batch", help='A JSON Lines file with {"text"} per line; one verdict per line.')
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a text for threats; exit 0 when it is clean, 1 when it is held or blocked."""
    if batch is not None and file is not None:
        raise UsageError("both a file and --batch were given", "give only one of them")
    if batch is not None:
        _scan_batch(batch, as_json=as_json)
        return
    from wellkept.security.scan import scan as scan_text

    verdict = scan_text(read_input() if file in (None, "-") else _read(Path(file)))
    if as_json:
        print_json(_answer(verdict))
    else:
        say(_line(verdict))
    if verdict.findings:
        raise typer.Exit(1)


def _scan_batch(path: Path, *, as_json: bool) -> None:
    """Print one verdict per line; a line that cannot be read gets an error and the exit code 2."""
    from wellkept.security.scan import scan as scan_text

    unreadable = 0
    for number, line in enumerate(_read(path).removesuffix("\n").split("\n"), start=1):
        text = _text_of(line)
        if text is None:
            unreadable += 1
            error = f'line {number} is not a JSON object with a "text" string'
            print_json_line({"error": error}) if as_json else say(f"error: {error}")
        else:
            verdict = scan_text(text)
            print_json_line(_answer(verdict)) if as_json else say(_line(verdict))
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
        return load_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{str(path)!r} is not UTF-8 text (byte {error.start})", "convert it to UTF-8 first") from None


def _answer(verdict: "Verdict") -> JSON:
    return {
        "verdict": verdict.verdict,
        "blocked": verdict.blocked,
        "held": verdict.held,
        "findings": [_finding(finding) for finding in verdict.findings],
    }


def _finding(finding: "Finding") -> dict[str, JSON]:
    answer: dict[str, JSON] = {
        "rule": finding.rule,
        "category": finding.category,
        "severity": finding.severity.value,
    }
    if finding.detail is not None:
        answer["detail"] = finding.detail
    return answer


def _line(verdict: "Verdict") -> str:
    """Return the verdict as one line: the word, then each rule with what it found."""
    rules = [f"{item.rule}{f' ({item.detail})' if item.detail else ''}" for item in verdict.findings]
    return f"{verdict.verdict}: {'; '.join(rules)}" if rules else verdict.verdict


def tool(
    name: Annotated[str | None, typer.Argument(help="The tool; without it all are listed.")] = None,
    arguments: Annotated[str, typer.Argument(help="A JSON object; - reads it from standard input.")] = "{}",
    session: Annotated[str | None, typer.Option("--session", help="Run it as if called from this session.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a tool and print its JSON; exit 1 when it refuses."""
    with open_caller() as caller:
        if name is None:
            _list(operations.tools.list_tools(caller), as_json=as_json)
            return
        chosen = replace(caller, session_id=SessionId(session) if session else None)
        example = f'write them like: kept tool {name} \'{{"key": "value"}}\''
        try:
            given = json.loads(read_input() if arguments == "-" else arguments)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the arguments are not JSON: {error}", example) from None
        if not isinstance(given, dict):
            raise UsageError("the arguments must be a JSON object", example)
        answer = operations.tools.run_tool(chosen, name, given)
        print_json(answer)
    if answer.get("success") is False or (answer.get("error") and "success" not in answer):
        raise typer.Exit(1)


def _list(schemas: Sequence[ToolSchema], *, as_json: bool) -> None:
    """Print the tools; a call prints JSON either way."""
    if as_json:
        print_json(
            [
                {"name": one.name, "toolset": one.toolset, "description": one.description, "parameters": one.parameters}
                for one in schemas
            ]
        )
        return
    for schema in schemas:
        say(f"{schema.name}  [{schema.toolset}]  {schema.description.splitlines()[0]}")


def usage(
    by: Annotated[Literal["day", "model", "task", "session"], typer.Option("--by", help="What to sum by.")] = "day",
    days: Annotated[int | None, typer.Option("--days", min=1, max=MOST_DAYS, help="Only the last N days.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Only this session.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show tokens sent, cached and received, and the cost."""
    with open_caller() as caller:
        report = operations.models.report_usage(caller, by=by, days=days, session=session)
    show_json(report, as_json=as_json)
    if report.total is None:
        note("no model calls yet")
        return
    say(f"{by:<24} {'calls':>7} {'uncached':>12} {'from cache':>12} {'to cache':>12} {'output':>12}  share  cost")
    for row in [*report.rows, report.total]:
        spent = row.usage
        cost = "-" if row.cost is None else f"{row.cost:.4f}"
        say(
            f"{row.key:<24} {row.calls:>7,} {spent.input_tokens:>12,} {spent.cache_read_tokens:>12,} "
            f"{spent.cache_write_tokens:>12,} {spent.output_tokens:>12,}  {row.cache_share:>4.0%}  {cost}"
        )


def version(as_json: JsonFlag = False) -> None:
    """Print the version."""
    show_json(
        {"kept": __version__, "python": platform.python_version(), "system": platform.platform()}, as_json=as_json
    )
    say(f"kept {__version__} (Python {platform.python_version()})")

"""`kept usage`: tokens and money by day, model, task or session."""

from typing import Annotated

import typer

from kept.cli.terminal import MOST_DAYS, JsonFlag, note, open_caller, print_json, say
from kept.operations.usage import By, report_usage


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("usage")(usage)


def usage(
    by: Annotated[By, typer.Option("--by", help="What to sum by.")] = "day",
    days: Annotated[int | None, typer.Option("--days", min=1, max=MOST_DAYS, help="Only the last N days.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Only this session.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what the model calls took: sent, from the cache, written to it, answered, and the money."""
    with open_caller() as caller:
        report = report_usage(caller, by=by, days=days, session=session)
    if as_json:
        print_json(report.as_json())
        return
    if report.total is None:
        note("no model calls are counted yet")
        return
    say(f"{by:<24} {'calls':>7} {'uncached':>12} {'from cache':>12} {'to cache':>12} {'output':>12}  share  cost")
    for one in [*report.rows, report.total]:
        spent = one.usage
        cost = "-" if one.cost is None else f"{one.cost:.4f}"
        say(
            f"{one.key:<24} {one.calls:>7,} {spent.input_tokens:>12,} {spent.cache_read_tokens:>12,} "
            f"{spent.cache_write_tokens:>12,} {spent.output_tokens:>12,}  {one.cache_share:>4.0%}  {cost}"
        )

"""`kept usage`: tokens and money by day, model, task or session."""

from datetime import timedelta
from typing import Annotated, Literal

import typer

from kept.cli.terminal import MOST_DAYS, JsonFlag, note, opened, print_json, say
from kept.core.text import JSON
from kept.sessions.usage import Total, UsageRow, totals

By = Literal["day", "model", "task", "session"]


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
    with opened() as kept:
        store = kept.sessions
        since = "" if days is None else f"{kept.clock.now() - timedelta(days=days - 1):%Y-%m-%d}"
        rows = store.usage(session_id=store.resolve(session) if session else None, since=since)
    sums = totals(rows, lambda row: _key(row, by))
    everything = totals(rows, lambda _: "total")
    if as_json:
        print_json(
            {"by": by, "rows": [_json(one) for one in sums], "total": _json(everything[0]) if everything else None}
        )
        return
    if not rows:
        note("no model calls are counted yet")
        return
    say(f"{by:<24} {'calls':>7} {'uncached':>12} {'from cache':>12} {'to cache':>12} {'output':>12}  share  cost")
    for one in [*sums, *everything]:
        spent = one.usage
        cost = "-" if one.cost is None else f"{one.cost:.4f}"
        say(
            f"{one.key:<24} {one.calls:>7,} {spent.input_tokens:>12,} {spent.cache_read_tokens:>12,} "
            f"{spent.cache_write_tokens:>12,} {spent.output_tokens:>12,}  {one.cache_share:>4.0%}  {cost}"
        )


def _key(row: UsageRow, by: By) -> str:
    match by:
        case "day":
            return row.day
        case "model":
            return row.model
        case "task":
            return row.task
        case "session":
            return row.session_id or "(forgotten)"


def _json(total: Total) -> dict[str, JSON]:
    return {
        "key": total.key,
        "calls": total.calls,
        "input_tokens": total.usage.input_tokens,
        "cache_read_tokens": total.usage.cache_read_tokens,
        "cache_write_tokens": total.usage.cache_write_tokens,
        "output_tokens": total.usage.output_tokens,
        "cache_share": round(total.cache_share, 4),
        "cost": total.cost,
    }

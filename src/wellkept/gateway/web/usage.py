"""Usage: tokens and cost by day, how much came from the cache, and what the memory itself costs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import Response

from wellkept.core.clock import from_epoch
from wellkept.gateway.requests import Reader
from wellkept.gateway.web.charts import draw_line, stack_days
from wellkept.gateway.web.frame import Checked, show
from wellkept.operations import models, receipts, sessions

if TYPE_CHECKING:
    from wellkept.app import Caller
    from wellkept.sessions.reports import Total

router = APIRouter(prefix="/usage", include_in_schema=False, dependencies=[Checked])

SERIES = ("fresh input", "cache read", "cache write", "output")
_MOST_RECEIPTS = 1_000
_MOST_SESSIONS = 12


class PrefixMove(Struct, frozen=True):
    """A day on which the prompt prefix changed, and why; the cache had to be filled again."""

    day: str
    why: str


@router.get("")
def show_usage(request: Request, caller: Reader, days: Annotated[int, Query(ge=7, le=366)] = 42) -> Response:
    """Show the tokens of the last days."""
    has_store = bool(sessions.count_stored(caller).sessions)
    if not has_store:
        return show(request, "usage.html", days=days, report=None)
    by_day = models.report_usage(caller, by="day", days=days)
    today = caller.app.clock.now().astimezone().date()
    sums = {row.key: _split(row) for row in by_day.rows}
    shares = {one.key: one.cache_share for one in by_day.rows if one.usage.prompt_tokens}
    moves = _find_moves(caller, days)
    by_session = sorted(
        models.report_usage(caller, by="session", days=days).rows, key=lambda one: -one.usage.prompt_tokens
    )[:_MOST_SESSIONS]
    memory = _sum_memory(caller, days)
    return show(
        request,
        "usage.html",
        days=days,
        report=by_day,
        chart=stack_days(sums, SERIES, last=today, count=days, height=180),
        shares=draw_line(shares, last=today, count=days, marks={move.day: move.why for move in moves}),
        moves=moves,
        models=models.report_usage(caller, by="model", days=days).rows,
        tasks=models.report_usage(caller, by="task", days=days).rows,
        sessions=by_session,
        titles=sessions.read_titles(caller, [row.key for row in by_session]),
        memory=memory,
        memory_chart=stack_days({day: {"tokens": count} for day, count in memory.items()}, ("tokens",), last=today,
                                count=days, height=90),
    )  # fmt: skip


def _split(total: Total) -> dict[str, int]:
    spent = total.usage
    return {
        "fresh input": spent.input_tokens,
        "cache read": spent.cache_read_tokens,
        "cache write": spent.cache_write_tokens,
        "output": spent.output_tokens,
    }


def _find_moves(caller: Caller, days: int) -> list[PrefixMove]:
    """Return the days on which compactions or a new model changed the prefix."""
    moves: dict[str, list[str]] = {}
    seen: set[str] = set()
    for row in models.list_usage(caller, days=days):
        if row.task == "compression":
            moves.setdefault(row.day, []).append("compaction")
        if row.task == "main" and row.model not in seen:
            if seen:
                moves.setdefault(row.day, []).append(f"first use of {row.model}")
            seen.add(row.model)
    return [PrefixMove(day, ", ".join(dict.fromkeys(why))) for day, why in sorted(moves.items())]


def _sum_memory(caller: Caller, days: int) -> dict[str, int]:
    """Return by day how many tokens of memory agents were given."""
    since = (caller.app.clock.now() - timedelta(days=days)).timestamp()
    found: dict[str, int] = {}
    for receipt in receipts.list_receipts(caller, limit=_MOST_RECEIPTS).receipts:
        if receipt.created >= since:
            day = f"{from_epoch(receipt.created).astimezone():%Y-%m-%d}"
            found[day] = found.get(day, 0) + receipt.content.tokens
    return found

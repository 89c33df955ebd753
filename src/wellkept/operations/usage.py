"""Tokens and cost of one user's model calls."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from wellkept.core.ids import SessionId
from wellkept.sessions.reports import Total, UsageRow, sum_usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.app.caller import Caller
    from wellkept.core.text import JSON

By = Literal["day", "model", "task", "session"]


class UsageReport(Struct, frozen=True):
    """Sums by one key, and their total."""

    by: By
    rows: tuple[Total, ...]
    total: Total | None

    def as_json(self) -> dict[str, JSON]:
        """Return the rows and the total."""
        return {
            "by": self.by,
            "rows": [_total_json(one) for one in self.rows],
            "total": None if self.total is None else _total_json(self.total),
        }


def report_usage(caller: Caller, *, by: By = "day", days: int | None = None, session: str | None = None) -> UsageReport:
    """Sum the model calls of the last days, or of one session."""
    store = caller.space.sessions
    since = "" if days is None else f"{caller.app.clock.now() - timedelta(days=days - 1):%Y-%m-%d}"
    rows = store.usage(session_id=store.resolve(session) if session else None, since=since)
    everything = sum_usage(rows, lambda _: "total")
    return UsageReport(by, tuple(sum_usage(rows, lambda row: _key(row, by))), everything[0] if everything else None)


def list_usage(caller: Caller, *, days: int) -> list[UsageRow]:
    """Return the counted calls of the last days, oldest first."""
    since = f"{caller.app.clock.now() - timedelta(days=days - 1):%Y-%m-%d}"
    return sorted(caller.space.sessions.usage(since=since), key=lambda row: row.day)


def sum_sessions(caller: Caller, session_ids: Sequence[str]) -> Total | None:
    """Return the usage of all sessions of one conversation, None if nothing was counted."""
    store = caller.space.sessions
    rows = [row for one in session_ids for row in store.usage(session_id=SessionId(one))]
    return next(iter(sum_usage(rows, lambda _row: "all")), None)


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


def _total_json(total: Total) -> dict[str, JSON]:
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

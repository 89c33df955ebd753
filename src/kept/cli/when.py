"""A moment as a person types it, in the zone that all dates are shown in: their own."""

import math
from datetime import UTC, datetime

from kept.core.errors import UsageError

_END = ("until ", "by ")


def moment(text: str, *, now: float) -> float:
    """Return epoch seconds, an ISO date, or the beginning of "last week"; "until X" means the end of X.

    What has no zone of its own is local. Raises UsageError for what is no date.
    """
    found = _number(text)
    if found is None:
        found = now if text.strip().lower() == "now" else _date(text, now)
    if found is None:
        raise UsageError(
            f"{text!r} is not a date that can be read",
            "write it like 2026-11-15, 2026-11-15T18:30, yesterday, last week, in March, 3 days ago",
        )
    return found


def _number(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and "_" not in text and not _is_year(text) else None


def _is_year(text: str) -> bool:
    return len(text.strip()) == 4 and text.strip().isdigit()


def _date(text: str, now: float) -> float | None:
    from kept.core.dates import when  # its expressions take longer to build than most commands that may need them

    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        span = when(text, datetime.fromtimestamp(now, UTC).astimezone().replace(tzinfo=UTC).timestamp())
        if span is None:
            return None
        edge = span.end if text.strip().lower().startswith(_END) else span.start
        return datetime.fromtimestamp(edge, UTC).replace(tzinfo=None).timestamp()
    except (ValueError, OverflowError, OSError):
        return None

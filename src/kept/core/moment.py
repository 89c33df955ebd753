"""A moment as a person writes it, in the zone that all dates are shown in: their own."""

import math
from datetime import UTC, datetime

_END = ("until ", "by ")


def moment(text: str, *, now: float) -> float | None:
    """Return epoch seconds, an ISO date, or the beginning of "last week"; "until X" means the end of X.

    What has no zone of its own is local. None for what is no date.
    """
    number = _number(text)
    if number is not None:
        return number
    if text.strip().lower() == "now":
        return now
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        return _in_words(text, now)


def _number(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    is_year = len(text.strip()) == 4 and text.strip().isdigit()
    return seconds if math.isfinite(seconds) and "_" not in text and not is_year else None


def _in_words(text: str, now: float) -> float | None:
    # the expressions of both take longer to build than most commands that may need them
    from kept.core.dates import when
    from kept.core.foreign_dates import in_english

    said = in_english(text)
    try:
        span = when(said, datetime.fromtimestamp(now, UTC).astimezone().replace(tzinfo=UTC).timestamp())
        if span is None:
            return None
        edge = span.end if said.strip().lower().startswith(_END) else span.start
        return datetime.fromtimestamp(edge, UTC).replace(tzinfo=None).timestamp()
    except (ValueError, OverflowError, OSError):
        return None

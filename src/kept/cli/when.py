"""A moment as a person types it into a command."""

from kept.core.clock import parse_moment
from kept.core.errors import UsageError


def moment(text: str, *, now: float) -> float:
    """Return the moment that `text` means; raises UsageError for what is no date."""
    found = parse_moment(text, now=now)
    if found is None:
        raise UsageError(
            f"{text!r} is not a date that can be read",
            "write it like 2026-11-15, 2026-11-15T18:30, yesterday, last week, in March, 3 days ago, gestern, 上周",
        )
    return found

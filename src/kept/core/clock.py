"""The system's clock, and how moments are written."""

from datetime import UTC, datetime


class SystemClock:
    """The clock of this machine, in UTC."""

    def now(self) -> datetime:
        """Return the present moment."""
        return datetime.now(UTC)


def iso(moment: datetime) -> str:
    """Return `moment` in UTC as ISO 8601 with milliseconds and a trailing Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_epoch(seconds: float) -> datetime:
    """Return the moment `seconds` after the epoch."""
    return datetime.fromtimestamp(seconds, UTC)

"""Clocks, and timestamps as programs write them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic as read_monotonic

from msgspec import Struct


class SystemClock:
    """The clock of this machine, in UTC."""

    def now(self) -> datetime:
        """Return the current time."""
        return datetime.now(UTC)


def iso(time: datetime) -> str:
    """Return `time` in UTC as ISO 8601 with milliseconds and a trailing Z."""
    universal = time if time.tzinfo is UTC else time.astimezone(UTC)
    return universal.isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"


def from_epoch(seconds: float) -> datetime:
    """Return the time `seconds` after the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


class FixedClock(Struct):
    """A clock for tests, which only `forward` and `step` move."""

    moment: datetime = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
    step: timedelta = timedelta()
    """How far each call of `now` moves it; a positive step makes all readings different."""

    def now(self) -> datetime:
        """Return the current time of this clock."""
        self.moment += self.step
        return self.moment

    def forward(self, **span: float) -> None:
        """Move the clock forward; the arguments are those of `timedelta`, like `days=3`."""
        self.moment += timedelta(**span)


class Pace:
    """The pace of a long task, from which the remaining time is estimated."""

    _LEAST_SECONDS = 2.0
    """A task must run this long before an estimate is shown."""

    def __init__(self, monotonic: Callable[[], float] = read_monotonic) -> None:
        self._monotonic = monotonic
        self._task = ""
        self._begun, self._first = 0.0, 0

    def left(self, task: str, done: int, total: int) -> str:
        """Return the remaining time of `task` in words; empty in its first seconds and at its end."""
        now = self._monotonic()
        if task != self._task or done < self._first:
            self._task, self._begun, self._first = task, now, done
        if done >= total or done == self._first or now - self._begun < self._LEAST_SECONDS:
            return ""
        seconds = round((now - self._begun) * (total - done) / (done - self._first))
        return f", {seconds // 60} min {seconds % 60:02d} s left" if seconds >= 60 else f", {seconds} s left"

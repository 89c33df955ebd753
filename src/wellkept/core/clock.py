"""Clocks, and timestamps as programs write them."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import monotonic as read_monotonic
from typing import overload

from msgspec import Struct

from wellkept.core.text import JSON


class SystemClock:
    """The clock of this machine, in UTC."""

    def now(self) -> datetime:
        """Return the current time."""
        return datetime.now(UTC)


def iso(time: datetime) -> str:
    """Return `time` in UTC as ISO 8601 with milliseconds and a trailing Z."""
    universal = time if time.tzinfo is UTC else time.astimezone(UTC)
    return universal.isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"


@overload
def iso_moment(moment: float) -> str: ...
@overload
def iso_moment(moment: float | None) -> str | None: ...
def iso_moment(moment: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601; None, a moment that never was, stays None."""
    return None if moment is None else iso(from_epoch(moment))


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


_EARLIEST, _LATEST = -62_135_596_800.0, 253_402_300_799.0
_MILLISECONDS_FROM = 100_000_000_000
"""Epoch seconds reach this in the year 5138; larger numbers are milliseconds."""


def from_program(value: JSON) -> float | None:
    """Return epoch seconds from epoch seconds, milliseconds or ISO 8601 (UTC without a zone), or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return _epoch(value)
    if not isinstance(value, str):
        return None
    try:
        return _epoch(float(value))
    except ValueError:
        return _iso(value)


def _epoch(number: float) -> float | None:
    try:
        seconds = float(number)
    except OverflowError:
        return None
    if math.isfinite(seconds) and abs(seconds) >= _MILLISECONDS_FROM:
        seconds /= 1_000
    return seconds if math.isfinite(seconds) and _EARLIEST <= seconds <= _LATEST else None


def _iso(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return _epoch(moment.timestamp())
    except (OverflowError, ValueError):
        return None

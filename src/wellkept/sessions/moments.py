"""Timestamps as programs write them, converted to epoch seconds."""

import math
from datetime import UTC, datetime

from wellkept.core.text import JSON

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

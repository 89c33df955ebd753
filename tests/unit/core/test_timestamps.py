"""Moments as programs write them, and as answers show them."""

from datetime import UTC, datetime

import pytest

from wellkept.core.clock import from_program
from wellkept.sessions.recall import when


@pytest.mark.parametrize(
    ("value", "epoch"),
    [
        (1_700_000_000, 1_700_000_000.0),
        (1_700_000_000_123, 1_700_000_000.123),
        ("1700000000.5", 1_700_000_000.5),
        ("2023-11-14T22:13:20Z", 1_700_000_000.0),
        ("2023-11-14T22:13:20", 1_700_000_000.0),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000.0),
        ("2023-11-14", 1_699_920_000.0),
        ("yesterday", None),
        (True, None),
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        ([], None),
    ],
)
def test_a_time_stamp_is_read(value, epoch):
    """Epoch seconds, milliseconds and ISO 8601 are read, without a zone as UTC; nothing else is."""
    assert from_program(value) == epoch


@pytest.mark.parametrize(
    "epoch", [0.0, 59.9995, 59.9999996, 1_700_000_000.0005, 1_772_323_199.9996, 253_402_300_799.9, -1.5]
)
def test_a_moment_is_shown_as_datetime_writes_it(epoch):
    """Also where it is rounded up into the next second, and before 1970."""
    written = datetime.fromtimestamp(epoch, UTC).isoformat(timespec="milliseconds")

    assert when(epoch) == written.replace("+00:00", "Z")


@pytest.mark.parametrize("epoch", [float("nan"), float("inf"), 1e18])
def test_a_damaged_moment_is_shown_as_it_is(epoch):
    """A row may hold any number."""
    assert when(epoch) == str(epoch)

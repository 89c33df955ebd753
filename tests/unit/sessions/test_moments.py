"""Moments as programs write them."""

import pytest

from kept.sessions.moments import from_program


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

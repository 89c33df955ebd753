"""Moments as programs and people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.sessions.moments import from_person, from_program

NOW = 1_750_000_000.0


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


@given(st.text(max_size=40))
def test_no_text_raises(text):
    """Whatever a person types is a moment or nothing."""
    assert from_person(text, now=NOW) is None or isinstance(from_person(text, now=NOW), float)


def test_words_mean_the_beginning():
    """A stretch of time means its beginning; with `until` its end."""
    assert from_person("2025", now=NOW) == 1_735_689_600.0
    assert from_person("until 2025", now=NOW) == 1_767_225_600.0

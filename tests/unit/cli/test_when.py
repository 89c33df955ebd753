"""Moments as a person types them."""

import pytest

from wellkept.cli.commands.sessions import time_span
from wellkept.cli.terminal import moment
from wellkept.core.errors import UsageError

NOW = 1_773_568_800.0
"""2026-03-15T10:00:00Z, 18:00 in Shanghai."""


@pytest.mark.usefixtures("in_shanghai")
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-03-01", 1_772_294_400.0),
        ("2026-03-01T20:00", 1_772_366_400.0),
        ("2026-03-01T12:00Z", 1_772_366_400.0),
        ("yesterday", 1_773_417_600.0),
        ("in March", 1_772_294_400.0),
        ("until 2026-03-01", 1_772_380_800.0),
        ("now", NOW),
        ("1772366400", 1_772_366_400.0),
        ("2026", 1_767_196_800.0),
    ],
)
def test_what_has_no_zone_is_local(text, seconds):
    """A date means the day of the person who types it, as every date that is shown does."""
    assert moment(text, now=NOW) == seconds


@pytest.mark.parametrize("text", ["", "blue", "nan", "1e999", "2026-13-45", "0001-01-01", "\0"])
def test_what_is_no_date_leads_on(text):
    """The mistake is told with forms that are right."""
    with pytest.raises(UsageError) as told:
        moment(text, now=NOW)
    assert "yesterday" in told.value.remedy


def test_a_time_that_ends_before_it_begins_is_refused():
    """Nothing can be of such a time, so that an empty answer would only hide the mistake."""
    with pytest.raises(UsageError) as told:
        time_span("2026-03-10", "2026-03-01", None, now=NOW)
    assert "exchange them" in told.value.remedy

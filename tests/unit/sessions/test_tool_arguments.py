"""Arguments of `session_search`, whatever a model sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.errors import Refused
from wellkept.sessions.tool import Asked, read

NOW = 1_750_000_000.0
NAMES = [
    "query",
    "session_id",
    "around_message_id",
    "limit",
    "window",
    "sort",
    "detail",
    "role_filter",
    "source",
    "project",
    "after",
    "before",
    "summarize",
    "junk",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(NAMES), json_values))
def test_no_arguments_raise(arguments):
    """Any JSON gives a call with every number in its range, or a refusal with a remedy."""
    match read(arguments, now=NOW):
        case Asked(limit=limit, window=window):
            assert 1 <= limit <= 10
            assert 1 <= window <= 20
        case Refused(error=error, remedy=remedy):
            assert error
            assert remedy


@pytest.mark.parametrize(
    ("given_", "limit", "window"),
    [({}, 3, 5), ({"limit": 0, "window": -4}, 1, 1), ({"limit": 10**30, "window": "7"}, 10, 7), ({"limit": 2.9}, 2, 5)],
)
def test_numbers_are_clamped(given_, limit, window):
    """Numbers outside their range become the nearest one inside; texts of numbers are read."""
    asked = read(given_, now=NOW)

    assert (asked.limit, asked.window) == (limit, window)


@pytest.mark.parametrize("roles", [["user", "tool"], "user,tool", " User , TOOL ", ("user", "tool")])
def test_roles_are_a_list_or_commas(roles):
    """A role filter is a list or a text with commas."""
    assert read({"role_filter": roles}, now=NOW).roles == ("user", "tool")


@pytest.mark.parametrize(
    "arguments",
    [{"role_filter": "robot"}, {"sort": "best"}, {"after": "whenever"}, {"query": ["a"]}, {"limit": "many"}],
)
def test_what_cannot_be_read_is_named(arguments):
    """A refusal names the argument and what it takes."""
    refused = read(arguments, now=NOW)

    assert isinstance(refused, Refused)
    assert next(iter(arguments)) in refused.error


def test_dates_are_natural_or_exact():
    """A date is a day, a moment with its zone, or words."""
    asked = read({"after": "2025-06-01", "before": "2025-06-15T14:00:00+02:00"}, now=NOW)

    assert (asked.after, asked.before) == (1_748_736_000.0, 1_749_988_800.0)
    assert read({"after": "3 days ago"}, now=NOW).after < NOW
    assert read({"after": 1_700_000_000}, now=NOW).after == 1_700_000_000.0


def test_empty_is_absent():
    """Null and blank arguments count as left out."""
    assert read({"query": "  ", "session_id": None, "around_message_id": ""}, now=NOW) == Asked()


@pytest.mark.parametrize("name", ["query", "session_id", "source", "project"])
def test_half_of_a_surrogate_pair_reaches_no_database(name):
    """A text that has no bytes is made one that has, in every argument."""
    asked = read({name: "a\ud800b"}, now=NOW)

    assert isinstance(asked, Asked)
    for value in (asked.query, asked.session_id, asked.project, *asked.sources):
        assert value is None or value.encode()


def test_a_time_that_ends_before_it_begins_is_refused():
    """The refusal says what to do."""
    refused = read({"after": "2025-06-15", "before": "2025-06-01"}, now=NOW)

    assert isinstance(refused, Refused)
    assert "exchange" in refused.remedy

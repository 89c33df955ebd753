"""Core values: errors with exit codes, ids, the clock, bounds, JSON."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import field

from wellkept.core import errors
from wellkept.core.clock import SystemClock, from_epoch, iso
from wellkept.core.ids import new_group_id, new_session_id
from wellkept.core.messages import ImagePart, Message, Role, TextPart, Usage
from wellkept.core.settings import Above, Between
from wellkept.core.text import dumps
from wellkept.core.values import JsonStruct


def tree(kind):
    return {kind, *(deeper for child in kind.__subclasses__() for deeper in tree(child))}


def test_every_error_is_drawn_in_the_tree_with_its_exit_code():
    """The docstring of the module is the truth about the codes."""
    drawn = dict(re.findall(r"[├└]── (\w+) .*?exit (\d+)", errors.__doc__))
    mine = {kind for kind in tree(errors.KeptError) if kind.__module__ == "wellkept.core.errors"} - {errors.KeptError}

    assert {kind.__name__: str(kind.exit_code) for kind in mine} == drawn


def test_an_error_says_what_and_what_next():
    """Both halves are in its text."""
    error = errors.Busy("the page is locked", "try again")

    assert str(error) == "the page is locked (try again)"
    assert str(errors.Busy("locked")) == "locked"
    assert (error.exit_code, error.http_status) == (75, 503)


@pytest.mark.parametrize("digits", [6, 8, 7])
def test_session_ids_carry_their_moment(digits):
    """In UTC, with as many hex digits as asked for."""
    moment = datetime(2026, 3, 1, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))

    assert re.fullmatch(rf"20260228_230203_[0-9a-f]{{{digits}}}", new_session_id(moment, hex_digits=digits))
    assert new_group_id() != new_group_id()


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_moments_are_written_in_utc_with_milliseconds(moment):
    """What is written can be read to the millisecond."""
    text = iso(moment)

    assert text.endswith("Z")
    assert abs((datetime.fromisoformat(text) - moment).total_seconds()) < 0.001
    assert abs(from_epoch(moment.timestamp()) - moment) < timedelta(milliseconds=1)


def test_the_clock_is_in_utc():
    """No local time inside."""
    assert SystemClock().now().tzinfo is UTC


@given(st.floats(allow_nan=True))
def test_bounds_hold_or_do_not(value):
    """NaN is inside nothing."""
    assert Between(1, 20).holds(value) == (1 <= value <= 20)
    assert Above(0).holds(value) == (value > 0)


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Between(1, 20), "from 1 to 20"),
        (Between(0), "at least 0"),
        (Between(None, 5), "at most 5"),
        (Above(0), "greater than 0"),
    ],
)
def test_bounds_in_words(bound, words):
    """An error message can quote them."""
    assert str(bound) == words


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda v: st.lists(v) | st.dictionaries(st.text(), v),
        max_leaves=8,
    )
)
def test_json_is_written_readable(value):
    """Every script stays as it is, and comes back equal."""
    assert json.loads(dumps(value)) == value
    assert dumps("漢é") == '"漢é"'


def test_text_of_a_message_with_parts():
    """Images have no text."""
    message = Message(Role.USER, (TextPart("a"), ImagePart("image/png", "AA=="), TextPart("b")))

    assert message.text == "a\nb"


def test_usage_adds_up():
    """The prompt is everything that was sent, cached or not."""
    total = Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40)

    assert total == Usage(11, 22, 33, 44)
    assert total.prompt_tokens == 88


class Kind(StrEnum):
    """A fixed word."""

    GOOD = "good"


class Leaf(JsonStruct, frozen=True):
    """A value in another."""

    at: Path


class Tree(JsonStruct, frozen=True):
    """A value with one field of each form."""

    kind: Kind
    is_preview: bool = field(name="dry_run")
    leaves: tuple[Leaf, ...] = ()
    by_kind: Mapping[Kind, Leaf | None] = field(default_factory=dict)
    words: frozenset[str] = frozenset()
    secret: str = field(default="x", name="_secret")


def test_a_value_is_shown_as_an_object_of_its_fields():
    """Fields in their order, under their JSON names, those with an underscore left out; values in their own form."""
    tree = Tree(
        Kind.GOOD, is_preview=True, leaves=(Leaf(Path("/a")),), by_kind={Kind.GOOD: None}, words=frozenset("ba")
    )

    assert dumps(tree.as_json()) == dumps(
        {"kind": "good", "dry_run": True, "leaves": [{"at": "/a"}], "by_kind": {"good": None}, "words": ["a", "b"]}
    )


def test_a_value_without_a_json_form_is_not_shown():
    """A struct that may hold secrets has none, so nobody shows it by mistake."""
    with pytest.raises(AttributeError):
        Leaf(Usage()).as_json()

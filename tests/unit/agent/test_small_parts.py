"""Limits, counters and schema checks: pure parts of the loop."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.agent.review import Nudges, load_nudges
from wellkept.agent.settings import LimitSettings
from wellkept.agent.toolbox import mismatch
from wellkept.agent.turn import Spent, ToolUse, limit_notice, limit_reached
from wellkept.core.messages import Usage

JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_each_limit_ends_a_turn():
    """Calls, tokens, money and time each have their own end."""
    limits = LimitSettings(iterations=3, tokens=100, cost=1.0, seconds=5)

    assert limit_reached(limits, Spent()) == ""
    assert "3 model calls" in limit_reached(limits, Spent(iterations=3))
    assert "100 tokens" in limit_reached(limits, Spent(usage=Usage(input_tokens=100)))
    assert "$1.00" in limit_reached(limits, Spent(cost=1.0))
    assert "5 seconds" in limit_reached(limits, Spent(seconds=5))
    assert limit_reached(limits, Spent(cost=None)) == ""


def test_a_turn_at_its_limit_says_where_it_stands():
    """The calls are counted, failures named."""
    words = limit_notice("3 model calls", [ToolUse("terminal", "{}", True), ToolUse("terminal", "{}", False)])

    assert "terminal ×2" in words
    assert "1 of them failed" in words


def test_counters_say_when_a_review_is_due():
    """Using a tool resets its counter; an interval of 0 switches the review off."""
    nudges = Nudges()
    for _ in range(9):
        nudges = nudges.after_turn(used=frozenset(), iterations=1)
    assert not nudges.memory_due(10)

    due = nudges.after_turn(used=frozenset(), iterations=1)

    assert due.memory_due(10)
    assert not due.memory_due(0)
    assert due.skills_due(10, calls=0, corrected=False)
    assert not nudges.after_turn(used=frozenset({"memory"}), iterations=0).memory_due(10)
    assert load_nudges(due.as_json()) == due
    assert load_nudges("nonsense") == Nudges()


@given(JSONS)
def test_no_value_breaks_the_schema_check(value):
    """Any JSON is judged, none raises."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer"}}},
        "required": ["a"],
    }

    verdict = mismatch(value, schema)

    assert verdict is None or isinstance(verdict, str)
    if isinstance(value, dict) and isinstance(value.get("a"), str) and "b" not in value:
        assert verdict is None


def test_mismatches_name_the_place():
    """The error tells the model what to fix."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    assert mismatch({}, schema) == "arguments lacks 'n'"
    assert mismatch({"n": True}, schema) == "n must be integer"
    assert mismatch({"n": 3}, schema) is None

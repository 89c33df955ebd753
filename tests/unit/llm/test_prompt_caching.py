"""Cache markers: at most four, in the right places, on a copy."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.llm.prompt_caching import apply_cache_markers

part = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, st.text(max_size=5)),
    st.just({"type": "thinking", "thinking": "x", "signature": "y"}),
    st.just({"type": "tool_use", "id": "1", "name": "n", "input": {}}),
)
message = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant", "tool"]),
    st.one_of(st.text(max_size=5), st.lists(part, max_size=3), st.none()),
)
conversations = st.builds(
    lambda system, messages: [*system, *messages],
    st.lists(st.just({"role": "system", "content": [{"type": "text", "text": "s"}]}), max_size=1),
    st.lists(message, max_size=8),
)


def places(messages: list[dict[str, Any]]) -> list[int]:
    return [
        place
        for place, one in enumerate(messages)
        if isinstance(one["content"], list) and any("cache_control" in part for part in one["content"])
    ]


@given(conversations, st.booleans())
def test_markers_change_nothing_else(messages: list[dict[str, Any]], native: bool):
    """The input is untouched, and the copy differs from it only by its markers and by text turned into parts."""
    before = copy.deepcopy(messages)

    marked = apply_cache_markers(messages, native=native)

    assert messages == before
    assert len(places(marked)) <= 4
    for one, original in zip(marked, messages, strict=True):
        if isinstance(original["content"], list) and isinstance(one["content"], list):
            plain = [{key: item for key, item in part.items() if key != "cache_control"} for part in one["content"]]
            assert plain == original["content"]


@given(conversations)
def test_only_the_last_part_carries_a_marker(messages: list[dict[str, Any]]):
    """A marker stands on the last part of a message, never on thinking and never on empty text."""
    for place in places(marked := apply_cache_markers(messages)):
        parts = marked[place]["content"]
        assert [index for index, one in enumerate(parts) if "cache_control" in one] == [len(parts) - 1]
        assert parts[-1]["type"] != "thinking"
        assert parts[-1].get("text") != ""


def spoken(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def test_system_and_the_last_three():
    """The system prompt and the last three messages are marked."""
    talk = [spoken("system", "s"), *(spoken("user" if n % 2 == 0 else "assistant", str(n)) for n in range(7))]

    assert places(apply_cache_markers(talk)) == [0, 5, 6, 7]


@pytest.mark.parametrize("native", [True, False])
def test_after_a_long_turn_the_ends_of_the_turns_before_are_marked(native: bool):
    """From the next turn on the newest message loses its recalled text, and twenty blocks back nothing is cached."""
    step = (
        {"role": "user", "content": [{"type": "tool_result", "content": "x"}]}
        if native
        else {"role": "tool", "content": "x"}
    )
    loop = [message for _ in range(15) for message in (spoken("assistant", "a"), step)]
    talk = [spoken("system", "s"), spoken("user", "1"), spoken("assistant", "1"), spoken("user", "2"), *loop]
    ended = [*talk, spoken("assistant", "2"), spoken("user", "3")]

    assert places(apply_cache_markers(talk, native=native)) == [0, 31, 32, 33]
    assert places(apply_cache_markers(ended, native=native)) == [0, 2, 34, 35]


def test_messages_that_cannot_carry_one_are_passed_over():
    """Empty messages give their place to others; tool messages carry a marker in both formats."""
    talk = [
        spoken("system", "s"),
        *(spoken("user", str(n)) for n in range(4)),
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "content": "x", "tool_call_id": "1"},
    ]

    assert places(apply_cache_markers(talk, native=False)) == [0, 3, 4, 6]
    assert places(apply_cache_markers(talk, native=True)) == [0, 3, 4, 6]


@pytest.mark.parametrize(("ttl", "marker"), [("5m", {"type": "ephemeral"}), ("1h", {"type": "ephemeral", "ttl": "1h"})])
def test_the_life_of_the_cache(ttl, marker):
    """Five minutes is the API's own default and goes unsaid; an hour is said."""
    assert apply_cache_markers([spoken("user", "x")], ttl=ttl)[0]["content"][0]["cache_control"] == marker

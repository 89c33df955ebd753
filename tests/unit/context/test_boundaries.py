"""Boundaries: what stays, what is covered, and that nothing is torn apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from wellkept.context.boundaries import Window, head_length, limits, plan_cut, summary_budget, tail_start
from wellkept.context.messages import groups
from wellkept.context.settings import CompressionSettings
from wellkept.context.summary import MARKER
from wellkept.core.messages import Message, Role, ToolCall

LARGE = limits(Window(200_000), CompressionSettings())


def user(text: str = "hello") -> Message:
    return Message(Role.USER, text)


def said(text: str = "answer") -> Message:
    return Message(Role.ASSISTANT, text)


def used(call_id: str) -> list[Message]:
    return [
        Message(Role.ASSISTANT, "", tool_calls=(ToolCall(call_id, "t", "{}"),)),
        Message(Role.TOOL, "result", tool_call_id=call_id),
    ]


def test_the_numbers_of_a_large_window() -> None:
    """200,000 tokens: threshold 100,000, tail 20,000, summary 10,000."""
    assert (LARGE.threshold, LARGE.tail, LARGE.summary_cap) == (100_000, 20_000, 10_000)


def test_the_summary_never_takes_more_than_12000() -> None:
    """A window of a million tokens does not make a longer summary."""
    assert limits(Window(1_000_000), CompressionSettings()).summary_cap == 12_000


@pytest.mark.parametrize(
    ("content", "cap", "budget"),
    [(30_000, 10_000, 6_000), (1_000, 10_000, 2_000), (500_000, 10_000, 10_000), (1_000, 400, 400), (0, 800, 800)],
)
def test_the_budget_is_a_fifth_between_2000_and_the_cap(content: int, cap: int, budget: int) -> None:
    """At least 2,000 or the cap, whichever is smaller; at most the cap."""
    assert summary_budget(content, cap) == budget


def test_the_head_is_the_first_exchange() -> None:
    """The system prompt travels apart and counts as the first of three."""
    assert head_length([user(), said(), user(), said()], 3) == 2
    assert head_length([Message(Role.SYSTEM, "s"), user(), said(), user()], 3) == 3


def test_the_head_does_not_cut_a_call_from_its_results() -> None:
    """Where the first answer is a tool call, the head ends before it."""
    assert head_length([user(), *used("a"), said()], 3) == 1


def test_the_head_does_not_take_in_a_summary() -> None:
    """The summary of an earlier compaction is updated, not protected."""
    assert head_length([user(), said(MARKER + " x"), user()], 3) == 1


def test_the_tail_holds_its_budget_and_at_least_the_protected() -> None:
    """Twenty messages stay even when they exceed the budget; more stay when they fit."""
    messages = [user() if place % 2 == 0 else said() for place in range(100)]

    assert tail_start(messages, [5_000] * 100, limits=LARGE) == 80
    assert tail_start(messages, [500] * 100, limits=LARGE) == 60


def test_the_tail_shrinks_only_when_it_would_reach_the_threshold() -> None:
    """Twenty large messages stay while they fit; the oldest group goes first when they do not."""
    messages = [user() if place % 2 == 0 else said() for place in range(60)]

    roomy = plan_cut(messages, [4_000] * 60, limits=LARGE)
    tight = plan_cut(messages, [6_000] * 60, limits=LARGE)

    assert roomy is not None
    assert tight is not None
    assert len(roomy.tail) >= 20
    assert roomy.tail[-1] == tight.tail[-1] == 59
    assert 0 < len(tight.tail) < 20
    assert tight.predicted < LARGE.threshold


def test_a_tail_that_shrinks_leaves_room_for_more_than_one_turn() -> None:
    """Filled to the brim, every later turn would compact again and save next to nothing."""
    narrow = limits(Window(8_000, 1_500), CompressionSettings())
    messages = [user(), said()] * 12
    plan = plan_cut(messages, [150] * 24, limits=narrow)

    assert plan is not None
    assert plan.predicted < narrow.threshold - 3 * 150
    assert len(plan.tail) >= 4


def test_the_strictest_pass_still_says_something_in_a_small_window() -> None:
    """Where the head has to go, the summary gets the room that this makes, up to its cap."""
    narrow = limits(Window(8_000, 2_200), CompressionSettings())
    plan = plan_cut([user(), said()] * 4 + [user()], [700] * 8 + [900], limits=narrow)

    assert plan is not None
    assert plan.strictness == 3
    assert plan.summary_budget == narrow.summary_cap
    assert plan.predicted < narrow.threshold


def test_a_long_loop_keeps_its_question_and_its_newest_steps() -> None:
    """The last user message stays in front of the newest groups; the steps between are covered."""
    messages = [user("first"), said(), user("the task")]
    for step in range(100):
        messages += used(f"c{step}")
    plan = plan_cut(messages, [2_000] * len(messages), limits=LARGE)

    assert plan is not None
    assert plan.tail[0] == 2
    assert plan.tail[1] > 3
    assert 3 in plan.covered
    assert messages[plan.tail[1]].tool_calls


def test_a_stricter_pass_is_tried_until_it_fits() -> None:
    """With little room the summary and the tail give way, then the head."""
    small = limits(Window(8_000, 3_300), CompressionSettings())
    messages = [user(), said()] * 20

    plan = plan_cut(messages, [150] * 40, limits=small)

    assert plan is not None
    assert plan.strictness > 1
    assert plan.predicted < small.threshold


def test_the_minimum_is_the_last_user_message() -> None:
    """When even that is too much, the strictest plan comes back."""
    none_left = limits(Window(8_000, 3_990), CompressionSettings())

    plan = plan_cut([user(), said()] * 20, [300] * 40, limits=none_left)

    assert plan is not None
    assert plan.strictness == 3
    assert plan.tail == (38,)


def test_nothing_between_head_and_tail_is_no_plan() -> None:
    """A short conversation has no middle."""
    assert plan_cut([user(), said()] * 3, [10] * 6, limits=LARGE) is None
    assert plan_cut([], [], limits=LARGE) is None


def test_a_wish_below_the_threshold_keeps_the_tails_share() -> None:
    """A small conversation in a large window is compacted when a person asks for it, by the mildest pass."""
    plan = plan_cut([user(), said()] * 20, [100] * 40, limits=LARGE)

    assert plan is not None
    assert plan.strictness == 1
    assert plan.head == (0, 1)
    assert 20 <= len(plan.tail) <= 21


@given(
    st.lists(st.sampled_from(["user", "said", "used", "summary"]), max_size=60),
    st.integers(1, 4_000),
    st.integers(500, 60_000),
    st.integers(0, 6),
    st.integers(1, 30),
)
def test_any_plan_keeps_groups_whole_and_every_place_once(
    shape: list[str], size: int, window: int, first: int, last: int
) -> None:
    """Head, covered and tail are all the messages; no call is parted from its results."""
    messages: list[Message] = []
    for place, kind in enumerate(shape):
        messages += {"user": [user()], "said": [said()], "used": used(f"c{place}"), "summary": [user(MARKER + " old")]}[
            kind
        ]
    few = replace(limits(Window(window, 50), CompressionSettings()), protect_first=first, protect_last=last)

    plan = plan_cut(messages, [size] * len(messages), limits=few)

    if plan is not None:
        assert sorted((*plan.head, *plan.covered, *plan.tail)) == list(range(len(messages)))
        for group in groups(messages):
            parts = [set(group) <= set(part) for part in (plan.head, plan.covered, plan.tail)]
            assert any(parts)

"""Token estimates: the figures by character class, speed, and what is learned from reports."""

import time
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.messages import ChatRequest, ImagePart, Message, Role, TextPart, ToolCall
from wellkept.core.tools import ToolSchema
from wellkept.llm.tokens import (
    IMAGE_TOKENS,
    MAX_CACHED,
    CachedCount,
    Calibration,
    message_tokens,
    request_tokens,
    text_tokens,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("abcd ZYX" * 100, 160), ("\n\t" * 100, 50), ("7" * 100, 75), ("{}:," * 100, 140), ("é" * 100, 45),
     ("ж" * 100, 45), ("你" * 100, 85), ("한" * 100, 85), ("🎉" * 100, 250), ("", 0)],
)  # fmt: skip
def test_figures(text: str, tokens: int):
    """Each class of characters has the figure of the design."""
    assert abs(text_tokens(text) - tokens) <= 1


@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(first: str, second: str):
    """The estimate grows with the text and never differs by more than rounding from its parts."""
    whole = text_tokens(first + second)

    assert max(text_tokens(first), text_tokens(second)) <= whole <= text_tokens(first) + text_tokens(second)


@given(st.text(alphabet=st.characters(codec=None)))
def test_any_text_can_be_estimated(text: str):
    """Half surrogates and unassigned characters are counted like any other."""
    assert text_tokens(text) >= 0


@pytest.mark.speed
def test_estimating_is_fast():
    """At least 20 MB of mixed text are estimated per second."""
    text = "The café costs 12 € — 你好, 🎉!\n" * 150_000
    started = time.perf_counter()
    text_tokens(text)
    seconds = time.perf_counter() - started

    assert len(text.encode()) / 1e6 / seconds > 20


def test_a_message_counts_all_that_is_sent():
    """Images, calls and thinking are part of a message's size."""
    plain = message_tokens(Message(Role.USER, "hello"))
    image = Message(Role.USER, (TextPart("hello"), ImagePart("image/png", "QUJD" * 9999)))
    calls = Message(Role.ASSISTANT, "hello", tool_calls=(ToolCall("1", "memory", '{"text": "something"}'),))

    assert message_tokens(image) == plain + IMAGE_TOKENS
    assert message_tokens(calls) > plain
    assert message_tokens(Message(Role.ASSISTANT, "hello", reasoning="because of that")) > plain


def test_a_request_counts_system_and_tools():
    """Tools and the system prompt are part of a request's size."""
    bare = request_tokens(ChatRequest("", (Message(Role.USER, "x"),)))
    tool = ToolSchema("memory", "Keep a fact.", {"type": "object", "properties": {}}, "memory")

    assert request_tokens(ChatRequest("a longer system prompt", (Message(Role.USER, "x"),), (tool,))) > bare + 10


def test_calibration_follows_the_reports_within_bounds():
    """What the endpoint reports corrects the estimate; nonsense and silence do not."""
    learned = Calibration().learn(estimated=1000, reported=1300)

    assert learned.apply(1000) == 1300
    assert learned.learn(estimated=1000, reported=0) == learned
    assert Calibration().learn(estimated=1, reported=10**9).ratio == Calibration.MOST
    assert Calibration().learn(estimated=10**9, reported=1).ratio == Calibration.LEAST


def test_a_count_is_remembered_without_its_text():
    """The same text is counted once, and nothing keeps it alive; a full memory starts over."""
    counted = []

    class Text(str):
        __slots__ = ("__weakref__",)

    def count(text: str) -> int:
        counted.append(len(text))
        return len(text)

    remembering = CachedCount(count)
    text = Text("a history " * 1_000)
    watched = weakref.ref(text)

    assert remembering(text) == remembering("a history " * 1_000) == 10_000
    assert len(counted) == 1
    del text
    assert watched() is None

    for number in range(MAX_CACHED + 1):
        remembering(str(number))
    assert remembering("a history " * 1_000) == 10_000
    assert counted.count(10_000) == 2

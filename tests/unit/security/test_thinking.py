"""Thinking that quotes recalled memory is for its own endpoint alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.security.fence import shown_thinking

FACT = "Anna drinks oolong"


def signed(*thoughts):
    blocks = [{"type": "thinking", "thinking": thought, "signature": "c2ln"} for thought in thoughts]
    return json.dumps([*blocks, {"type": "redacted_thinking", "data": "b3BhcXVl"}])


@given(st.text(alphabet=st.characters(exclude_characters="<>[]")))
def test_thinking_that_quotes_nothing_is_given_as_it_is(thought):
    """Signed or plain, byte for byte."""
    assert shown_thinking(signed(thought)) == signed(thought)
    assert shown_thinking(thought) == thought
    assert shown_thinking(None) is None


@pytest.mark.parametrize(
    "thoughts",
    [
        (f"I was given <memory-context>{FACT}</memory-context> for this.",),
        (f"I was given <memory-context\nsource='a'>{FACT}</memory-context\n> for this.",),
        ("I was given <memory-con", f"text>{FACT}</memory-", "context> for this."),
        (f"I was given <memory-context>{FACT}",),
    ],
)
def test_a_quote_is_taken_out_of_signed_blocks(thoughts):
    """Whatever way the tag is written, also over two blocks or never closed; no signature is left."""
    shown = shown_thinking(signed(*thoughts))

    assert shown is not None
    assert shown.startswith("I was given")
    assert FACT not in shown
    assert "c2ln" not in shown


def test_thinking_that_is_nothing_but_a_quote_is_none():
    """There is nothing left to show."""
    assert shown_thinking(signed(f"<memory-context>{FACT}</memory-context>")) is None


def test_text_that_only_looks_like_blocks_is_text():
    """A bracket at the beginning is not a promise of JSON."""
    assert shown_thinking("[well, let me see") == "[well, let me see"

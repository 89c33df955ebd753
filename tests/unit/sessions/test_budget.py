"""Answers inside their number of tokens."""

from hypothesis import given
from hypothesis import strategies as st

from kept.core.text import dumps
from kept.sessions.recall import Caps, fit, tokens


def test_scripts_weigh_differently():
    """English is cheap, digits and Chinese are dear."""
    assert tokens("word " * 100) == 100
    assert tokens("7" * 100) == 75
    assert tokens("字" * 100) == 85
    assert tokens("") == 0


@given(st.lists(st.text(max_size=3_000), min_size=1, max_size=10), st.booleans())
def test_an_answer_fits(messages, is_full):
    """Whatever the messages are, the answer stays under its budget and shows at least one."""

    def render(caps):
        shown = messages[: caps.results]
        return {
            "results": [
                text[: caps.anchor_chars if place == 0 else caps.other_chars] for place, text in enumerate(shown)
            ]
        }

    answer = fit(render, Caps(1_500, 700, 5, 3, len(messages)), budget=500, is_full=is_full)

    assert tokens(dumps(answer)) <= 500
    assert len(answer["results"]) >= 1


def test_the_fullest_answer_is_kept():
    """What fits is not shortened."""
    answer = fit(lambda caps: {"text": "a" * min(caps.anchor_chars, 2_000)}, Caps(1_500, 700, 5, 3, 1), budget=1_000)

    assert len(answer["text"]) == 1_500

"""Answers inside their number of tokens."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.text import dumps
from wellkept.sessions.recall import Caps, _ladder, fit, tokens


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

    assert answer.tokens <= 500
    assert len(answer.value["results"]) >= 1


def test_the_fullest_answer_is_kept():
    """What fits is not shortened."""
    answer = fit(lambda caps: {"text": "a" * min(caps.anchor_chars, 2_000)}, Caps(1_500, 700, 5, 3, 1), budget=1_000)

    assert len(answer.value["text"]) == 1_500


@given(st.lists(st.text(max_size=2_500), min_size=1, max_size=9), st.integers(60, 3_000), st.booleans())
def test_forms_that_are_not_rendered_would_not_have_fitted(messages, budget, is_full):
    """The answer is the one that trying every form in order gives."""
    rendered = []

    def render(caps):
        rendered.append(caps)
        shown = messages[: 2 * caps.window + 1]
        cut = [text[: caps.other_chars if place else caps.anchor_chars] for place, text in enumerate(shown)]
        return {"messages": [{"content": text, "anchor": place == 0} for place, text in enumerate(cut)], "count": 1}

    start = Caps(1_500, 700, 5, 3, 1)
    answer = fit(render, start, budget=budget, is_full=is_full)

    few = list(rendered)
    forms = [render(caps) for caps in _ladder(start, is_full=is_full)]
    assert answer.value == next((one for one in forms if tokens(dumps(one)) <= budget), forms[-1])
    assert len(few) <= len(forms)


def test_an_answer_of_ordinary_messages_is_rendered_twice_at_most():
    """Once to measure it, and once in the form that its lengths tell."""
    rendered = []

    def render(caps):
        rendered.append(caps)
        said = ["the staging server listens on port and nobody knows why " * 30] * 11
        return {"messages": [{"content": text[: caps.other_chars], "anchor": False} for text in said]}

    answer = fit(render, Caps(1_500, 700, 5, 0, 1), budget=1_200)

    assert answer.tokens <= 1_200
    assert len(rendered) <= 2

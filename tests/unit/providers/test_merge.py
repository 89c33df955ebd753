"""Recall of several providers, merged."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.providers.content import merge_texts

LINES = st.lists(st.text(alphabet="abc -*", max_size=12), max_size=6).map("\n".join)


def test_duplicate_lines_are_said_once():
    """Markup, case and punctuation make no difference."""
    assert merge_texts(["- Likes tea.\n- Has a dog", "* likes TEA\nLives in Rome"], max_chars=1000) == (
        "- Likes tea.\n- Has a dog\nLives in Rome"
    )


def test_a_small_budget_is_shared():
    """No provider uses it up alone: lines are taken in turn."""
    text = merge_texts(["a1\na2\na3\na4", "b1\nb2\nb3\nb4"], max_chars=12)

    assert text == "a1\na2\nb1\nb2"


def test_one_line_longer_than_the_budget_is_cut():
    """Thin context is better than none."""
    assert merge_texts(["x" * 50], max_chars=10) == "x" * 10


@given(st.lists(LINES, max_size=4), st.integers(min_value=1, max_value=60))
def test_the_budget_holds(texts, limit):
    """Whatever is recalled, the merged text fits."""
    assert len(merge_texts(texts, max_chars=limit)) <= limit


@given(st.lists(LINES, max_size=4))
def test_every_distinct_line_survives_a_large_budget(texts):
    """Nothing but duplicates is left out."""
    result = merge_texts(texts, max_chars=100_000).splitlines()

    assert {" ".join(line.strip(" -*").casefold().split()) for text in texts for line in text.splitlines()} - {""} <= {
        " ".join(line.strip(" -*").casefold().split()) for line in result
    }

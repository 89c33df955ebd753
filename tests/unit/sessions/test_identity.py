"""How a line that is stored already is known again."""

from hypothesis import given
from hypothesis import strategies as st

from kept.sessions.records import Stored

words = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1.0, 2.0])), max_size=12)


@given(words)
def test_the_same_lines_are_always_known(lines):
    """Whatever repeats in it, a transcript that is stored is known line by line."""
    stored = Stored()
    for text, moment in lines:
        stored.remember(None, text.encode(), moment)

    assert all(stored.holds(None, text.encode(), moment) for text, moment in lines)

"""How a line that is already stored is recognised."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.ids import MessageId
from wellkept.sessions.rows.transfer import Stored

words = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1.0, 2.0])), max_size=12)


@given(words)
def test_the_same_lines_are_always_known(lines):
    """Whatever repeats in it, a transcript that is stored is known line by line."""
    stored = Stored()
    for number, (text, moment) in enumerate(lines, start=1):
        stored.remember(MessageId(number), None, mark=text.encode(), moment=moment)

    found = [stored.find(None, text.encode(), moment) for text, moment in lines]

    assert found == list(range(1, len(lines) + 1))

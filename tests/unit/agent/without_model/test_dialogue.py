"""What the next message may refer to, as it is stored with the session."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.agent.without_model.dialogue import Memo, load_memo

OPEN = Memo("de", 7, "keep", ("ab12",), ("x",), (3, 4), "a; b", 7, "ich wohne hier", "wo?", ("y",))


def test_a_memo_survives_its_note():
    """Another process reads what this one wrote."""
    assert load_memo(OPEN.as_json(), 7) == OPEN


def test_an_open_question_ends_with_the_next_message():
    """After anything else was said, a yes answers nothing; what was done can still be undone."""
    later = load_memo(OPEN.as_json(), 9)

    assert (later.asked, later.pending, later.texts, later.answered) == ("", (), (), ())
    assert later.done == (3, 4)
    assert not later.is_fresh


def test_a_change_is_fresh_only_right_after_its_order():
    """“Don't save that” undoes what the last message saved, and nothing older."""
    assert OPEN.is_fresh
    assert not load_memo({**OPEN.as_json(), "done_at": 5}, 7).is_fresh


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*OPEN.as_json()]), inner, max_size=9)
        ),
        max_leaves=9,
    )
)
def test_a_damaged_note_is_no_memo(value):
    """Whatever is stored there, the conversation continues."""
    assert isinstance(load_memo(value, 1), Memo)

"""How the words of a question stand in a text."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kept.sessions.search.features import Wording
from kept.sessions.sqlite import index
from kept.sessions.sqlite.postings import Postings
from kept.storage.state import open_state


@pytest.fixture
def postings(tmp_path: Path) -> Iterator[Postings]:
    database = open_state(tmp_path / "state.db")
    index.create(database.connection)
    yield Postings(database.connection)
    database.close()


def test_terms_that_stand_together_are_close_in_all_their_forms(postings: Postings) -> None:
    """`people` is asked for as `person` and stands beside `supportive` all the same."""
    wording = Wording(postings, "supportive people", ["supportive", "person"])

    near = wording.of("having supportive people around", [2.0, 1.0])
    far = wording.of("supportive, as so many of the people", [2.0, 1.0])

    assert near.gap == 1.0
    assert 0.0 < far.gap < near.gap
    assert near.held == 0b11


def test_a_quotation_counts_and_scattered_words_do_not(postings: Postings) -> None:
    """Word for word is all of it; the same words in another order are nothing."""
    wording = Wording(postings, "life can be tough sometimes", ["life", "tough", "sometimes"])

    assert wording.of("Sam: Yeah. Life can be tough sometimes, but we go on", [1.0] * 3).quoted == 1.0
    assert wording.of("sometimes tough, be that as it can, is life", [1.0] * 3).quoted == 0.0


def test_the_speaker_is_no_word_of_the_text(postings: Postings) -> None:
    """The name in front of what is said holds no term."""
    assert Wording(postings, "ann", ["ann"]).of("Ann: hello there", [1.0]).held == 0


def test_the_stop_words_of_a_question_are_counted_once_each(postings: Postings) -> None:
    """A text is remembered by its small words as well; what is left of "don't" is no word."""
    wording = Wording(postings, "you don't get there", ["get"])

    assert wording.is_more_than_terms
    assert wording.of("there you are, and there you stay, t", [1.0]).small == 2
    assert not Wording(postings, "violin", ["violin"]).is_more_than_terms


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(question=st.text(max_size=60), text=st.text(max_size=120))
def test_any_question_beside_any_text_is_between_nothing_and_all(postings: Postings, question: str, text: str) -> None:
    """No text raises, and shares are shares."""
    stands = Wording(postings, question, ["alpha", "beta"]).of(text, [1.0, 1.0])

    assert stands.gap >= 0.0
    assert 0.0 <= stands.quoted <= 1.0
    assert stands.held in range(4)
    assert stands.small >= 0

"""How the words of a question stand in a text."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kept.sessions.search.occurrences import Proximity
from kept.sessions.sqlite import index
from kept.sessions.sqlite.postings import SqlitePostings
from kept.storage.sqlite import open_state


@pytest.fixture
def postings(tmp_path: Path) -> Iterator[SqlitePostings]:
    database = open_state(tmp_path / "state.db")
    index.create(database.connection)
    yield SqlitePostings(database.connection)
    database.close()


def test_terms_that_stand_together_are_close_in_all_their_forms(postings: SqlitePostings) -> None:
    """`people` is asked for as `person` and stands beside `supportive` all the same."""
    wording = Proximity(postings, "supportive people", ["supportive", "person"])

    near = wording.of("having supportive people around", [2.0, 1.0])
    far = wording.of("supportive, as so many of the people", [2.0, 1.0])

    assert near.closeness == 1.0
    assert 0.0 < far.closeness < near.closeness
    assert near.terms == 0b11


def test_a_quotation_counts_and_scattered_words_do_not(postings: SqlitePostings) -> None:
    """Word for word is all of it; the same words in another order are nothing."""
    wording = Proximity(postings, "life can be tough sometimes", ["life", "tough", "sometimes"])

    assert wording.of("Sam: Yeah. Life can be tough sometimes, but we go on", [1.0] * 3).quoted == 1.0
    assert wording.of("sometimes tough, be that as it can, is life", [1.0] * 3).quoted == 0.0


def test_the_speaker_is_no_word_of_the_text(postings: SqlitePostings) -> None:
    """The name in front of what is said holds no term."""
    assert Proximity(postings, "ann", ["ann"]).of("Ann: hello there", [1.0]).terms == 0


def test_the_stop_words_of_a_question_are_counted_once_each(postings: SqlitePostings) -> None:
    """A text is remembered by its small words as well; what is left of "don't" is no word."""
    wording = Proximity(postings, "you don't get there", ["get"])

    assert wording.has_more_than_terms
    assert wording.of("there you are, and there you stay, t", [1.0]).stop_words == 2
    assert not Proximity(postings, "violin", ["violin"]).has_more_than_terms


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(question=st.text(max_size=60), text=st.text(max_size=120))
def test_any_question_beside_any_text_is_between_nothing_and_all(
    postings: SqlitePostings, question: str, text: str
) -> None:
    """No text raises, and shares are shares."""
    stands = Proximity(postings, question, ["alpha", "beta"]).of(text, [1.0, 1.0])

    assert stands.closeness >= 0.0
    assert 0.0 <= stands.quoted <= 1.0
    assert stands.terms in range(4)
    assert stands.stop_words >= 0

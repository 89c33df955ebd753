"""How the words of a question stand in a text."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kept.sessions.sqlite import index
from kept.sessions.sqlite.postings import Postings
from kept.sessions.sqlite.wording import Wording
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

    near, _, held = wording.of("having supportive people around", [2.0, 1.0])
    far, _, _ = wording.of("supportive, as so many of the people", [2.0, 1.0])

    assert near == 1.0
    assert 0.0 < far < near
    assert held == 0b11


def test_a_quotation_counts_and_scattered_words_do_not(postings: Postings) -> None:
    """Word for word is all of it; the same words in another order are nothing."""
    wording = Wording(postings, "life can be tough sometimes", ["life", "tough", "sometimes"])

    assert wording.of("Sam: Yeah. Life can be tough sometimes, but we go on", [1.0] * 3)[1] == 1.0
    assert wording.of("sometimes tough, be that as it can, is life", [1.0] * 3)[1] == 0.0


def test_the_speaker_is_no_word_of_the_text(postings: Postings) -> None:
    """The name in front of what is said holds no term."""
    assert Wording(postings, "ann", ["ann"]).of("Ann: hello there", [1.0])[2] == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(question=st.text(max_size=60), text=st.text(max_size=120))
def test_any_question_beside_any_text_is_between_nothing_and_all(postings: Postings, question: str, text: str) -> None:
    """No text raises, and shares are shares."""
    gap, quoted, held = Wording(postings, question, ["alpha", "beta"]).of(text, [1.0, 1.0])

    assert gap >= 0.0
    assert 0.0 <= quoted <= 1.0
    assert held in range(4)

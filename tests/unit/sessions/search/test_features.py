"""How the words of a question stand in a text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kept.sessions.search.occurrences import Proximity
from kept.sessions.search.terms import PostingList


def terms(*words: str) -> list[PostingList]:
    """Return one term for each text of forms."""
    return [PostingList(forms.split()[0], 1.0, forms.split()) for forms in words]


def test_terms_that_stand_together_are_close_in_all_their_forms() -> None:
    """`people` is asked for as `person` and stands beside `supportive` all the same."""
    wording = Proximity("supportive people", terms("supportive", "person people"))

    near = wording.of("having supportive people around", [2.0, 1.0])
    far = wording.of("supportive, as so many of the people", [2.0, 1.0])

    assert near.closeness == 1.0
    assert 0.0 < far.closeness < near.closeness


def test_a_quotation_counts_and_scattered_words_do_not() -> None:
    """Word for word is all of it; the same words in another order are nothing."""
    wording = Proximity("life can be tough sometimes", terms("life", "tough", "sometimes"))

    assert wording.of("Sam: Yeah. Life can be tough sometimes, but we go on", [1.0] * 3).quoted == 1.0
    assert wording.of("sometimes tough, be that as it can, is life", [1.0] * 3).quoted == 0.0


def test_the_speaker_is_no_word_of_the_text() -> None:
    """The name in front of what is said is close to nothing."""
    assert Proximity("ann walked", terms("ann", "walked")).of("Ann: walked there", [1.0, 1.0]).closeness == 0.0


def test_the_stop_words_of_a_question_are_counted_once_each() -> None:
    """A text is remembered by its small words as well; what is left of "don't" is no word."""
    wording = Proximity("you don't get there", terms("get"))

    assert wording.has_more_than_terms
    assert wording.of("there you are, and there you stay, t", [1.0]).stop_words == 2
    assert not Proximity("violin", terms("violin")).has_more_than_terms


@settings(max_examples=60)
@given(question=st.text(max_size=60), text=st.text(max_size=120))
def test_any_question_beside_any_text_is_between_nothing_and_all(question: str, text: str) -> None:
    """No text raises, and shares are shares."""
    stands = Proximity(question, terms("alpha", "beta")).of(text, [1.0, 1.0])

    assert stands.closeness >= 0.0
    assert 0.0 <= stands.quoted <= 1.0
    assert stands.stop_words >= 0

"""Messages that mean something only after the one before them."""

import pytest

from wellkept.facts.replies import begins_correction, complete, is_bare_correction, says_change


def test_a_bare_correction_becomes_a_whole_statement() -> None:
    """The frame is that of the statement before it."""
    assert complete("My favourite colour is green", "no, blue") == "My favourite colour is blue"
    assert complete("I live in Leipzig.", "no, Dresden") == "I live in Dresden."


@pytest.mark.parametrize("text", ["no, blue", "nein, blau", "no, azul", "non, bleu", "不对,蓝色"])
def test_a_bare_correction_is_recognised_in_every_language(text: str) -> None:
    """A question, or a whole sentence, is none."""
    assert begins_correction(text)
    assert is_bare_correction(text)
    assert not is_bare_correction(f"{text}?")


def test_a_change_is_said_and_not_asked() -> None:
    """A question about a change says nothing."""
    assert says_change("the lesson is on Tuesdays now")
    assert not says_change("is the lesson on Tuesdays now?")

"""Titles of sessions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.agent.titles import FIRST_CHARS, NAME_CHARS, ask_for_title, first_words
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Message, Origin, Role, StoredMessage


class Namer:
    name, context_length = "scripted/namer", 1_000

    def __init__(self, answer: str) -> None:
        self.answer, self.asked = answer, ""

    def complete(self, system: str, prompt: str, *, max_output_tokens: int) -> str:
        self.asked = prompt
        return self.answer


def rows(*texts: str) -> list[StoredMessage]:
    return [
        StoredMessage(
            id=MessageId(number),
            session_id=SessionId("s"),
            message=Message(Role.USER, text),
            timestamp=0.0,
            origin=Origin.PERSON,
        )
        for number, text in enumerate(texts, 1)
    ]


@given(st.text(max_size=200))
def test_first_words_fit_one_line(text: str) -> None:
    """Whatever was said, the title is short, one line, and a beginning of it."""
    title = first_words(text)

    assert len(title) <= FIRST_CHARS + 1
    assert "\n" not in title
    assert " ".join(text.split()).startswith(title.removesuffix("…"))


@pytest.mark.parametrize(
    ("answer", "title"),
    [('"Tea for Anna"\n', "Tea for Anna"), ("One\nTwo", "One"), ("  \n", ""), ("x" * 200, "x" * NAME_CHARS)],
)
def test_a_model_gives_one_short_line(answer: str, title: str) -> None:
    """Quotation marks and further lines are left out; silence is not a title."""
    assert ask_for_title(Namer(answer), rows("hi")) == title


def test_a_model_reads_the_beginning_only() -> None:
    """A long conversation is named by its first messages, each cut."""
    namer = Namer("n")

    ask_for_title(namer, rows(*(f"{number}" * 5_000 for number in range(9))))

    assert len(namer.asked) < 4_100
    assert "user: 3" in namer.asked
    assert "user: 4" not in namer.asked

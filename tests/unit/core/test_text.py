"""Quotations with their sources, written and known again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.ids import MessageId, SessionId
from wellkept.core.provenance import find_quoted_messages, message_source, quote, quotes_a_page
from wellkept.core.text import Written, dumps, has_long_word

names = st.text(st.characters(exclude_categories=["Cs", "Zl", "Zp", "Cc"]), min_size=1, max_size=30)


@given(names, st.integers(1, 10**12), names, st.sampled_from(["you", "assistant"]))
def test_what_is_quoted_is_known_again(session, number, text, who):
    """Whatever an import called its session."""
    answer = quote(text, message_source(who, "2026-11-16", SessionId(session), MessageId(number)))

    assert find_quoted_messages(f"{answer}\n{answer}") == [(session, number)] * 2


@pytest.mark.parametrize("text", ["session s1, message 5", "— you, 2026-11-16, session s1, message 5", "x.md", ""])
def test_words_that_only_look_alike_are_no_quotation(text):
    """A quotation's source line begins with the dash."""
    assert find_quoted_messages(text) == []
    assert not quotes_a_page(text)


def test_an_entry_of_a_page_is_known():
    """By the name of its file."""
    assert quotes_a_page(quote("I deploy on Fridays", "USER.md, 2026-11-16"))


def test_an_object_that_was_written_is_not_written_again():
    """Its text is that of the same values in a plain object."""
    value = {"results": [{"content": 'a "quoted" line\n', "id": 5}], "count": 1, "title": "Zürich 東京"}

    assert dumps(Written(value)) == Written(value).text == dumps(value)
    assert Written(value) == value
    assert dumps(Written(value), indent=1) == dumps(value, indent=1)


@given(st.text("ab \t\n\x0b\x1c.é中\u3000", max_size=60), st.integers(1, 12))
def test_no_long_word_is_missed(text, length):
    """Other scripts may seem longer than they are; in ASCII the answer is exact."""
    longest = max(map(len, text.split()), default=0)

    assert has_long_word(text, length) or longest < length
    assert not text.isascii() or has_long_word(text, length) == (longest >= length)

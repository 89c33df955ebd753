"""The passages of a message."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.sessions.embedding.backfill import MAX_CHARACTERS, MAX_PASSAGES, passages


def test_each_sentence_is_a_passage():
    """A message of three sentences has three; what says nothing by itself is left out."""
    text = "Wow! I adopted a puppy last week. She is called Luna. 我昨天去了东京塔看夜景很漂亮。"

    assert passages(text) == ["I adopted a puppy last week.", "She is called Luna.", "我昨天去了东京塔看夜景很漂亮。"]


def test_a_short_message_is_its_own_passage():
    """Where no sentence is long enough, the whole message is one."""
    assert passages("Yes!") == ["Yes!"]
    assert passages("  \n ") == []


@given(st.text(max_size=9_000))
def test_passages_are_few_and_hold_text_of_the_message(text):
    """Whatever is said, there are at most twelve, none blank, and no character is added."""
    found = passages(text)

    assert len(found) <= MAX_PASSAGES
    assert all(part.strip() for part in found)
    assert sum(map(len, found)) <= MAX_CHARACTERS + MAX_PASSAGES
    assert bool(found) == bool(text[:MAX_CHARACTERS].strip())


@given(st.lists(st.text("abc ", min_size=13, max_size=60), min_size=MAX_PASSAGES + 1, max_size=60))
def test_a_long_message_is_cut_evenly(sentences):
    """No passage of a long message is much longer than the others."""
    found = passages("\n".join(sentences))

    longest = max(map(len, sentences))
    assert max(map(len, found)) <= sum(map(len, sentences)) / MAX_PASSAGES + 2 * longest + 60

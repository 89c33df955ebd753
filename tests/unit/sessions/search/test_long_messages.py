"""Words at the end of a very long message."""

from wellkept.sessions.search.analysis import TALK_CHARACTERS, IndexedText, prepare


def test_every_word_of_a_long_message_is_indexed_and_repeats_cost_nothing():
    """A word far behind the limit is there; the same line a thousand times is there once."""
    line = "2026-11-17 worker accepted connection from the balancer\n"
    text = line * (3 * TALK_CHARACTERS // len(line)) + "the zanzibar incident" + "\n" + line * 1_000 + "quokka"

    indexed = prepare(IndexedText(1, text)).words

    assert "zanzibar" in indexed
    assert "quokka" in indexed
    assert len(indexed) < TALK_CHARACTERS + 1_000


def test_a_word_across_the_limit_is_not_cut():
    """The beginning ends at a space."""
    text = "ab " * (TALK_CHARACTERS // 3 - 2) + "unbroken" + " tail"

    assert " unbroken" in f" {prepare(IndexedText(1, text)).words}"

"""Words and stop words, as every search in kept splits them."""

import pytest

from kept.core.text import STOP_WORDS, UNSPACED, split_pairs, split_words, stop_words, strip_accents


def test_words_are_split_at_everything_that_is_no_letter_or_digit():
    """Underscores, hyphens and apostrophes separate; digits belong to words."""
    assert split_words("Don't e-mail snake_case v2!") == ["don", "t", "e", "mail", "snake", "case", "v2"]


def test_accents_are_stripped():
    """A word is found whether or not its accents were typed."""
    assert strip_accents("Müller à São Paulo") == "Muller a Sao Paulo"


@pytest.mark.parametrize(("run", "pairs"), [("东京塔", ["东京", "京塔"]), ("猫", ["猫"])])
def test_scripts_without_spaces_are_split_into_pairs(run, pairs):
    """A single character is its own pair."""
    assert UNSPACED.fullmatch(run)
    assert split_pairs(run) == pairs


def test_english_stop_words_always_apply():
    """Also the fragments that the splitter leaves of contractions."""
    assert {"the", "don", "ll"} <= stop_words(["boat"])


def test_another_language_needs_two_stop_words_and_more_than_english():
    """ "war" and "die" are German stop words and English nouns."""
    assert "die" not in stop_words(["war", "heroes"])
    assert "die" in stop_words(["wann", "war", "die", "reise"])
    assert "die" not in stop_words(["was", "die", "in", "the", "a"])
    assert stop_words(["wann", "war", "die", "reise"]) >= STOP_WORDS

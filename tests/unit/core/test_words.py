"""Words, as every search in kept splits them."""

import pytest

from wellkept.core.text import UNSPACED, split_pairs, split_words, strip_accents


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

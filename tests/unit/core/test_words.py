"""Words and stop words, as every search in kept splits them."""

import pytest

from wellkept.core.text import (
    STOP_WORDS,
    UNSPACED,
    find_languages,
    list_markers,
    resource_text,
    split_pairs,
    split_words,
    stop_words,
    stop_words_by_language,
    strip_accents,
)


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


def test_names_and_english_words_do_not_tell_a_language():
    """ "ben" and "kim" are Turkish pronouns, "van" and "most" Hungarian; a question in Turkish drops them all the same."""
    assert find_languages(["ben", "kim", "wedding"]) == []
    assert find_languages(["most", "van", "rentals"]) == []
    assert find_languages(["evim", "nerede", "ve", "bu", "kim"]) == ["tr"]
    assert "kim" in stop_words(["evim", "nerede", "bu", "kim"])


@pytest.mark.parametrize("language", sorted(stop_words_by_language().keys() - {"en", "ru", "ko"}))
def test_a_marker_word_belongs_to_one_language(language):
    """No other language has it, with accents or without, and it is no English word."""
    markers = set(map(strip_accents, list_markers(language)))
    others = [words for name, words in stop_words_by_language().items() if name != language]

    assert len(markers) == 3
    assert markers.isdisjoint(map(strip_accents, set().union(*others)))


@pytest.mark.parametrize("language", sorted(stop_words_by_language()))
def test_every_list_of_stop_words_is_without_doubles(language):
    """A double would hide another word that was meant."""
    lines = resource_text("wellkept.core", "stop_words.txt").splitlines()
    listed = [
        word for line in lines if line.split(":")[0].split()[0] == language for word in line.split(": ")[1].split()
    ]

    assert len(listed) == len(set(listed))

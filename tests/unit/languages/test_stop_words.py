"""Stop words, and the languages that they tell."""

import pytest

from wellkept.core.text import strip_accents
from wellkept.languages.language import (
    STOP_WORDS,
    find_languages,
    list_languages,
    list_markers,
    list_other_words,
    stop_words,
    stop_words_by_language,
)

KINDS = ("stop", "ambiguous")


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
    others = list_other_words()
    own = [words for folder in list_languages() if folder.code == language for words in map(folder.list_words, KINDS)]
    listed = [word for words in own or (others[language], others.get(f"{language} ambiguous", ())) for word in words]

    assert len(listed) == len(set(listed))

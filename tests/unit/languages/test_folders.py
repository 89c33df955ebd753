"""The files of the folders: what one of them names must be read, because unknown names are ignored."""

import re

import pytest

from wellkept.languages.language import Language, find_language, list_languages

LANGUAGES = list_languages()
HEADER = " ".join(re.findall("^# (.*)", find_language("en").read_file("words.txt"), re.MULTILINE))
EXPLAINED = frozenset(kind for kinds in re.findall(r"((?:[a-z_]+, )*[a-z_]+): ", HEADER) for kind in kinds.split(", "))


def list_kinds(language: Language) -> list[str]:
    lines = language.read_file("words.txt").splitlines()
    return [line.partition(": ")[0] for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.code)
def test_every_kind_of_words_is_explained(language: Language) -> None:
    """`en/words.txt` explains the kinds of all languages."""
    assert set(list_kinds(language)) <= EXPLAINED


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.code)
def test_words_of_one_kind_are_without_doubles(language: Language) -> None:
    """A double would hide another word that was meant."""
    for kind in set(list_kinds(language)) - {"talk"}:
        words = language.list_words(kind)
        assert len(words) == len(set(words)), kind


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.code)
def test_tables_have_the_keys_of_the_english_ones(language: Language) -> None:
    """An expression under a misspelt key would never be used, and facts need all of theirs."""
    english = find_language("en").search

    assert set(language.search) == set(english)
    assert set(language.facts) - {"function"} == set(find_language("en").facts)
    for expression in (text for text in language.facts.values() if isinstance(text, str)):
        re.compile(expression)
    for name, table in language.search.items():
        assert set(table) <= set(english[name]), name
        for expression in (text for text in table.values() if isinstance(text, str)):
            re.compile(expression)


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.code)
def test_dates_have_twelve_months_and_seven_days(language: Language) -> None:
    """Their order is their number; English dates are what the others are translated to."""
    if language.code == "en":
        assert not language.dates
        return
    counted = {name: len(" ".join(language.dates[name]).split()) for name in ("counts", "units", "months", "weekdays")}

    assert counted == {"counts": 10, "units": 6, "months": 12, "weekdays": 7}
    assert set(language.dates) == {*counted, "days", "inside", "alone"}
    assert all(" =" in rule for name in ("inside", "alone") for rule in language.dates[name])

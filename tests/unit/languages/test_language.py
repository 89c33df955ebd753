"""The tables of the five languages, and which language a text is in."""

import unicodedata
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept import agent
from wellkept.agent.without_model.intents import read
from wellkept.languages.language import detect, find_language, list_codes, split


@pytest.mark.parametrize("code", list_codes())
def test_every_language_has_every_class_shape_and_reply(code):
    """A language that lacks one would answer in another, or fail."""
    table, english = find_language(code).table, find_language("en").table

    for part in ("words", "facts", "replies", "names"):
        assert set(table[part]) == set(english[part])
    for name in table["facts"]:
        find_language(code).pattern(name)


@pytest.mark.parametrize("code", list_codes())
def test_replies_have_the_same_values_in_every_language(code):
    """A value that a translation leaves out would not be said."""
    for name, text in find_language(code).table["replies"].items():
        values = {word for word in ("{text}", "{command}", "{reason}", "{page}", "{count}", "{counts}") if word in text}
        english = find_language("en").table["replies"][name]
        assert values == {
            word for word in ("{text}", "{command}", "{reason}", "{page}", "{count}", "{counts}") if word in english
        }


def test_every_reply_is_said_somewhere():
    """A text that nobody says would rot in five languages."""
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(agent.__path__[0]).rglob("*.py"))

    assert [
        name
        for name in find_language("en").table["replies"]
        if f'"{name}"' not in sources and f"'{name}'" not in sources
    ] == []


@pytest.mark.parametrize("code", list_codes())
def test_every_reply_is_recognised_as_its_language(code):
    """The longer replies are a corpus of their own."""
    for name in (
        "greeting",
        "self",
        "ability",
        "stored",
        "nothing",
        "remind",
        "cannot",
        "forget_all_question",
        "unknown",
    ):
        assert detect(find_language(code).say(name)) == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("I drive a blue car", "en"), ("Ich fahre ein blaues Auto", "de"), ("Conduzco un coche azul", "es"),
        ("Je conduis une voiture bleue", "fr"), ("我开一辆蓝色的车", "zh"), ("我们用 pnpm, 不用 npm", "zh"),
        ("qué gracioso", "es"), ("wie geht es dir", "de"), ("où est la gare", "fr"), ("thanks", "en"),
    ],
)  # fmt: skip
def test_a_text_is_recognised_by_its_words_and_letters(text, code):
    """Also a short one."""
    assert detect(text) == code


@pytest.mark.parametrize(
    "text", ["", "🎉🎉", "1234 5678", "Skoda?", "これは日本語です", "한국어입니다", "Это по-русски"]
)
def test_what_is_in_no_known_language_is_in_none(text):
    """Names, numbers and other languages are answered in the language of the conversation."""
    assert detect(text) is None


def test_a_word_of_two_languages_is_in_that_of_the_conversation():
    """“no” and “tres” are words of more than one."""
    assert detect("no, tres", "es") == "es"
    assert detect("no", "en") == "en"
    assert detect("nein, das stimmt nicht", "en") == "de"


def test_the_longest_phrase_counts():
    """“good morning” is a greeting; “good” alone is praise."""
    tokens = find_language("en").read("Good morning, that is good")

    assert [token.text for token in tokens if "greet" in token.classes] == ["good morning"]
    assert [token.text for token in tokens if "praise" in token.classes] == ["good"]


def test_apostrophes_hyphens_and_accents_do_not_matter():
    """People type them or not."""
    assert split("Qu’est-ce que c'est, déjà ?") == ["qu", "est", "ce", "que", "c", "est", "deja"]
    assert split("用pnpm吗") == ["用", "pnpm", "吗"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("en", "Tuesday, 17 November 2026"),
        ("de", "Dienstag, der 17. November 2026"),
        ("es", "martes, 17 de noviembre de 2026"),
        ("fr", "mardi 17 novembre 2026"),
        ("zh", "2026年11月17日，星期二"),
    ],
)
def test_a_date_is_said_as_people_say_it(code, words):
    """Day, month and year in their order and language."""
    moment = datetime(2026, 11, 17, 9, 5)  # noqa: DTZ001 - only its numbers are said

    assert words in find_language(code).describe_moment("date", moment)
    assert "09:05" in find_language(code).describe_moment("clock", moment)


@given(st.text(max_size=200), st.sampled_from(list_codes()))
def test_no_text_raises(text, code):
    """Whatever a person types is read, and every word of it is a token."""
    detect(text)
    reading = read(text, code)

    assert "".join("".join(token.text.split()) for token in reading.tokens) == "".join(split(text))


def test_letters_and_their_accents_may_be_apart():
    """Text of some systems has an accent as a character of its own, which does not end a word."""
    apart = unicodedata.normalize("NFD", "où est-ce que j'étudie")

    assert [token.text for token in read(apart, "fr").tokens] == [
        token.text for token in read("où est-ce que j'étudie", "fr").tokens
    ]

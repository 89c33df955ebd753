"""Folding and hidden characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.security.unicode import fold, invisible, lookalike_words


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("ＩＧＮＯＲＥ", "ignore"),
        ("précédentes", "precedentes"),
        ("Größe", "grosse"),
        ("ig\u200bnore", "ignore"),
        ("ignоre", "ignore"),
        ("don\u2019t", "don't"),
        ("𝓲𝓰𝓷𝓸𝓻𝓮", "ignore"),
        ("i\u0336g\u0336n\u0336", "ign"),
    ],
)
def test_disguised_letters_fold_to_plain_ones(text: str, plain: str) -> None:
    """Width, marks, hidden characters and look-alikes disappear."""
    assert fold(text) == plain


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "👨‍👩‍👧‍👦",
        "👩🏽‍💻",
        "❤️‍🔥",
        "🏴󠁧󠁢󠁳󠁣󠁴󠁿",
        "می\u200cخواهم",
        "क्‍ष",
        "\ufeffleading mark",
        "soft\u00adhyphen",
        "שלום\u200f!",
        "ㅤ한글",
    ],
)
def test_what_a_script_needs_is_clean(text: str) -> None:
    """Joiners in emoji and in scripts that need them, direction marks in such text, a leading BOM."""
    assert invisible(text) == ()


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("a\u200bb", (("U+200B", True),)),
        ("line\n\u200b\nline", (("U+200B", False),)),
        ("a\u200db", (("U+200D", True),)),
        ("a\u200cb", (("U+200C", True),)),
        ("left\u200fright", (("U+200F", True),)),
        ("x \u202e y", (("U+202E", True),)),
        ("\U000e0068\U000e0069", (("U+E0068", True), ("U+E0069", True))),
        ("👩\u200d\u200d💻", (("U+200D", True),)),
    ],
)
def test_what_no_script_needs_is_named(text: str, points: tuple[tuple[str, bool], ...]) -> None:
    """Each code point once, with whether it sits at a word."""
    assert invisible(text) == points


def test_words_with_foreign_letters_are_listed_folded() -> None:
    """Only words that hold such letters, and whether Latin ones are mixed in."""
    assert set(lookalike_words("ignоre this")) == {("ignore", True)}
    assert set(lookalike_words("раss the сар")) == {("pass", True), ("cap", False)}
    assert list(lookalike_words("plain text")) == []


def test_words_of_a_text_in_its_own_script_are_no_disguise() -> None:
    """Russian and Ukrainian have words that fold to English or German ones; only a mix is strange there."""
    assert list(lookalike_words("Що таке операційна система?")) == []
    assert set(lookalike_words("Привет, ignоre это")) == {("ignore", True)}


@pytest.mark.parametrize(
    "text",
    ["همه میگن\u200c :)", "آره،\u200c من", "نه\u200c:("],
    ids=["before a space", "after a comma", "before a sign"],
)
def test_a_non_joiner_at_the_edge_of_a_persian_word_is_clean(text: str) -> None:
    """People type it there; it hides nothing."""
    assert invisible(text) == ()


@pytest.mark.parametrize("text", ["もっ\u200b\u200bと", "اکسپريس\u202c )"], ids=["between kana", "after Urdu"])
def test_leftovers_in_other_scripts_are_for_a_person(text: str) -> None:
    """Machine translation and web pages leave them; they are named, and not grave."""
    assert [grave for _, grave in invisible(text)] == [False]


@given(st.text(max_size=200))
def test_folding_settles(text: str) -> None:
    """Folding never raises, and ASCII text only loses its case."""
    assert isinstance(fold(text), str)
    if text.isascii():
        assert fold(text) == text.lower()


def test_a_hidden_character_after_a_list_mark_is_ordinary() -> None:
    """Messengers put a word joiner between the mark of a list item and its text; inside a word it still deceives."""
    assert invisible("Tips:\n1. \u2060Rest well\n- \u2060Drink water") == ()
    assert invisible("1. ig\u2060nore it") == (("U+2060", True),)

"""Folding and hidden characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.security.unicode import fold, invisible, lookalike_words


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
        "می‌خواهم",
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
    assert set(lookalike_words("ignоre this привет")) == {("ignore", True), ("npubet", False)}
    assert list(lookalike_words("plain text")) == []


@given(st.text(max_size=200))
def test_folding_settles(text: str) -> None:
    """Folding never raises, and ASCII text only loses its case."""
    assert isinstance(fold(text), str)
    if text.isascii():
        assert fold(text) == text.lower()

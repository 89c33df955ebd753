"""Lines that fit a terminal."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from wellkept.cli.terminal import fold_line, on_one_line

letters = st.text(alphabet="ab 猫犬é", max_size=80)


def test_a_line_breaks_between_words():
    """A word stays whole where it fits; one that is wider than the terminal is cut."""
    assert list(fold_line("the quick brown fox", 10)) == ["the quick", "brown fox"]
    assert list(fold_line("abcdefghijkl", 5)) == ["abcde", "fghij", "kl"]
    assert list(fold_line("", 5)) == [""]


def test_wide_characters_take_two_cells():
    """Chinese has no spaces, and is cut where the cells end."""
    assert list(fold_line("我们去动物园", 6)) == ["我们去", "动物园"]


@given(letters, st.integers(2, 30))
def test_nothing_is_lost_and_every_part_fits(line, cells):
    """The parts hold every character but spaces at a break, and none is wider than asked."""
    parts = list(fold_line(line, cells))

    assert "".join(parts).replace(" ", "") == line.replace(" ", "")
    for part in parts:
        assert sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in part.rstrip(" ")) <= cells


def test_foreign_text_stays_on_its_line():
    """Line breaks of every kind become spaces, and what steers a terminal is replaced."""
    assert on_one_line("a\n  b\u2028c\td\x1b[2J\r") == "a b c d\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}"

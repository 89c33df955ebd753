"""Titles and their numbers."""

from kept.sessions.titles import base_of, cleaned, numbered


def test_a_number_is_not_part_of_the_title():
    """` #N` is told apart from a title that has a number sign of its own."""
    assert base_of("Plan #12") == "Plan"
    assert base_of("Issue #0") == "Issue #0"
    assert base_of("#3") == "#3"
    assert base_of("C# 4") == "C# 4"
    assert numbered("Plan", 3) == "Plan #3"


def test_a_title_is_one_line():
    """Line breaks and spaces are folded, and a title has an end."""
    assert cleaned("  a\n b\t c ") == "a b c"
    assert len(cleaned("x" * 999)) == 200

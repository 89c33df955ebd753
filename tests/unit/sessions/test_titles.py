"""Titles and their numbers."""

from wellkept.sessions.rows.session_rows import base_title, clean_title, numbered_title


def test_a_number_is_not_part_of_the_title():
    """` #N` is distinguished from a title that has a number sign of its own."""
    assert base_title("Plan #12") == "Plan"
    assert base_title("Issue #0") == "Issue #0"
    assert base_title("#3") == "#3"
    assert base_title("C# 4") == "C# 4"
    assert numbered_title("Plan", 3) == "Plan #3"


def test_a_title_is_one_line():
    """Line breaks and spaces are folded, and a title has an end."""
    assert clean_title("  a\n b\t c ") == "a b c"
    assert len(clean_title("x" * 999)) == 200

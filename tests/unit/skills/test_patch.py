"""Patches: one passage, found exactly or but for white space."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wellkept.core.errors import Reason, Refused
from wellkept.skills.changes import PatchResult, apply_patch

text = st.text(st.sampled_from("ab \n\tcd"), max_size=60)


@given(text, text.filter(str.strip), text)
def test_an_exact_unique_passage_is_replaced_and_nothing_else(before, old, after):
    """The text around the passage is untouched, byte for byte."""
    whole = f"{before}«{old}»{after}"
    assume(whole.count(f"«{old}»") == 1)

    result = apply_patch(whole, f"«{old}»", "new")

    assert isinstance(result, PatchResult)
    assert result.text == f"{before}new{after}"


@given(text, text, text)
def test_a_patch_is_a_patch_or_a_refusal_with_a_remedy(whole, old, new):
    """No input makes the matcher fail, and a result always differs by the replaced passages only."""
    match apply_patch(whole, old, new):
        case PatchResult(_, count):
            assert count == 1
        case Refused() as refused:
            assert refused.remedy


@given(st.lists(text, min_size=2, max_size=5), st.sampled_from(["«x»", "«a b»", "«\n»"]), text)
def test_replace_all_leaves_no_exact_occurrence(pieces, old, new):
    """Every exact occurrence goes when all are asked for."""
    whole = old.join(pieces)

    result = apply_patch(whole, old, new, replace_all=True)

    assert isinstance(result, PatchResult)
    assert result.text == new.join(pieces)


def test_two_places_are_refused_with_both_shown():
    """An ambiguous passage names the lines, so that the caller can add context."""
    refused = apply_patch("one\ntwo\none\n", "one", "three")

    assert isinstance(refused, Refused)
    assert refused.reason is Reason.AMBIGUOUS
    assert refused.detail["matches"] == ["line 1: one", "line 3: one"]


def test_trailing_white_space_does_not_matter():
    """Editors strip it, models do not see it."""
    result = apply_patch("a  \nb\t\nc", "a\nb", "x")

    assert isinstance(result, PatchResult)
    assert result.text == "x\nc"


def test_the_found_indentation_is_taken_over():
    """A passage quoted without its indentation keeps the file's."""
    result = apply_patch("steps:\n    - one\n    - two\n", "- one\n- two", "- one\n- three")

    assert isinstance(result, PatchResult)
    assert result.text == "steps:\n    - one\n    - three\n"


def test_white_space_between_words_does_not_matter():
    """A passage that was wrapped elsewhere is found."""
    result = apply_patch("Run the\ntests  first.", "Run the tests first.", "Run nothing.")

    assert isinstance(result, PatchResult)
    assert result.text == "Run nothing."


@pytest.mark.parametrize(("old", "new"), [("", "x"), ("  \n", "x"), ("same", "same"), ("x" * 60_000, "y")])
def test_an_unusable_passage_is_refused(old, new):
    """Nothing to look for, or nothing to change."""
    assert isinstance(apply_patch("same text", old, new), Refused)


def test_a_missing_passage_shows_the_closest_lines():
    """The refusal helps to quote the right line."""
    refused = apply_patch("1. Run the tests\n2. Push", "1. Run the test", "x")
    missing = apply_patch("1. Run the tests\n2. Push", "1. Run all tests now", "x")

    assert isinstance(refused, PatchResult)
    assert isinstance(missing, Refused)
    assert missing.detail["closest"] == ["1. Run the tests"]


def test_a_long_text_is_searched_in_bounded_time():
    """White-space matching does not backtrack."""
    assert isinstance(apply_patch("a " * 50_000, "a " * 20_000 + "b", "x"), Refused)

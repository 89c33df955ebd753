"""Numbers and small rules that the specification names: defaults, percent, previews, matching."""

from wellkept.memory.page import Page, Remove, preview
from wellkept.memory.settings import MemorySettings


def test_the_defaults():
    """Both pages on, two limits, no read action, a person is never refused for space, no approval, thirty days, ten seconds."""
    assert MemorySettings() == MemorySettings(
        memory_enabled=True,
        user_profile_enabled=True,
        memory_char_limit=2_200,
        user_char_limit=1_375,
        read_action=False,
        delta_notice=True,
        overflow="curate",
        write_approval="off",
        pending_days=30,
        lock_timeout_seconds=10.0,
        nudge_interval=10,
        provider=None,
    )


def test_a_page_is_never_more_than_full():
    """Over a lowered limit it is 100 %; a limit of 0 is 0 %."""
    assert [Page(("x" * 30,), limit).percent for limit in (10, 30, 31, 60, 0)] == [100, 100, 96, 50, 0]


def test_previews_have_eighty_characters():
    """The specification's number; a longer entry ends in an ellipsis."""
    assert [preview("x" * 80), preview("x" * 81)] == ["x" * 80, "x" * 79 + "…"]


def test_white_space_around_a_needle_counts_where_it_matches():
    """Only a needle that matches nowhere as it is sent is tried without its white space."""
    page = Page(("x a", "a b"), 100)

    assert page.apply(Remove(" a")).page.entries == ("a b",)
    assert page.apply(Remove("  b ")).page.entries == ("x a",)

"""How much a search may read: by the size of the store, the kind of query and the limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.sessions.search.candidates import LARGE, _find_fullest, choose_budget

SIZES = st.integers(0, 3 * LARGE)


def test_a_small_store_is_read_the_same_for_every_query() -> None:
    """Where lists are short, the kind of query makes no difference."""
    budgets = {
        choose_budget(5, documents, frequencies, is_explicit=is_explicit)
        for documents in (0, 600, 10_000)
        for frequencies in ((), (5_000,), (3, 700))
        for is_explicit in (False, True)
    }

    assert len(budgets) == 1


@pytest.mark.parametrize("is_explicit", [False, True])
def test_between_two_sizes_the_budget_changes_evenly(is_explicit: bool) -> None:
    """Half way between two sizes that were measured it is their mean."""
    small, middle, large = (
        choose_budget(5, documents, (50, 60), is_explicit=is_explicit) for documents in (20_000, 60_000, 100_000)
    )

    assert [round((one + other) / 2) for one, other in zip(small, large, strict=True)] == list(middle)


def test_beyond_the_largest_size_nothing_grows() -> None:
    """A store of ten million messages takes no longer than its lists are."""
    assert choose_budget(5, 10 * LARGE, (50, 60)) == choose_budget(5, LARGE, (50, 60))


def test_one_common_word_looks_at_more_messages_than_one_rare_word() -> None:
    """Messages with one common word differ little."""
    assert choose_budget(5, 100_000, (5_000,)).looked > choose_budget(5, 100_000, (300,)).looked


@given(SIZES, st.integers(1, 500), st.booleans())
def test_a_budget_fills_the_limit(documents: int, limit: int, is_explicit: bool) -> None:
    """Whatever the size, there is room for as many sessions, rows and texts as are asked for."""
    budget = choose_budget(limit, documents, (50, 60), is_explicit=is_explicit)

    assert min(budget.sessions, budget.texts, budget.pool // 4) >= limit
    assert min(budget) > 0


@given(st.dictionaries(st.integers(0, 200), st.integers(1, 4), max_size=40), st.integers(0, 50))
def test_the_fullest_blocks_are_those_of_a_sorted_list(hits: dict[int, int], limit: int) -> None:
    """Most hits first, of equals the newest."""
    every = sorted(hits, key=lambda block: (hits[block], block), reverse=True)

    assert set(_find_fullest(hits, limit)) == set(every[:limit])

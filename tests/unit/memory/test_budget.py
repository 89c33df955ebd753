"""Deciding: edits in order, all or nothing, within the budget of the final state."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.errors import Reason, Refused
from wellkept.memory.page import Add, Author, Page, Remove, Replace, Room, apply_edits

texts = st.text(alphabet="abc ", min_size=1, max_size=12)
edits = st.lists(
    st.builds(Add, texts) | st.builds(Remove, texts) | st.builds(Replace, texts, texts), min_size=1, max_size=5
)
entries = st.lists(texts.map(str.strip).filter(bool), max_size=5, unique=True).map(tuple)


def decided(page, steps, oldest_first=None):
    return apply_edits(page, steps, room=oldest_first and Room(oldest_first))


@given(entries, edits, st.integers(1, 40))
def test_an_accepted_page_fits_or_shrinks(existing, steps, limit):
    """Whatever is asked, an accepted page is within its limit, smaller than before, or unchanged."""
    page = Page(existing, limit)
    result = decided(page, steps)
    if not isinstance(result, Refused):
        new = Page(result.entries, limit)
        assert len(new.text) <= limit or len(new.text) < len(page.text) or new == page


@given(entries, edits, st.integers(1, 40))
def test_the_steps_of_a_change_lead_to_it(existing, steps, limit):
    """The ledger can rebuild every accepted page from its steps."""
    result = decided(Page(existing, limit), steps, oldest_first=list)
    if not isinstance(result, Refused):
        now = existing
        for step in (*result.steps, *result.overflow):
            now = step.apply(now)
            assert now is not None
        assert now == result.entries


def test_a_batch_is_measured_at_its_end():
    """A batch may pass through a state that is too long."""
    page = Page(("aaa", "bbb"), 9)

    result = decided(page, (Add("ccc"), Remove("aaa")))

    assert result.entries == ("bbb", "ccc")


def test_one_bad_step_refuses_all_and_is_named():
    """The refusal says which step and why."""
    refused = decided(Page(("aaa",), 99), (Add("bbb"), Remove("zzz"), Add("ccc")))

    assert refused.reason is Reason.BATCH
    assert "Step 2 of 3" in refused.error
    assert refused.detail["step"] == 2


def test_a_duplicate_on_a_page_over_its_limit_is_still_a_success():
    """Nothing is written, so nothing has to fit."""
    page = Page(("aaa", "bbb"), 5)

    assert decided(page, (Add("aaa"),)).entries == page.entries


def test_overflow_moves_the_oldest_first_and_never_the_new_one():
    """With an archive the entry changed longest ago makes room."""
    page = Page(("old", "mid", "new"), 16)

    result = decided(page, (Add("more"),), oldest_first=list)

    assert result.entries == ("mid", "new", "more")
    assert [step.before for step in result.overflow] == ["old"]
    assert [origin for _, origin in result.with_origins(Author(origin="agent"))] == ["agent", "overflow"]
    assert result.is_only_copy


def test_overflow_cannot_make_room_for_what_is_larger_than_the_page():
    """A text longer than the whole page is refused, and nothing is moved."""
    assert decided(Page(("old",), 5), (Add("x" * 6),), oldest_first=list).reason is Reason.OVER_BUDGET

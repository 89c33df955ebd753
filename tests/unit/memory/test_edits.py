"""Steps: every applied step can be undone, and any page can be reached from any other."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.memory.page import Step, steps_between

pages = st.lists(st.text(alphabet="abcde", min_size=1, max_size=2), max_size=7, unique=True).map(tuple)


def replayed(entries, steps):
    for step in steps:
        entries = step.apply(entries)
        assert entries is not None, step
    return entries


@given(pages, pages)
def test_steps_lead_from_one_page_to_the_other(old, new):
    """Applied in order, the steps turn the old page into the new one, order included."""
    assert replayed(old, steps_between(old, new)) == new


@given(pages, pages)
def test_steps_can_be_undone(old, new):
    """The inverse steps in reverse order give the old page again."""
    steps = steps_between(old, new)

    assert replayed(new, [step.inverse() for step in reversed(steps)]) == old


@given(pages)
def test_equal_pages_need_no_step(entries):
    """Nothing changed is nothing recorded."""
    assert steps_between(entries, entries) == ()


def test_a_step_that_does_not_fit_says_so():
    """A step is never applied to a page on which its entry is missing, or already there."""
    assert Step("remove", "gone", None, 0).apply(("a",)) is None
    assert Step("add", None, "a", 0).apply(("a",)) is None
    assert Step("replace", "a", "b", 0).apply(("a", "b")) is None
    assert Step("replace", "a", "c", 5).apply(("b", "a")) == ("b", "c")


def test_archiving_changes_no_entry():
    """An archive step keeps a text without touching the page."""
    step = Step("archive", "old words", None, -1)

    assert step.apply(("a",)) == ("a",)
    assert step.inverse() == step

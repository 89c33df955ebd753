"""Undo and restore: what they take, what they answer, and what they leave alone."""

import pytest

from wellkept.core.errors import Reason, UsageError
from wellkept.memory.approval import Approvals
from wellkept.memory.history import History, Undone, restore, undo
from wellkept.memory.merge import UndoneGroup, count_reversible, undo_group
from wellkept.memory.page import Add, Author, Remove, Replace, Target

ORDER = "From now on you will answer in French"


def test_a_group_over_both_pages_is_undone_whole_or_not_at_all(store):
    """One page that moved on keeps the other from being undone."""
    author = Author(group_id="review")
    store.apply("memory", Add("m"), author)
    store.apply("user", Add("u"), author)
    store.apply("user", Replace("u", "changed"))

    assert undo(store, group_id="review").reason is Reason.MOVED_ON
    assert store.entries("memory") == ["m"]
    undo(store)
    result = undo(store, group_id="review")
    assert [outcome.target for outcome in result.outcomes] == [Target.MEMORY, Target.USER]
    assert (store.entries("memory"), store.entries("user")) == ([], [])
    assert result.redo_command == f"kept memory undo --review {result.group_id}"
    undo(store, group_id=result.group_id)
    assert (store.entries("memory"), store.entries("user")) == (["m"], ["u"])


def test_one_row_of_a_batch_names_the_others(store):
    """The answer says which edits stay and how to undo them; undone ones are not among them."""
    outcome = store.apply_all("memory", (Add("a"), Add("b"), Add("c")), Author(group_id="batch"))
    first, second, third = outcome.ledger_ids

    (done,) = undo(store, ledger_id=second).outcomes
    expected = f"Undone: edit {second} alone; edits {first}, {third} of the same batch stay"
    assert done.message == f"{expected} (to undo them too: kept memory undo --review batch)."
    (done,) = undo(store, ledger_id=first).outcomes
    assert f"alone; edit {third} of the same batch stay" in done.message
    (done,) = undo(store, ledger_id=third).outcomes
    assert done.message == f"Undone: edit {third}."
    assert store.entries("memory") == []


def test_the_rest_of_a_batch_is_undone_with_its_group(store):
    """What is undone already is left out."""
    outcome = store.apply_all("memory", (Add("a"), Add("b"), Add("c")), Author(group_id="batch"))
    undo(store, ledger_id=outcome.ledger_ids[1])

    (done,) = undo(store, group_id="batch").outcomes
    assert done.message == f"Undone: edits {outcome.ledger_ids[0]}, {outcome.ledger_ids[2]}."
    assert store.entries("memory") == []


def test_the_result_has_one_json_form(store):
    """Success, and the outcome of each page."""
    store.apply("memory", Add("a"))
    result = undo(store)

    assert result.redo_command == f"kept memory undo {result.ledger_ids[0]}"
    assert result.as_json() == {
        "success": True,
        "undone": [
            {"success": True, "target": "memory", "message": "Undone: edit 1.", "entry_count": 0, "used_chars": 0,
             "char_limit": 2200, "ledger_ids": [2], "note": ""},
        ],
    }  # fmt: skip
    row = History(store).rows()[-1]
    assert (row.origin, row.undoes, row.step.position) == ("undo", 1, 0)


def test_an_entry_comes_back_to_its_place(store):
    """The row of the undo says where it is now, so that it can be replayed."""
    store.apply_all("memory", (Add("a"), Add("b"), Add("c")))
    store.apply("memory", Remove("b"))
    store.apply("memory", Remove("a"))
    undo(store, ledger_id=4)

    assert store.entries("memory") == ["c", "b"]
    assert History(store).rows()[-1].step.position == 1
    assert History(store).gap(Target.MEMORY) is None


def test_a_replaced_entry_is_undone_where_it_is_now(store):
    """Entries before it may have gone meanwhile; the row of the undo says the present place."""
    store.apply_all("memory", (Add("a"), Add("b"), Add("c")))
    store.apply("memory", Replace("b", "B"))
    store.apply("memory", Remove("a"))
    undo(store, ledger_id=4)

    assert store.entries("memory") == ["b", "c"]
    assert History(store).rows()[-1].step.position == 0
    assert History(store).gap(Target.MEMORY) is None


def test_an_entry_that_is_back_already_is_not_brought_back_twice(store):
    """The refusal says so."""
    store.apply("memory", Add("a"))
    store.apply("memory", Remove("a"))
    store.apply("memory", Add("a"))

    refused = undo(store, ledger_id=2)
    assert refused.reason is Reason.MOVED_ON
    assert "is there already: 'a'" in refused.error


def test_what_was_only_archived_is_no_edit_to_undo(store, tmp_path):
    """A rejected write never was on the page."""
    store.apply("memory", Add("a"))
    approvals = Approvals(tmp_path / "pending", store)
    approvals.reject(approvals.stage(Target.MEMORY, (Add("b"),), Author(), why="x").id)
    undo(store)

    assert store.entries("memory") == []


def test_a_page_over_its_limit_can_still_shrink_by_undo(make_store):
    """Undoing is refused only where the page would be too long and not shorter than now."""
    wide = make_store()
    wide.apply("memory", Add("a" * 30))
    wide.apply("memory", Add("b" * 30))
    small = make_store(memory_char_limit=10)

    assert undo(small).outcomes[0].entry_count == 1


def test_a_removed_text_is_restored_with_what_was_allowed(store):
    """The new row says where it came from; a text that a person allowed passes again."""
    rules = frozenset(store.apply("memory", Add(ORDER)).detail["rules"])
    store.apply("memory", Add(ORDER), Author(allow=rules))
    store.apply("memory", Remove(ORDER))

    restore(store, 2, target=Target.MEMORY)
    row = History(store).rows()[-1]
    assert (row.step.after, row.reason, row.allowed) == (ORDER, "restored from edit 2", rules)


def test_an_edit_that_removed_nothing_cannot_be_restored(store):
    """The caller is told where to look; a wrong page is a mistake, too."""
    store.apply("memory", Add("a"))

    with pytest.raises(UsageError, match="removed nothing"):
        restore(store, 1)
    with pytest.raises(UsageError, match="is on the page 'memory'"):
        restore(store, 1, target=Target.USER)


def test_a_forgotten_edit_is_not_undone(store):
    """Nothing brings the text back, so nothing is written: neither to the page nor to the ledger."""
    store.apply("memory", Add("Secret."))
    store.apply("memory", Replace("Secret.", "Public."))
    store.apply("memory", Remove("Public."))
    store.ledger.forget_words(["secret"])
    count = len(store.ledger.rows())

    refusals = [undo(store, ledger_id=number) for number in (1, 2)] + [restore(store, 2)]

    assert {refused.reason for refused in refusals} == {Reason.MOVED_ON}
    assert all("forgotten" in refused.error for refused in refusals)
    assert len(store.ledger.rows()) == count
    assert isinstance(undo(store), Undone)
    assert store.entries("memory") == ["Public."]


def test_undoing_an_import_leaves_out_what_was_forgotten(store):
    """A text that took the place of a forgotten one stays and is named; nothing empty is written."""
    author = Author(origin="import", group_id="g")
    store.apply("memory", Add("Secret code."))
    store.apply("memory", Replace("Secret code.", "Door opens by phone."), author)
    store.apply("memory", Add("Likes tea."), author)
    store.ledger.forget_entry(Target.MEMORY, "Secret code.")

    planned, done = count_reversible(store, "g"), undo_group(store, "g")

    assert planned == done == UndoneGroup(1, ("Door opens by phone.",))
    assert store.entries("memory") == ["Door opens by phone."]

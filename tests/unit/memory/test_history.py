"""The past of the pages: log, undo, gaps, the archive, a page as it was."""

import os

import pytest

from wellkept.core.errors import NotFound, Reason, Refused, Unreadable
from wellkept.memory.history import History, undo
from wellkept.memory.page import Add, Author, Change, Remove, Replace, Target, page_hash, replay
from wellkept.storage.connections import sql_migrations
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.sqlite import Database


def texts(store, target="memory"):
    return store.entries(target)


def test_rows_say_who_changed_what(store):
    """Each accepted edit appends one row, with the hashes of the page before and after."""
    store.apply("memory", Add("one"), Author(origin="agent", session_id="s1", reason="asked"))
    store.apply("memory", Replace("one", "two"))

    first, second = History(store).rows()
    assert first.as_json() | {"time": None, "group_id": None} == {
        "id": 1, "time": None, "target": "memory", "action": "add", "before": None, "after": "one", "origin": "agent",
        "session_id": "s1", "user_id": "owner", "group_id": None, "position": 0, "reason": "asked", "allowed": [],
        "undoes": None, "undone": False,
    }  # fmt: skip
    assert (second.step.action, second.step.before, second.step.after) == ("replace", "one", "two")
    assert first.page_before == page_hash(())
    assert first.page_after == second.page_before == page_hash(("one",))


def test_a_refusal_leaves_no_row(store):
    """Only accepted edits are in the ledger; a duplicate is not an edit."""
    store.apply("memory", Add("one"))
    store.apply("memory", Add("one"))
    store.apply("memory", Remove("absent"))

    assert len(History(store).rows()) == 1


def test_undo_walks_back(store):
    """Repeating it takes back one edit after the other, newest first."""
    for text in ("one", "two"):
        store.apply("memory", Add(text))
    store.apply("memory", Remove("one"))

    states = []
    for _ in range(3):
        assert not isinstance(undo(store), Refused)
        states.append(texts(store))
    assert states == [["one", "two"], ["one"], []]
    assert undo(store).reason is Reason.NO_MATCH


def test_undoing_an_undo_redoes(store):
    """An undo is an edit with an id of its own; the id leads back."""
    store.apply("memory", Add("one"))
    (outcome,) = undo(store).outcomes
    undo(store, ledger_id=outcome.ledger_ids[0])

    assert texts(store) == ["one"]
    undo(store)
    assert texts(store) == []


def test_a_batch_is_undone_whole(store):
    """One batch is one group, and positions come back as they were."""
    store.apply_all("memory", (Add("a"), Add("b"), Add("c")))
    store.apply_all("memory", (Remove("b"), Replace("c", "C"), Add("d")))
    undo(store)

    assert texts(store) == ["a", "b", "c"]


def test_undo_refuses_when_the_page_moved_on(store):
    """The refusal says why, and nothing changes."""
    store.apply("memory", Add("one"))
    store.apply("memory", Replace("one", "two"))

    refused = undo(store, ledger_id=1)

    assert refused.reason is Reason.MOVED_ON
    assert "'one'" in refused.error
    assert texts(store) == ["two"]


def test_an_edit_by_hand_is_undone_by_its_id_only(store, folder):
    """`undo` alone undoes what kept wrote; where a later edit by hand is in the way, it says so."""
    store.apply("memory", Add("one"))
    (folder / "MEMORY.md").write_text("one, better", encoding="utf-8")

    assert undo(store).reason is Reason.MOVED_ON
    assert texts(store) == ["one, better"]
    for row in [row for row in reversed(History(store).rows()) if row.origin == "outside"]:
        assert not isinstance(undo(store, ledger_id=row.id), Refused)
    assert texts(store) == ["one"]
    assert not isinstance(undo(store), Refused)
    assert texts(store) == []


def test_an_undone_edit_is_not_undone_twice(store):
    """Naming it again is refused with the way to bring it back."""
    store.apply("memory", Add("one"))
    undo(store)

    assert undo(store, ledger_id=1).reason is Reason.MOVED_ON


def test_undo_of_one_page_leaves_the_other(store):
    """With a target only that page's edits are looked at."""
    store.apply("memory", Add("m"))
    store.apply("user", Add("u"))
    undo(store, target=Target.MEMORY)

    assert (texts(store), texts(store, "user")) == ([], ["u"])


def test_undo_respects_the_limit(make_store):
    """What came off the page goes back only if it fits."""
    make_store().apply("memory", Add("a" * 50))
    make_store().apply("memory", Remove("aaa"))
    small = make_store(memory_char_limit=40)
    small.apply("memory", Add("b" * 10))

    assert undo(small, ledger_id=2).reason is Reason.OVER_BUDGET


def test_unknown_ids_are_not_found(store):
    """An id that the ledger does not know is the caller's mistake."""
    with pytest.raises(NotFound):
        undo(store, ledger_id=99)
    with pytest.raises(NotFound):
        undo(store, group_id="nothing")


def test_a_row_whose_page_never_came_is_left_out_and_then_voided(store, folder):
    """A crash between ledger and page leaves a row that no reader counts and the next writer voids."""
    store.apply("memory", Add("one"))
    change = store.page("memory").apply(Add("lost"))
    store.ledger.append(
        Target.MEMORY,
        Change(change.page.entries, change.steps),
        ("one",),
        author=Author(),
        now=store.clock.now().timestamp(),
    )

    assert len(History(store).rows()) == 1
    assert History(store).gap(Target.MEMORY) is None
    store.apply("memory", Add("two"))
    assert [row.step.after for row in History(store).rows()] == ["one", "two"]
    assert [row.step.after for row in store.ledger.rows()] == ["one", "two"]


def test_an_edit_that_was_taken_off_the_page_by_hand_keeps_its_row(store, folder):
    """A page that is as it was before its last edit, but written since, was changed from outside: nothing is voided."""
    store.apply("memory", Add("one"))
    store.apply("memory", Add("two"))
    rewritten(folder / "MEMORY.md", "one")

    assert [row.step.after for row in History(store).rows()] == ["one", "two"]
    assert "after edit 2" in History(store).gap(Target.MEMORY)
    assert [row.step.before for row in History(store).archive("two")] == []
    store.apply("memory", Add("three"))
    assert [(row.step.action, row.origin) for row in History(store).rows()][2:] == [
        ("remove", "outside"),
        ("add", "user"),
    ]
    assert [row.step.before for row in History(store).archive("two")] == ["two"]


def rewritten(path, text):
    """Write the file as another program would, some time later."""
    later = path.stat().st_mtime_ns + 1_000_000_000
    path.write_text(text)
    os.utime(path, ns=(later, later))


@pytest.mark.parametrize(
    "broken", [lambda page: page.write_bytes(b"caf\xe9"), lambda page: (page.unlink(), page.mkdir())]
)
def test_the_past_can_be_seen_where_the_page_cannot(store, folder, broken):
    """The log, the archive and the page as it was need no readable page."""
    store.apply("memory", Add("one"))
    store.apply("memory", Replace("one", "two"))
    broken(folder / "MEMORY.md")

    history = History(store)
    assert [row.step.after for row in history.rows()] == ["one", "two"]
    assert [row.step.before for row in history.archive("one")] == ["one"]
    assert history.at(Target.MEMORY, history.row(1).time) == ("one",)
    with pytest.raises(Unreadable):
        history.gap(Target.MEMORY)


def test_rows_from_before_stamps_are_read(folder, make_store):
    """A ledger of the first version is opened, keeps its rows, and takes new ones."""
    folder.mkdir()
    (folder / "MEMORY.md").write_text("one")
    (first, *_) = sql_migrations("wellkept.memory")
    old = Database(folder / "ledger.db", application_id=APPLICATION_ID, migrations=[first], durability="full")
    row = (1, "g", 1.0, "memory", "add", None, "one", 0, "user", "owner", page_hash(()), page_hash(("one",)))
    with old.writing() as connection:
        connection.execute(
            "INSERT INTO edits (write_id, group_id, time, target, action, before, after, position, origin, user_id,"
            " page_before, page_after) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
    old.close()

    store = make_store()
    store.apply("memory", Add("two"))
    assert [(row.step.after, row.page_stamp is None) for row in History(store).rows()] == [
        ("one", True),
        ("two", False),
    ]


def test_a_change_from_outside_is_a_gap_until_the_next_edit(store, folder):
    """Readers say it, the next writer records it as outside."""
    store.apply("memory", Add("one"))
    (folder / "MEMORY.md").write_text("one\n§\nby hand")

    assert "after edit 1" in History(store).gap(Target.MEMORY)
    store.apply("memory", Add("two"))
    assert History(store).gap(Target.MEMORY) is None
    assert replay(store.ledger.rows(Target.MEMORY)) == ("one", "by hand", "two")


def test_readers_write_nothing(store, folder):
    """Looking back on a page that was never written makes no ledger."""
    assert History(store).rows() == []
    assert History(store).archive("x") == []
    assert not (folder / "ledger.db").exists()


def test_a_page_as_it_was(store, clock):
    """Each moment gives the page of that moment."""
    moments = []
    for edit in (Add("a"), Add("b"), Replace("a", "A"), Remove("b")):
        store.apply("memory", edit)
        moments.append(clock.now().timestamp())

    history = History(store)
    assert [history.at(Target.MEMORY, moment) for moment in moments] == [("a",), ("a", "b"), ("A", "b"), ("A",)]
    assert history.at(Target.MEMORY, 0.0) == ()


def test_entries_have_a_story(store):
    """Created, last changed, by whom: a replaced entry keeps its beginning."""
    store.apply("memory", Add("old"), Author(origin="agent"))
    store.apply("memory", Replace("old", "new"), Author(origin="user"))

    metadata = History(store).metadata(Target.MEMORY)["new"]
    assert metadata.created < metadata.changed
    assert metadata.origin == "user"


def test_the_archive_is_what_left_the_page(store):
    """Removed and replaced texts are found by their words; live ones are not."""
    for text in ("Deploys on Fridays", "Uses vim"):
        store.apply("memory", Add(text))
    store.apply("memory", Replace("vim", "Uses helix"))
    store.apply("memory", Remove("Fridays"))

    found = History(store).archive
    assert [row.step.before for row in found()] == ["Deploys on Fridays", "Uses vim"]
    assert [row.step.before for row in found("FRIDAYS deploys")] == ["Deploys on Fridays"]
    store.apply("memory", Add("Uses vim"))
    assert [row.step.before for row in found("vim")] == []

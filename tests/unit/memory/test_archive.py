"""Nothing that a person orders is lost: a full page moves its least useful entries to an archive that answers read."""

import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wellkept.core.errors import Reason, Refused
from wellkept.core.ids import SourceName
from wellkept.core.text import dumps
from wellkept.memory.history import History, restore, undo, view_page
from wellkept.memory.merge import apply_merge, plan_merge
from wellkept.memory.page import Add, Author, Page, Replace, Room, Target, apply_edits, replay
from wellkept.memory.rewrite import export_pages, import_pages
from wellkept.memory.settings import MemorySettings
from wellkept.memory.store import MemoryStore

AGENT = Author(origin="agent")


def test_a_person_is_never_refused_for_space(make_store, folder):
    """The entry changed longest ago moves to a file like the page; the answer names it and how to bring it back."""
    store = make_store(memory_char_limit=20)
    store.apply_all("memory", (Add("the old one"), Add("two")))

    outcome = store.apply("memory", Add("three"))

    assert store.entries("memory") == ["two", "three"]
    assert store.archived("memory") == ["the old one"]
    assert (folder / "archive/MEMORY.md").read_text() == "the old one"
    assert outcome.note == "Moved to the archive to make room: the old one (back: `kept memory restore 4`)"


def test_a_model_is_refused_so_that_it_consolidates(make_store):
    """Its answer to a full page is to merge entries, and nothing moves."""
    store = make_store(memory_char_limit=9)
    store.apply("memory", Add("aaa"))

    assert store.apply("memory", Add("b" * 9), AGENT).reason is Reason.OVER_BUDGET
    assert store.archived("memory") == []


def test_what_a_later_entry_says_too_moves_first(make_store):
    """A repetition is less useful than what nothing else says, whatever their age."""
    store = make_store(memory_char_limit=70)
    store.apply_all(
        "memory", [Add(f"{text}") for text in ("lives in Bergen", "is at the harbour", "is at the harbour office")]
    )

    store.apply("memory", Add("has a dog, Rufus"))

    assert store.archived("memory") == ["is at the harbour"]


def test_what_no_page_can_hold_goes_to_the_archive_itself(make_store):
    """The entries of the page stay, because moving all of them would not make room either."""
    store = make_store(memory_char_limit=9)
    store.apply("memory", Add("aaa"))

    outcome = store.apply("memory", Add("b" * 10))

    assert not isinstance(outcome, Refused)
    assert (store.entries("memory"), store.archived("memory")) == (["aaa"], ["b" * 10])
    assert not isinstance(undo(store), Refused)
    assert (store.entries("memory"), store.archived("memory")) == (["aaa"], [])


def test_undo_takes_back_the_entry_and_the_moves_it_caused(make_store):
    """By the id of the edit, by its group, and again in the other direction."""
    store = make_store(memory_char_limit=20)
    store.apply_all("memory", (Add("aaaaaaa"), Add("bbbbbbb")))
    written = store.apply("memory", Add("ccccccc"))

    undone = undo(store, ledger_id=written.ledger_ids[0])
    assert (store.entries("memory"), store.archived("memory")) == (["aaaaaaa", "bbbbbbb"], [])

    undo(store, group_id=undone.group_id)
    assert (store.entries("memory"), store.archived("memory")) == (["bbbbbbb", "ccccccc"], ["aaaaaaa"])


def test_restore_brings_an_entry_back_and_another_one_makes_room(make_store):
    """A person's restore is an order like any other."""
    store = make_store(memory_char_limit=20)
    store.apply_all("memory", (Add("aaaaaaa"), Add("bbbbbbb")))
    moved = store.apply("memory", Add("ccccccc")).ledger_ids[-1]

    restore(store, moved)

    assert store.entries("memory") == ["ccccccc", "aaaaaaa"]
    assert store.archived("memory") == ["bbbbbbb"]


def test_a_replacement_that_is_too_long_makes_room_too(make_store):
    """Whatever the edit is."""
    store = make_store(memory_char_limit=20)
    store.apply_all("memory", (Add("aaaaaaa"), Add("bbbbbbb")))

    store.apply("memory", Replace("bbb", "b" * 15))

    assert (store.entries("memory"), store.archived("memory")) == (["b" * 15], ["aaaaaaa"])


def test_the_frozen_snapshot_does_not_contain_the_archive(make_store):
    """What moved is read by answers, and is not in the prompt."""
    store = make_store(memory_char_limit=20)
    store.apply_all("memory", (Add("aaaaaaa"), Add("bbbbbbb"), Add("ccccccc")))

    assert "aaaaaaa" not in store.load()[Target.MEMORY]
    assert view_page(store, Target.MEMORY).as_json()["archived"] == ["aaaaaaa"]


def test_an_archive_that_cannot_be_read_refuses_the_move_and_nothing_else(make_store, folder):
    """Nothing is overwritten; a write that moves nothing goes on."""
    store = make_store(memory_char_limit=9)
    store.apply("memory", Add("aaa"))
    (folder / "archive").mkdir()
    (folder / "archive/MEMORY.md").write_bytes(b"caf\xe9")

    with pytest.raises(Exception, match="not UTF-8"):
        store.apply("memory", Add("bbbbbbb"))
    store.apply("memory", Add("bbb"))

    assert store.entries("memory") == ["aaa", "bbb"]
    assert (folder / "archive/MEMORY.md").read_bytes() == b"caf\xe9"


def test_the_archive_of_a_project_is_its_own(make_store, folder):
    """It moves with the folder of the project's page."""
    here = make_store(project_char_limit=9).for_project("demo-12345678")
    here.apply_all("project", (Add("aaa"), Add("bbbbbb")))

    here.rename_project("demo-12345678", "forgotten-12345678")

    assert (folder / "archive/projects/forgotten-12345678/MEMORY.md").read_text() == "aaa"


texts = st.text(alphabet="abcdef gh", min_size=1, max_size=25)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from([Target.MEMORY, Target.USER]), texts), min_size=1, max_size=12))
def test_no_accepted_text_becomes_unfindable(orders):
    """Whatever a person adds to full pages, every accepted text is on its page or in its archive, and none twice."""
    with tempfile.TemporaryDirectory() as folder:
        store = MemoryStore(Path(folder) / "m", MemorySettings(memory_char_limit=30, user_char_limit=12))
        accepted, states = set(), []
        for target, text in orders:
            states.append({page: (store.entries(page), store.archived(page)) for page in store.targets})
            outcome = store.apply(target, Add(text))
            assert not isinstance(outcome, Refused) or outcome.reason is Reason.EMPTY
            if isinstance(outcome, Refused) or not outcome.ledger_ids:
                states.pop()
            accepted |= set() if isinstance(outcome, Refused) else {(target, text.strip())}
        for page in store.targets:
            kept = [*store.entries(page), *store.archived(page)]
            assert len(kept) == len(set(kept))
            assert set(kept) == {text for target, text in accepted if target is page}
            assert replay(History(store).rows(page)) == tuple(store.entries(page))
            assert len(store.page(page).text) <= store.limit(page)
        for state in reversed(states):
            assert not isinstance(undo(store), Refused)
            for page in store.targets:
                assert store.entries(page) == state[page][0]
                assert sorted(store.archived(page)) == sorted(state[page][1])
        store.close()


def test_pinned_entries_leave_no_room():
    """Where nothing may move, the new text goes to the archive."""
    change = apply_edits(Page(("pinned",), 8), (Add("new"),), room=Room(lambda _: [], is_never_refused=True))

    assert (change.entries, change.archived) == (("pinned",), ("new",))


PIN = Author(reason="pinned")


def test_a_pinned_entry_stays_on_its_page_whatever_its_age(make_store):
    """The next one makes room instead; an entry keeps its pin when its text is replaced, and undo takes it back."""
    store = make_store(memory_char_limit=20)
    store.apply_all("memory", (Add("aaaaaaa"), Add("bbbbbbb")))
    assert store.pin(Target.MEMORY, "aaa", PIN).message == "Pinned."
    store.apply("memory", Replace("aaa", "AAAAAAA"))

    store.apply("memory", Add("ccccccc"))
    assert store.entries("memory") == ["AAAAAAA", "ccccccc"]

    store.pin(Target.MEMORY, "AAA", Author(reason="unpinned"))
    store.apply("memory", Add("ddddddd"))
    assert store.entries("memory") == ["ccccccc", "ddddddd"]
    for _ in range(2):
        assert not isinstance(undo(store), Refused)
    store.apply("memory", Add("eeeeeee"))
    assert store.entries("memory") == ["AAAAAAA", "eeeeeee"]


def test_a_pin_is_no_change_of_the_entry(make_store):
    """It confirms nothing, is no version of the text, and leaves page, age and ledger as they are."""
    store = make_store()
    source = SourceName("web:https://notes.example")
    store.apply("memory", Add("one"), Author(origin="agent", sources={"one": source}))
    changed = History(store).metadata(Target.MEMORY)["one"].changed
    store.pin(Target.MEMORY, "one", PIN)

    metadata = History(store).metadata(Target.MEMORY)["one"]
    assert (metadata.changed, metadata.is_pinned, metadata.is_verified) == (changed, True, False)
    assert store.list_unverified(Target.MEMORY) == {"one": source}
    assert store.pin(Target.MEMORY, "one", PIN).ledger_ids == ()
    assert store.ledger.last_change(Target.MEMORY, "one") == 1
    assert History(store).gap(Target.MEMORY) is None
    assert replay(History(store).rows(Target.MEMORY)) == ("one",)


def test_an_export_holds_the_archive_and_an_import_brings_it_back(make_store, tmp_path):
    """Not onto the page: to the archive, where undo takes it away again."""
    store = make_store(memory_char_limit=9)
    store.apply_all("memory", (Add("aaa"), Add("bbbbbb")))
    text = dumps(export_pages(store).as_json())

    with closing(MemoryStore(tmp_path / "other")) as other:
        (imported, _) = import_pages(other, text).values()

        assert (other.entries("memory"), other.archived("memory")) == (["bbbbbb"], ["aaa"])
        assert not isinstance(undo(other, group_id=imported.group_id), Refused)
        assert (other.entries("memory"), other.archived("memory")) == ([], [])


def test_a_merge_brings_what_had_made_room_elsewhere(make_store, tmp_path):
    """To the archive here; repeating it changes nothing."""
    with closing(MemoryStore(tmp_path / "other", MemorySettings(memory_char_limit=9))) as other:
        other.apply_all("memory", (Add("aaa"), Add("bbbbbb")))
        store = make_store()
        for _ in range(2):
            apply_merge(store, other, Target.MEMORY, Author(origin="restore"))

        assert (store.entries("memory"), store.archived("memory")) == (["bbbbbb"], ["aaa"])
        assert plan_merge(store, other, Target.MEMORY).changes_nothing

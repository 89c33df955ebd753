"""`memory undo` undoes the newest edit of kept, whatever a person writes into the pages by hand."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from wellkept.core.errors import Reason, Refused
from wellkept.memory.history import undo
from wellkept.memory.page import Add, Remove, Replace, Target
from wellkept.memory.store import MemoryStore

HEAVY = os.environ.get("KEPT_HEAVY") == "1"
PAGES = (Target.MEMORY, Target.USER)
words = st.text(alphabet="abcdef", min_size=1, max_size=3)
edits = st.builds(Add, words) | st.builds(Remove, words) | st.builds(Replace, words, words)
FILES = {Target.MEMORY: "MEMORY.md", Target.USER: "USER.md"}


def test_an_edit_by_hand_of_the_other_page_stays(folder, store):
    """The answer to an add promised to undo the add."""
    store.apply("memory", Add("by kept"))
    (folder / "USER.md").write_text("by hand")

    assert not isinstance(undo(store), Refused)
    assert (store.entries("memory"), store.entries("user")) == ([], ["by hand"])


def test_a_later_edit_by_hand_of_the_same_page_stays(folder, store):
    """Only the entry of the add goes."""
    store.apply("memory", Add("by kept"))
    (folder / "MEMORY.md").write_text("by kept\n§\nby hand")

    assert not isinstance(undo(store), Refused)
    assert store.entries("memory") == ["by hand"]


def test_an_earlier_edit_by_hand_stays(folder, store):
    """What was on the page before the add is not touched, however often undo is called."""
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("by hand")
    store.apply("memory", Add("by kept"))

    assert not isinstance(undo(store), Refused)
    assert undo(store).reason is Reason.NO_MATCH
    assert store.entries("memory") == ["by hand"]


def test_a_lost_ledger_does_not_empty_the_page(folder, store):
    """Without a record of it nothing is undone, and the answer names the next step."""
    store.apply("memory", Add("one"))
    store.apply("memory", Add("two"))
    store.close()
    for path in folder.glob("ledger.db*"):
        path.unlink()

    refused = undo(store)

    assert (refused.reason, store.entries("memory")) == (Reason.NO_MATCH, ["one", "two"])
    assert "kept memory log" in refused.remedy
    store.apply("memory", Add("three"))
    assert not isinstance(undo(store), Refused)
    assert undo(store).reason is Reason.NO_MATCH
    assert store.entries("memory") == ["one", "two"]


class Promise(RuleBasedStateMachine):
    """Edits of kept, edits by hand and undos; the reference knows texts only, no positions and no ledger."""

    def __init__(self):
        super().__init__()
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        self.pages = {page: [] for page in PAGES}
        self.open_edits = []

    @initialize()
    def open(self):
        self.store = MemoryStore(self.folder)

    @rule(page=st.sampled_from(PAGES), batch=st.lists(edits, min_size=1, max_size=3))
    def edit(self, page, batch):
        outcome = self.store.apply_all(page, batch)
        if not isinstance(outcome, Refused) and outcome.change.steps:
            pairs = [(step.before, step.after) for step in outcome.change.steps]
            self.open_edits.append((page, pairs))
            for before, after in pairs:
                self.change(self.pages[page], before, after)

    @rule(page=st.sampled_from(PAGES), entries=st.lists(words, unique=True, max_size=4))
    def write_by_hand(self, page, entries):
        path = self.folder / FILES[page]
        stamp = path.stat().st_mtime_ns if path.exists() else 0
        path.write_text("\n§\n".join(entries))
        os.utime(path, ns=(stamp + 1_000_000, stamp + 1_000_000))  # some file systems have coarse clocks
        self.pages[page] = list(entries)

    @rule()
    def undo_newest(self):
        result = undo(self.store)
        if not self.open_edits:
            assert result.reason is Reason.NO_MATCH
            return
        page, pairs = self.open_edits[-1]
        expected = list(self.pages[page])
        if all(self.change(expected, after, before) for before, after in reversed(pairs)):
            assert not isinstance(result, Refused), result
            self.pages[page] = expected
            self.open_edits.pop()
        else:
            assert result.reason is Reason.MOVED_ON

    @staticmethod
    def change(entries, old, new):
        """Replace `old` by `new` in place; False where the entries do not allow it."""
        if (old is not None and old not in entries) or (new is not None and new in entries):
            return False
        if old is not None:
            entries.remove(old)
        if new is not None:
            entries.append(new)
        return True

    @rule()
    def lose_the_ledger(self):
        self.store.close()
        for path in self.folder.glob("ledger.db*"):
            path.unlink()
        self.open_edits.clear()

    @invariant()
    def the_pages_hold_what_the_reference_holds(self):
        if hasattr(self, "store"):
            for page in PAGES:
                assert sorted(self.store.entries(page)) == sorted(self.pages[page])

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.folder, ignore_errors=True)


TestPromise = Promise.TestCase
TestPromise.settings = settings(
    max_examples=400 if HEAVY else 20, stateful_step_count=40 if HEAVY else 20, deadline=None
)

"""A model of the pages: whatever is done, the store agrees with a simple list, and so does the ledger."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wellkept.core.errors import Refused
from wellkept.memory.history import History, undo
from wellkept.memory.page import Add, Remove, Replace, Target, page_hash, replay
from wellkept.memory.settings import MemorySettings
from wellkept.memory.store import MemoryStore

HEAVY = os.environ.get("KEPT_HEAVY") == "1"
LIMIT = 40
words = st.text(alphabet="abc§", min_size=1, max_size=9)
edits = st.builds(Add, words) | st.builds(Remove, words) | st.builds(Replace, words, words)
targets = st.sampled_from(list(Target))


class Reference:
    """The rules of the spec on plain lists, without files, locks or a ledger."""

    def __init__(self):
        self.pages = {target: [] for target in Target}
        self.done = []

    def apply(self, target, batch):
        before = list(self.pages[target])
        page = list(before)
        for edit in batch:
            page = self.edited(page, edit)
            if page is None:
                return False
        size, was = len("\n§\n".join(page)), len("\n§\n".join(before))
        if page != before and size > LIMIT and size >= was:
            return False
        steps = self.steps(before, batch)
        if steps:
            self.done.append((target, before, page))
        self.pages[target] = page
        return True

    def steps(self, page, batch):
        changed = False
        for edit in batch:
            after = self.edited(page, edit)
            changed = changed or after != page
            page = after
        return changed

    @staticmethod
    def edited(page, edit):
        if isinstance(edit, Add | Replace) and not edit.text.strip("§"):
            return None
        if isinstance(edit, Add):
            return page if edit.text in page else [*page, edit.text]
        hits = [entry for entry in page if edit.needle in entry]
        if len(hits) != 1:
            return None
        if isinstance(edit, Remove) or (edit.text in page and edit.text != hits[0]):
            return [entry for entry in page if entry != hits[0]]
        return [edit.text if entry == hits[0] else entry for entry in page]


class Pages(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        self.reference = Reference()

    @initialize()
    def open(self):
        limits = MemorySettings(
            memory_char_limit=LIMIT, user_char_limit=LIMIT, project_char_limit=LIMIT, overflow="refuse"
        )
        self.store = MemoryStore(self.folder, limits, project="demo-12345678")

    @rule(page=targets, edit=edits)
    def one(self, page, edit):
        self.compare(page, (edit,))

    @rule(page=targets, batch=st.lists(edits, min_size=2, max_size=4))
    def several(self, page, batch):
        self.compare(page, tuple(batch))

    def compare(self, target, batch):
        outcome = self.store.apply_all(target, batch)

        assert self.reference.apply(target, batch) is not isinstance(outcome, Refused), (batch, outcome)

    @precondition(lambda self: self.reference.done)
    @rule()
    def take_back(self):
        target, before, after = self.reference.done[-1]
        result = undo(self.store)
        if self.reference.pages[target] == after and len("\n§\n".join(before)) <= LIMIT:
            assert not isinstance(result, Refused), result
            self.reference.done.pop()
            self.reference.pages[target] = before

    @precondition(lambda self: self.reference.done)
    @rule()
    def take_back_and_bring_again(self):
        result = undo(self.store)
        if not isinstance(result, Refused):
            for outcome in result.outcomes:
                for ledger_id in reversed(outcome.ledger_ids):
                    assert not isinstance(undo(self.store, ledger_id=ledger_id), Refused)

    @rule()
    def open_again(self):
        self.store.close()
        self.open()

    @invariant()
    def the_files_agree_with_the_model(self):
        if not hasattr(self, "store"):
            return
        for target in Target:
            assert self.store.entries(target) == self.reference.pages[target]

    @invariant()
    def the_ledger_rebuilds_the_pages(self):
        if not hasattr(self, "store") or not (self.folder / "ledger.db").exists():
            return
        for target in Target:
            entries = tuple(self.reference.pages[target])
            assert replay(self.store.ledger.rows(target)) == entries
            rows = History(self.store).rows(target)
            assert not rows or rows[-1].page_after == page_hash(entries)
            assert History(self.store).gap(target) is None

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.folder, ignore_errors=True)


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=300 if HEAVY else 25, stateful_step_count=50 if HEAVY else 25, deadline=None)

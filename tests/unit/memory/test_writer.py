"""The write cycle: what is checked and recorded in which order, and what a failure leaves behind."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from wellkept.core.errors import Busy, Reason, Refused, StorageError
from wellkept.core.events import MemoryWritten, Warned
from wellkept.core.tools import ToolContext
from wellkept.memory.approval import Approvals
from wellkept.memory.history import History
from wellkept.memory.ledger import SQL, Ledger
from wellkept.memory.page import Add, Author, Change, Remove, Target
from wellkept.memory.settings import MemorySettings
from wellkept.memory.store import FilePages, MemoryStore, Storage
from wellkept.memory.tool import MemoryTool


class FailingPages(FilePages):
    """Page files on a disk that refuses the next replacement."""

    fails = False

    def replace(self, target, text, *, expected):
        if self.fails:
            raise StorageError("the disk is full", "make room")
        super().replace(target, text, expected=expected)


class FailingLedger(Ledger):
    """A ledger that cannot be written."""

    def append(self, *_args, **_options):
        raise StorageError("the ledger is broken", "mend it")


@pytest.fixture
def failing(folder, clock):
    heard = []
    pages = FailingPages(folder)
    store = MemoryStore(Storage(pages, Ledger(folder / "ledger.db")), clock=clock, sink=heard.append)
    store.heard = heard
    yield store, pages
    store.close()


def test_a_row_whose_page_could_not_be_written_does_not_count(failing):
    """The error reaches the caller, no event is sent, and the next write voids the row."""
    store, pages = failing
    store.apply("memory", Add("one"))
    store.heard.clear()
    pages.fails = True

    with pytest.raises(StorageError, match="disk is full"):
        store.apply("memory", Add("lost"))
    assert store.heard == []
    assert [row.step.after for row in store.ledger.rows()] == ["one", "lost"]
    assert [row.step.after for row in History(store).rows()] == ["one"]
    pages.fails = False
    store.apply("memory", Add("two"))
    assert [row.step.after for row in store.ledger.rows()] == ["one", "two"]
    assert store.entries("memory") == ["one", "two"]


def test_a_drifted_page_adds_no_rows(store, folder):
    """Drift is found before the ledger is settled."""
    store.apply("memory", Add("one"))
    (folder / "MEMORY.md").write_text("one\n§\nfine\n§§\ntwo")

    assert store.apply("memory", Add("three")).reason is Reason.DRIFT
    assert [row.step.after for row in store.ledger.rows()] == ["one"]


def test_a_page_changed_under_the_lock_by_another_program_is_kept(store, folder):
    """An editor that knows no lock loses nothing; the caller is asked to try again."""
    store.apply("memory", Add("one"))

    def decide(page):
        (folder / "MEMORY.md").write_text("by hand")
        return Change(("ours",), page.apply(Add("ours")).steps)

    with pytest.raises(Busy, match="another program"):
        store.write(Target.MEMORY, decide, Author())
    assert store.entries("memory") == ["by hand"]


def test_a_disk_that_lies_is_found_out(folder):
    """What was written is read back; an edit is never reported as saved when it is not."""
    pages = FilePages(folder, write=lambda path, data: path.write_bytes(data[:-1]))
    store = MemoryStore(Storage(pages, Ledger(folder / "ledger.db")))

    with pytest.raises(StorageError, match="does not hold what was written"):
        store.apply("memory", Add("one"))
    store.close()


def test_closing_leaves_one_file(store, folder):
    """The write-ahead log is gone when the ledger is closed; the next use opens it again."""
    store.apply("memory", Add("one"))
    store.close()

    assert sorted(path.name for path in folder.glob("ledger.db*")) == ["ledger.db"]
    assert len(History(store).rows()) == 1


def test_an_entry_as_long_as_the_page_is_no_drift(make_store, folder):
    """Only one that is longer than the limit is a sign of an outside append."""
    store = make_store(memory_char_limit=20)
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("x" * 20)

    assert not isinstance(store.apply("memory", Remove("x")), Refused)


def test_nothing_to_change_writes_nothing(store, folder):
    """A duplicate touches neither the file nor the ledger, and sends no event."""
    store.apply("memory", Add("one"))
    stamp = (folder / "MEMORY.md").stat().st_mtime_ns

    outcome = store.apply("memory", Add("one"))

    assert outcome.ledger_ids == ()
    assert (folder / "MEMORY.md").stat().st_mtime_ns == stamp
    assert len(store.ledger.rows()) == 1


def test_archiving_leaves_the_file_alone(store, folder):
    """A text that only goes to the archive rewrites no page."""
    store.apply("memory", Add("one"))
    stamp = (folder / "MEMORY.md").stat().st_mtime_ns

    store.archive(Target.MEMORY, ["old words"], Author())

    assert (folder / "MEMORY.md").stat().st_mtime_ns == stamp
    assert [row.step.before for row in History(store).archive("old")] == ["old words"]


def test_an_edit_without_its_ledger_warns_once(folder, clock):
    """The page has it, the event names no row, and the warning says what is lost."""
    heard = []
    storage = Storage(FilePages(folder), FailingLedger(folder / "ledger.db"))
    store = MemoryStore(storage, clock=clock, sink=heard.append)

    outcome = store.apply("memory", Add("one"), Author(origin="agent", session_id="s1"))

    assert not isinstance(outcome, Refused)
    assert outcome.note == "the edit is not in the ledger and cannot be undone: the ledger is broken"
    (event,) = [event for event in heard if isinstance(event, MemoryWritten)]
    assert (event.ledger_id, event.origin, event.session_id, event.target) == (None, "agent", "s1", "memory")
    assert len([event for event in heard if isinstance(event, Warned)]) == 1
    store.close()


def test_every_row_of_a_write_knows_the_stamp_of_the_page_before_it(store, folder):
    """The stamp distinguishes an untouched page from one that was written back by hand."""
    store.apply("memory", Add("one"))
    stamp = (folder / "MEMORY.md").stat().st_mtime_ns
    store.apply("memory", Add("two"))

    assert [row.page_stamp for row in store.ledger.rows()] == [0, stamp]


def test_a_lock_is_waited_for_as_long_as_the_settings_say(folder, clock):
    """Readers do not wait."""
    store = MemoryStore(folder, MemorySettings(lock_timeout_seconds=0.05), clock=clock)
    store.apply("memory", Add("one"))
    with store.pages.lock(Target.MEMORY, timeout_seconds=5):
        with pytest.raises(Busy):
            store.apply("memory", Remove("one"))
        assert store.entries("memory") == ["one"]
        assert not isinstance(store.apply("user", Add("two")), Refused)
    store.close()


def test_backups_go_by_their_number(store, folder):
    """The eleventh lets the oldest go, not the one whose name sorts first."""
    folder.mkdir(parents=True)
    for number in (5, *range(10, 19)):
        store.pages.back_up(Target.MEMORY, f"copy {number}".encode(), epoch=number)
    assert store.pages.back_up(Target.MEMORY, b"new", epoch=10) == "MEMORY.md.bak.19"

    assert sorted(path.name for path in folder.glob("*.bak.*")) == [f"MEMORY.md.bak.{n}" for n in range(10, 20)]
    assert store.pages.back_up(Target.USER, b"new", epoch=7) == "USER.md.bak.7"


def test_the_row_is_on_the_disk_before_the_page_changes(store, folder, monkeypatch):
    """After a loss of power there may be a row without its page, which is voided, never a page without its row."""
    rows_at_rename = []
    replace = os.replace

    def observe(source, target, **options):
        if Path(target).name == "MEMORY.md":
            with closing(Ledger(folder / "ledger.db")) as other:
                rows_at_rename.append([row.step.after for row in other.rows()])
        return replace(source, target, **options)

    monkeypatch.setattr(os, "replace", observe)
    store.apply("memory", Add("one"))

    full = 2  # every commit waits for the disk
    assert store.ledger._db.connection.pragma("synchronous") == full
    assert rows_at_rename == [["one"]]


class CountedPages(FilePages):
    """Page files that count how often a page is read for an edit."""

    reads = 0

    def read(self, target):
        self.reads += 1
        return super().read(target)


def test_an_edit_reads_its_page_once(folder, tmp_path):
    """Under the lock; before the replacement and after it only the bytes are compared."""
    pages = CountedPages(folder)
    store = MemoryStore(Storage(pages, Ledger(folder / "ledger.db")))
    tool = MemoryTool(store, Approvals(tmp_path / "pending", store)).tool()
    store.load()
    pages.reads = 0

    answer = tool.call({"action": "add", "target": "memory", "content": "the staging server is heron"}, ToolContext())

    assert answer["entries"] == ["the staging server is heron"]
    assert pages.reads == 1
    store.close()


def test_a_write_does_not_read_the_whole_ledger(store):
    """Its statements find the newest rows and those without a checksum by an index."""
    store.apply("memory", Add("one"))
    connection = store.ledger._db.connection

    for statement in (SQL.unchecked, SQL.newest_id, SQL.has_sources):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert not [step for step in plan if step == "SCAN edits"], plan
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {SQL.next_write}")]
    assert "USE TEMP B-TREE FOR ORDER BY" not in plan  # the newest 64 rows, in the order of the table

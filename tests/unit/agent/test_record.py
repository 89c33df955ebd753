"""The record of a conversation: full disks, secrets, compaction."""

from contextlib import contextmanager

from msgspec.structs import replace

from wellkept.agent.record import Record
from wellkept.agent.turn import add_background
from wellkept.context.engine import Compaction
from wellkept.core.errors import StorageError
from wellkept.core.events import Warned
from wellkept.core.ids import SessionId, SourceName
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.provenance import label_recalled
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

SESSION = Session(id=SessionId("20260101_000000_abcdef"), source="cli", started=1.0)


def said(text, role=Role.USER):
    return NewMessage(Message(role, text), 1.0, Origin.PERSON)


class FullDisk:
    """The real store behind a disk that is full while `full` is set."""

    def __init__(self, store):
        self.store = store
        self.full = False
        self.loses_answers = False

    def __getattr__(self, name):
        return getattr(self.store, name)

    @contextmanager
    def unit(self):
        if self.full:
            raise StorageError("the disk is full", "free some space")
        with self.store.unit() as unit:
            yield unit
        if self.loses_answers:
            raise StorageError("the connection was lost", "try again")


def test_what_was_committed_without_an_answer_is_not_stored_twice(tmp_path):
    """A server that dies after a commit says nothing of it: the next write finds what is there."""
    database = open_state(tmp_path / "state.db")
    disk, queued = FullDisk(SqliteSessionStore(database)), []
    record = Record(SESSION, disk, lambda event: None)
    record.add([said("one")])
    disk.loses_answers = True
    lost = [replace(said("two"), timestamp=2.0), replace(said("three", Role.ASSISTANT), timestamp=3.0)]
    record.add(lost, in_transaction=lambda unit, ids: queued.append(ids[-1]))
    disk.loses_answers = False
    record.add([replace(said("four"), timestamp=4.0)], in_transaction=lambda unit, ids: queued.append(ids[-1]))

    stored = disk.messages(SESSION.id)
    assert [row.message.text for row in stored] == ["one", "two", "three", "four"]
    assert [row.id for row in record.rows] == [row.id for row in stored]
    assert queued == [stored[2].id, stored[3].id]
    database.close()


def test_a_note_is_stored_although_the_disk_refused_once(tmp_path):
    """The next message refers to it: what was asked, and what can be undone."""

    class RefusesOnce(FullDisk):
        def note(self, session_id, key, value):
            if self.full:
                self.full = False
                raise StorageError("the disk is full", "free some space")
            self.store.note(session_id, key, value)

    database = open_state(tmp_path / "state.db")
    disk = RefusesOnce(SqliteSessionStore(database))
    record = Record(SESSION, disk, lambda event: None)
    record.add([said("one")])
    disk.full = True

    record.note(SESSION.id, "dialogue", {"done": [2]})

    assert record.read_note(SESSION.id, "dialogue") == {"done": [2]}
    database.close()


def test_messages_wait_while_the_disk_is_full_and_are_stored_when_there_is_room(tmp_path):
    """The chat continues, says that nothing is stored, and stores all of it later, in order."""
    database = open_state(tmp_path / "state.db")
    disk, told = FullDisk(SqliteSessionStore(database)), []
    record = Record(SESSION, disk, told.append)
    record.add([said("one")])
    disk.full = True
    record.add([said("two")])
    record.add([said("three", Role.ASSISTANT)])
    assert record.trouble == "the disk is full"
    assert [row.message.text for row in record.rows] == ["one", "two", "three"]

    disk.full = False
    record.add([said("four")])

    stored = disk.messages(SESSION.id)
    assert [row.message.text for row in stored] == ["one", "two", "three", "four"]
    assert [row.id for row in record.rows] == [row.id for row in stored]
    assert record.trouble == ""
    assert any(isinstance(event, Warned) and "not being stored" in event.message for event in told)
    database.close()


def test_what_waits_at_the_end_is_tried_once_more(tmp_path):
    """A disk that refused once loses nothing of a conversation that ends right after."""
    database = open_state(tmp_path / "state.db")
    disk = FullDisk(SqliteSessionStore(database))
    record = Record(SESSION, disk, lambda event: None)
    record.add([said("one")])
    disk.full = True
    record.add([said("two", Role.ASSISTANT)])
    record.retry()
    assert record.trouble
    disk.full = False

    record.retry()

    assert [row.message.text for row in disk.messages(SESSION.id)] == ["one", "two"]
    assert record.trouble == ""
    record.retry()
    assert len(disk.messages(SESSION.id)) == 2
    database.close()


def test_what_commits_with_messages_waits_with_them(tmp_path):
    """The outbox row of a turn that could not be stored is queued when the turn is, with the id of its last message."""
    database = open_state(tmp_path / "state.db")
    disk, queued = FullDisk(SqliteSessionStore(database)), []

    def queue(turn):
        return lambda unit, ids: queued.append((turn, ids[-1]))

    record = Record(SESSION, disk, lambda event: None)
    record.add([said("one")], in_transaction=queue("first"))
    disk.full = True
    record.add([said("two"), said("three", Role.ASSISTANT)], in_transaction=queue("second"))
    record.add([said("four"), said("five", Role.ASSISTANT)], in_transaction=queue("third"))
    assert queued == [("first", 1)]
    disk.full = False

    record.retry()
    record.add([said("six")])

    assert queued == [("first", 1), ("second", 3), ("third", 5)]
    assert [row.id for row in disk.messages(SESSION.id)] == [1, 2, 3, 4, 5, 6]
    database.close()


def test_secrets_stay_in_memory_and_never_reach_the_store(tmp_path):
    """The running process keeps the original; the store has it redacted."""
    database = open_state(tmp_path / "state.db")
    store = SqliteSessionStore(database)
    record = Record(SESSION, store, lambda event: None)
    secret = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3

    record.add([said(f"my key is {secret}")])

    assert secret in record.rows[0].message.text
    assert secret not in store.messages(SESSION.id)[0].message.text
    database.close()


def test_a_compaction_keeps_the_originals_in_memory(tmp_path):
    """The kept messages stay byte for byte what the model was sent, although the store has them redacted."""
    database = open_state(tmp_path / "state.db")
    store = SqliteSessionStore(database)
    record = Record(SESSION, store, lambda event: None)
    secret = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3
    record.add([said("old"), said("answer", Role.ASSISTANT), said(f"my key is {secret}")])
    covered, kept = [row.id for row in record.rows[:2]], record.rows[2]
    summary = Message(Role.USER, "summary")

    record.apply_compaction(
        Compaction((summary, kept.message), summary, covered, (), (kept.id,), 10, 5, in_place=True, timestamp=2.0)
    )

    assert record.rows[-1] == kept
    assert len(record.rows) == 2
    database.close()


def test_the_context_is_what_the_rows_say_now(tmp_path):
    """Rows are read once, but never a row that has changed since: recalled text, compaction, another list."""
    database = open_state(tmp_path / "state.db")
    record = Record(SESSION, SqliteSessionStore(database), lambda event: None)
    page = replace(said("a page", Role.ASSISTANT), origin=Origin.MODEL, source=SourceName("web:https://a.example"))

    def read():
        context = record.read_context()
        return [one.text for one in context.readings], context.said

    assert read() == ([], ())
    record.add([said("one")])
    assert read() == ([], ("one",))
    record.set_sent_text(add_background("one", recalled=label_recalled("the sea", ["mem"])) or "")
    assert len(read()[0]) == 1
    before = record.read_context()
    record.add([page, said("two")])
    assert [len(before.readings), len(read()[0]), read()[1]] == [1, 2, ("one", "two")]
    covered, kept = [row.id for row in record.rows[:2]], record.rows[2]
    summary = Message(Role.USER, "summary")
    record.apply_compaction(
        Compaction((summary, kept.message), summary, covered, (), (kept.id,), 10, 5, in_place=True, timestamp=2.0)
    )
    assert read() == (["summary"], ("two",))
    record.rows = []
    assert read() == ([], ())
    database.close()

"""A repair that is killed at any file operation: the old state or the new one, and the next command completes it."""

import os
import sys

import pytest

from wellkept.core.clock import SystemClock
from wellkept.core.errors import Unreadable
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.sessions.settings import SessionSettings
from wellkept.sessions.sqlite.check import check_file
from wellkept.sessions.sqlite.repair import Repair
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state
from wellkept.storage.swap import Replacement, finish

OPERATIONS = {"os.link", "os.rename", "os.remove", "open"}
KILLED = 9
HEAVY = os.environ.get("KEPT_HEAVY") == "1"


def silent(event):
    """Ignore the event."""


def make_store(path):
    store = SqliteSessionStore(open_state(path))
    for number in range(4):
        name = SessionId(f"session{number}")
        store.create(Session(name, "cli", 1.75e9))
        store.append(name, [NewMessage(Message(Role.USER, f"lake {number}"), 1.75e9, Origin.PERSON)])
    store.close()


def damage_mark(path):
    with path.open("r+b") as file:
        file.seek(70)
        file.write(b"X")


def repair(path):
    return Repair(path, SessionSettings(), clock=SystemClock(), sink=silent).run()


def texts(path):
    database = open_state(path)
    found = [row[0] for row in database.connection.execute("SELECT content FROM messages ORDER BY id")]
    database.close()
    return found


def repair_and_die(path, step):
    """Run a repair in a child that ends at its `step`-th operation on a file of the store; return its exit code."""
    child = os.fork()
    if child == 0:  # pragma: no cover - the child is killed
        left = [step]

        def count(event, arguments):
            if event in OPERATIONS and "state.db" in str(arguments[0]):
                left[0] -= 1
                if left[0] == 0:
                    os._exit(KILLED)

        sys.addaudithook(count)
        repair(path)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_repair_leaves_the_old_or_the_new_state(tmp_path):
    """At every operation: nothing is missing, the next use completes it, no file is left over."""
    original = tmp_path / "original.db"
    make_store(original)
    expected = texts(original)
    damage_mark(original)
    step, code = 1, KILLED
    while code == KILLED:
        path = tmp_path / f"home{step}" / "state.db"
        path.parent.mkdir()
        path.write_bytes(original.read_bytes())
        code = repair_and_die(path, step)

        assert path.exists(), step
        try:
            assert texts(path) == expected, step
        except Unreadable:
            assert path.read_bytes() == original.read_bytes(), step
        repair(path)
        assert texts(path) == expected, step
        assert check_file(path, clock=SystemClock()) == [], step
        names = {file.name.partition("-2")[0] for file in path.parent.iterdir()}
        assert names <= {"state.db", "state.db-wal", "state.db-shm", "state.db.damaged"}, (step, names)
        assert len([name for name in path.parent.glob("*.damaged-*") if name.suffix != ".db-wal"]) == 1, step
        step += 1 if HEAVY else 3

    assert code == 0
    assert step > 15


def test_the_log_of_the_old_file_is_never_applied_to_the_new_one(tmp_path):
    """Killed after the journal says `swapping`: the next open removes the old log before it renames."""
    path = tmp_path / "state.db"
    make_store(path)
    replacement = Replacement(path, "20260101-000000")
    make_store(replacement.fresh)
    new = replacement.fresh.read_bytes()
    replacement.begin()
    (tmp_path / "state.db.repair").write_text('{"stage": "swapping", "stamp": "20260101-000000", "pid": 1}')
    (tmp_path / "state.db-wal").write_bytes(b"frames of the old file")

    assert finish(path)

    assert path.read_bytes() == new
    assert [file.name for file in tmp_path.iterdir()] == ["state.db"]


def test_a_repair_that_an_older_kept_left_unfinished_is_completed(tmp_path):
    """The old file was moved away and the new one not yet renamed: the next open does it."""
    path = tmp_path / "state.db"
    make_store(tmp_path / "state.db.salvaged-20260101-000000")
    (tmp_path / "state.db.damaged-20260101-000000").write_bytes(b"damaged")

    assert texts(path) == ["lake 0", "lake 1", "lake 2", "lake 3"]


def test_a_file_that_was_deleted_on_purpose_stays_deleted(tmp_path):
    """The file of an earlier repair alone is not an unfinished repair."""
    path = tmp_path / "state.db"
    (tmp_path / "state.db.damaged-20260101-000000").write_bytes(b"damaged")

    assert texts(path) == []

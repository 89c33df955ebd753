"""Leases end with their time, with their process, and after a clock was wrong."""

import os
import socket
import subprocess
import sys
from datetime import timedelta

import pytest

from wellkept.core.clock import FixedClock, SystemClock
from wellkept.core.errors import Busy
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.ports import ignore
from wellkept.sessions.rows import session_rows
from wellkept.sessions.sqlite import index
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.leases import FileLease, is_held, new_holder
from wellkept.storage.sqlite import open_state

NOW, SECONDS = 1_800_000_000.0, 120.0


def dead_holder():
    """Return the name of a holder whose process has ended."""
    code = "from wellkept.storage.leases import new_holder; print(new_holder())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_living_holder_has_its_lease_until_its_time_is_over():
    """Only the time ends the lease of a process that runs, here or on another machine."""
    for holder in (new_holder(), "elsewhere:1:abcd", "7-abcd", "7", ""):
        assert is_held(holder, NOW + SECONDS, now=NOW, seconds=SECONDS)
        assert not is_held(holder, NOW, now=NOW, seconds=SECONDS)


def test_the_lease_of_a_dead_process_of_this_machine_is_free():
    """Nobody waits for a process that was killed."""
    assert not is_held(dead_holder(), NOW + SECONDS, now=NOW, seconds=SECONDS)


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=365), timedelta(days=36_500)])
def test_a_clock_that_was_ahead_keeps_nobody_away(ahead):
    """A lease that would last longer than leases last was taken with a wrong clock."""
    assert not is_held("elsewhere:1:abcd", NOW + ahead.total_seconds() + SECONDS, now=NOW, seconds=SECONDS)


def test_a_clock_that_is_set_back_a_little_ends_no_lease():
    """Corrections of some seconds are ordinary."""
    assert is_held("elsewhere:1:abcd", NOW + SECONDS, now=NOW - 5, seconds=SECONDS)


@pytest.fixture
def store(tmp_path):
    store = SqliteSessionStore(open_state(tmp_path / "state.db"))
    store.create(Session(SessionId("s"), "cli", NOW))
    store.append(SessionId("s"), [NewMessage(Message(Role.USER, "herons"), NOW, Origin.PERSON)])
    yield store
    store.database.close()


def leave_lease(store, holder, *, now):
    with store.database.writing() as connection:
        assert session_rows.take_lease(connection, index.LEASE, holder=holder, now=now, seconds=SECONDS)


def test_reindexing_starts_after_a_killed_one(store):
    """The lease of a killed process does not delay the next one."""
    leave_lease(store, dead_holder(), now=SystemClock().now().timestamp())

    assert index.rebuild(store.database, sink=ignore, clock=SystemClock()) == 1


def test_reindexing_starts_after_a_clock_was_a_year_ahead(store):
    """A lease of another machine whose clock was a year ahead does not last a year."""
    clock = FixedClock()
    leave_lease(store, "elsewhere:1:abcd", now=(clock.now() + timedelta(days=365)).timestamp())

    assert index.rebuild(store.database, sink=ignore, clock=clock) == 1


def test_reindexing_waits_for_a_living_one(store):
    """Two processes never rebuild at once."""
    leave_lease(store, new_holder(), now=SystemClock().now().timestamp())

    with pytest.raises(Busy):
        index.rebuild(store.database, sink=ignore, clock=SystemClock())


def test_a_lease_may_last_twice_its_time_and_no_longer():
    """Then a clock was wrong when it was taken."""
    assert is_held("elsewhere:1:abcd", NOW + 2 * SECONDS, now=NOW, seconds=SECONDS)
    assert not is_held("elsewhere:1:abcd", NOW + 2 * SECONDS + 1, now=NOW, seconds=SECONDS)


def test_only_processes_of_this_machine_are_looked_for():
    """A process with the same number may have ended here and run there."""
    machine, pid, mark = dead_holder().rsplit(":", 2)

    assert is_held(f"{machine}-two:{pid}:{mark}", NOW + SECONDS, now=NOW, seconds=SECONDS)
    assert is_held(f"{machine}:x{pid}:{mark}", NOW + SECONDS, now=NOW, seconds=SECONDS)
    assert not is_held(f"{machine}:{pid}:{mark}", NOW + SECONDS, now=NOW, seconds=SECONDS)


def test_every_holder_has_a_name_of_its_own():
    """With its machine and its process."""
    holders = {new_holder() for _ in range(20)}

    assert len(holders) == 20
    assert all(holder.startswith(f"{socket.gethostname()}:{os.getpid()}:") for holder in holders)


def test_a_lease_of_files_has_one_holder_and_leaves_no_file(tmp_path):
    """Others get it as soon as it is released; one that was released is not taken again by a late renewal."""
    first, second, other = FileLease(tmp_path, "a"), FileLease(tmp_path, "a"), FileLease(tmp_path, "b")
    assert first.take()
    assert first.take()
    assert other.take()

    assert not second.take()
    with first.keep():
        assert not second.take()
    assert second.take()
    assert not first.take()

    second.release()
    other.release()
    assert list(tmp_path.iterdir()) == []


def test_a_lease_of_files_keeps_nobody_away_where_no_file_can_be_made(tmp_path):
    """A full or broken disk does not end a chat."""
    (tmp_path / "locks").write_text("not a folder")

    assert FileLease(tmp_path / "locks", "a").take()


def test_a_lease_of_files_is_held_by_one_of_many_at_a_time(tmp_path):
    """Also while holders remove their files: nobody locks a file that is gone."""
    code = (
        "import pathlib, sys, time\nfrom wellkept.storage.leases import FileLease\n"
        "folder, done = pathlib.Path(sys.argv[1]), 0\n"
        "while done < 200:\n"
        "    lease = FileLease(folder, 'a')\n"
        "    if not lease.take(): continue\n"
        "    with lease.keep():\n"
        "        (folder / 'inside').mkdir(); (folder / 'inside').rmdir(); done += 1\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]

    assert [process.wait(120) for process in running] == [0, 0, 0]

"""Several writers of one database: in which order they get the lock, and how often they ask for it."""

import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from wellkept.storage import sqlite
from wellkept.storage.sqlite import WriteLock

ROUNDS = 20


@pytest.fixture
def path(tmp_path):
    connection = apsw.Connection(str(tmp_path / "state.db"))
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE facts (text)")
    connection.close()
    return tmp_path / "state.db"


def connect(path):
    return apsw.Connection(str(path))


def write_once(path, name, order):
    connection = connect(path)
    WriteLock(path).begin(connection, 5.0)
    order.append(name)
    connection.execute("ROLLBACK")
    connection.close()


def wait_until_marked(path):
    """Return when a writer waits at the folder."""
    inode = f":{path.parent.stat().st_ino} "
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        locks = Path("/proc/locks").read_text().splitlines()
        if any(inode in line and "OFDLCK" in line for line in locks):
            return
        time.sleep(0.001)
    raise AssertionError("nobody waits")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no order")
def test_who_has_released_the_lock_lets_a_waiting_writer_go_first(path):
    """A writer that asks again at once comes after one that waits; on a busy machine nearly always."""
    lock, connection = WriteLock(path), connect(path)
    order = []
    for _ in range(ROUNDS):
        lock.begin(connection, 5.0)
        waiting = threading.Thread(target=write_once, args=(path, "waiting", order))
        waiting.start()
        wait_until_marked(path)
        connection.execute("ROLLBACK")
        lock._turn_began = 0
        lock.begin(connection, 5.0)
        order.append("again")
        connection.execute("ROLLBACK")
        waiting.join()

    assert order[::2].count("waiting") > ROUNDS / 2


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no order")
def test_waiting_writers_go_in_the_order_in_which_they_came(path):
    """Who comes later sees that another one waits, and lets it go first."""
    lock = WriteLock(path)
    first, second = (os.open(path.parent, os.O_RDONLY) for _ in range(2))
    came = sqlite._now()
    lock._mark(first, came)
    lock._mark(second, came + 1)

    assert not lock._is_behind(first, came)
    assert lock._is_behind(second, came + 1)
    os.close(first)
    assert not lock._is_behind(second, came + 1)
    os.close(second)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no order")
def test_writers_of_another_database_are_not_waited_for(path):
    """The databases of one folder have queues of their own."""
    folder = os.open(path.parent, os.O_RDONLY)
    own = os.open(path.parent, os.O_RDONLY)
    came = sqlite._now()
    WriteLock(path.with_name("other.db"))._mark(folder, came)

    assert not WriteLock(path)._is_behind(own, came + 1)
    os.close(folder)
    os.close(own)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no order")
def test_a_stopped_process_that_waits_delays_others_once(path, monkeypatch):
    """A writer passes over a waiting one that does not go, and half a second later nobody waits for it at all."""
    lock, connection, stopped = WriteLock(path), connect(path), os.open(path.parent, os.O_RDONLY)
    came = sqlite._now()
    lock._mark(stopped, came)

    lock.begin(connection, 5.0)

    assert sqlite._now() - came >= sqlite._PATIENCE_MICROSECONDS
    own = os.open(path.parent, os.O_RDONLY)
    monkeypatch.setattr(sqlite, "_now", lambda: came + 600_000)
    assert not lock._is_behind(own, came + 600_000)
    os.close(own)
    os.close(stopped)


def test_a_folder_that_cannot_be_opened_only_loses_the_order(path):
    """SQLite's lock is enough to write."""
    connection = connect(path)
    lock = WriteLock(path.with_name("absent") / "state.db")

    lock.begin(connection, 1.0)

    assert connection.in_transaction
    connection.close()


def test_writers_ask_again_soon_and_about_a_long_transaction_less_often(path, monkeypatch):
    """The pauses grow from the time of an append to a millisecond, and the last attempt says that the file is busy."""
    connection, other = connect(path), connect(path)
    other.execute("BEGIN IMMEDIATE")
    now, pauses = iter([0.0, 0.0, 0.005, 0.02, 60.0, 100.0]), []
    clock = SimpleNamespace(monotonic_ns=lambda: int(1e9 * (1_000 + next(now))), sleep=pauses.append)
    monkeypatch.setattr(sqlite, "time", clock)

    with pytest.raises(apsw.BusyError):
        WriteLock(path.with_name("absent") / "state.db").begin(connection, 99.0)

    first, soon, later, longest = pauses
    assert first == soon < 0.0001 < later < longest == 0.001
    other.close()

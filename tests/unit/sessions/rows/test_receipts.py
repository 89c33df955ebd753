"""Receipts in SQLite: never in the way of an answer."""

import threading
from time import perf_counter

import pytest

from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Session
from wellkept.sessions.receipts import NewReceipt, ShownMessage
from wellkept.sessions.rows.receipts import MOST_QUERY_CHARS, MOST_WAITING
from wellkept.sessions.settings import SessionSettings
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import BUSY_SECONDS, open_state

ASKED = NewReceipt(kind="search", client="cli", query="okapi")


@pytest.mark.parametrize("most", [BUSY_SECONDS / 2, pytest.param(2.0, marks=pytest.mark.speed)])
def test_a_busy_file_delays_no_answer(store, tmp_path, most):
    """While another process writes, the receipt waits in memory; the next one stores both."""
    other = open_state(tmp_path / "state.db")
    with other.writing():
        began = perf_counter()
        assert store.receipts.add(ASKED) is None
        assert perf_counter() - began < most

    last = store.receipts.add(ASKED)

    assert [one.id for one in store.receipts.recent(limit=9)] == [last, last - 1]
    other.close()


def test_what_waits_in_memory_is_bounded(store, tmp_path):
    """A file that stays busy costs the oldest receipts, not memory."""
    other = open_state(tmp_path / "state.db")
    with other.writing():
        store.receipts._waiting.extend([(0.0, ASKED)] * (MOST_WAITING + 5))
        store.receipts.add(ASKED)
    store.receipts.add(ASKED)

    assert len(store.receipts.recent(limit=10_000)) == MOST_WAITING
    other.close()


def test_a_read_only_file_stores_none_and_raises_nothing(tmp_path):
    """An answer from a file that cannot be written has no receipt."""
    path = tmp_path / "state.db"
    SqliteSessionStore(path).close()
    store = SqliteSessionStore(open_state(path, read_only=True))

    assert store.receipts.add(ASKED) is None
    store.database.close()


def test_a_query_is_redacted_and_bounded(store):
    """Credentials in a prompt are not stored, and of a long prompt only the beginning."""
    key = "sk-ant-api03-" + "a1B2c3D4" * 11
    store.receipts.add(NewReceipt(kind="prompt", client="codex", query=f"use {key} " + "\ud800x" * 9_000))

    (found,) = store.receipts.recent(limit=1)

    assert key not in found.content.query
    assert "[redacted:" in found.content.query
    assert len(found.content.query) <= MOST_QUERY_CHARS


def test_zero_days_record_nothing(tmp_path):
    """`sessions.receipt_days: 0` switches receipts off."""
    store = SqliteSessionStore(tmp_path / "state.db", SessionSettings(receipt_days=0))

    assert store.receipts.add(ASKED) is None
    assert store.receipts.recent(limit=1) == []
    store.close()


def test_threads_write_each_receipt_once(store):
    """Receipts of concurrent answers are neither lost nor doubled."""
    threads = [
        threading.Thread(target=lambda: [store.receipts.add(ASKED) for _ in range(20)], daemon=True) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.receipts.add(ASKED)

    assert len(store.receipts.recent(limit=1_000)) == 81


def test_the_trash_takes_receipts_along(store):
    """A session that is removed from the trash leaves no receipt that it was given."""
    store.create(Session(SessionId("a"), "cli", 1.0))
    store.receipts.add(NewReceipt(kind="search", client="cli", query="okapi", session_id=SessionId("a")))
    store.upkeep.delete([SessionId("a")])
    store.upkeep.sweep(days=0)

    assert store.receipts.recent(limit=1) == []


@pytest.mark.speed
def test_a_receipt_takes_three_milliseconds(store):
    """Median of 200 receipts with ten messages each."""
    shown = [ShownMessage(MessageId(n), SessionId("a"), 1.0, {"words": 1.0, "date": 0.5}) for n in range(10)]
    times = []
    for _ in range(200):
        began = perf_counter()
        store.receipts.add(NewReceipt(kind="search", client="cli", query="okapi leaves", shown=shown))
        times.append(perf_counter() - began)

    assert sorted(times)[100] < 0.003

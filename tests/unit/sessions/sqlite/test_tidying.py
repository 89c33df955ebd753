"""A small store is made small when it is closed, and only then."""

import random
import time
from contextlib import closing

import apsw
import pytest

from kept.core.ids import SessionId
from kept.core.messages import Message, NewMessage, Origin, Role, Session
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.storage.sqlite import open_state

_MESSAGES = 2_400
_CHARACTERS = 175


def _texts(count):
    chance = random.Random(4)
    syllables = ["ka", "lo", "mi", "tre", "sou", "ven", "ra", "pli", "go", "ste"]
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(4_000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    for _ in range(count):
        text = ""
        while len(text) < _CHARACTERS:
            text += " ".join(chance.choices(words, weights, k=10)) + " "
        yield text[:_CHARACTERS]


def _fill(store, count, *, at_once):
    chance, said = iter(range(count)), list(_texts(count))
    for start in range(0, count, 40):
        name = SessionId(f"20260101_1200{start % 60:02d}_{start:06x}")
        store.create(Session(name, "cli", 1.7e9))
        new = [NewMessage(Message(Role.USER, said[next(chance)]), 1.7e9, Origin.PERSON) for _ in range(40)]
        for first in range(0, len(new), at_once):
            store.append(name, new[first : first + at_once])
    return sum(len(text.encode()) for text in said)


@pytest.mark.parametrize("at_once", [4, 40])
def test_a_small_store_keeps_its_budget_once_it_is_closed(tmp_path, at_once):
    """Some thousands of short messages take 2.6 times their text and 150 bytes each, everything included."""
    store = SqliteSessionStore(open_state(tmp_path / "state.db"))
    text_bytes = _fill(store, _MESSAGES, at_once=at_once)

    store.close()

    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert size <= 2.6 * text_bytes + 150 * _MESSAGES


def test_what_was_tidied_is_found_and_whole(tmp_path):
    """Giving pages back changes nothing that is stored or found."""
    store = SqliteSessionStore(open_state(tmp_path / "state.db"))
    _fill(store, 400, at_once=1)
    before = list(store.database.connection.execute("SELECT id, session_id, content FROM messages"))

    store.close()

    with closing(apsw.Connection(str(tmp_path / "state.db"))) as connection:
        assert connection.pragma("freelist_count") == 0
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert list(connection.execute("SELECT id, session_id, content FROM messages")) == before


def test_a_store_that_was_only_read_is_not_written(tmp_path):
    """Closing after reading leaves every byte as it was."""
    store = SqliteSessionStore(open_state(tmp_path / "state.db"))
    _fill(store, 400, at_once=1)
    store.database.close()  # as after a crash: untidied
    before = (tmp_path / "state.db").read_bytes()

    reader = SqliteSessionStore(open_state(tmp_path / "state.db"))
    reader.recent(limit=3)
    reader.close()

    assert (tmp_path / "state.db").read_bytes() == before


def test_while_another_process_writes_it_is_left(tmp_path):
    """A file in use is closed untidied, without waiting and without an error."""
    store = SqliteSessionStore(open_state(tmp_path / "state.db"))
    _fill(store, 400, at_once=1)
    other = apsw.Connection(str(tmp_path / "state.db"))
    other.execute("BEGIN IMMEDIATE")
    start = time.monotonic()

    store.close()

    assert time.monotonic() - start < 8
    other.execute("ROLLBACK")
    other.close()

"""A small store is made small when it is closed, and only then."""

import random
import time
from contextlib import closing

import apsw
import pytest

from wellkept.core.ids import OWNER, SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.sessions.sqlite.postings import SqliteCatalog
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

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


def _count_segments(path):
    with closing(apsw.Connection(str(path))) as connection:
        rows = connection.execute("SELECT DISTINCT segid FROM message_words_idx").fetchall()
    return len(rows)


def test_the_index_of_a_large_file_is_merged_a_little_at_each_close(tmp_path):
    """A term is looked up in every segment, so a file that is too large to rewrite gets fewer of them too."""
    path = tmp_path / "state.db"
    store = SqliteSessionStore(open_state(path))
    _fill(store, 400, at_once=40)
    name = SessionId("20260101_120000_aaaaaa")
    store.create(Session(name, "cli", 1.7e9))
    sent = "x " * 500_000
    for _ in range(18):
        store.append(name, [NewMessage(Message(Role.USER, "large"), 1.7e9, Origin.PERSON, api_content=sent)])
        store.file.catch_up()
    store.database.close()  # as after a crash: untidied
    before = _count_segments(path)

    for _ in range(5):
        again = SqliteSessionStore(open_state(path))
        again.rename(name, f"title {_}")
        again.close()

    assert path.stat().st_size > 16_000_000
    assert before > 1
    assert _count_segments(path) == 1


def test_messages_of_a_session_are_listed_with_and_without_gaps(tmp_path):
    """A session that was stored at once is a range of ids; one that took turns with another is a list."""
    store = SqliteSessionStore(open_state(tmp_path / "state.db"))
    new = [NewMessage(Message(Role.USER, "tea"), 1.7e9, Origin.PERSON)]
    for name in ("a", "b", "c"):
        store.create(Session(SessionId(name), "cli", 1.7e9))
    for name in ("a", "a", "b", "c", "b"):
        store.append(SessionId(name), new)

    found = SqliteCatalog(store.database.connection, user=OWNER).ids_by_session(["a", "b", "c", "none"])

    assert {name: list(ids) for name, ids in found.items()} == {"a": [1, 2], "b": [3, 5], "c": [4]}
    assert found["a"] == range(1, 3)
    store.database.close()

"""An import that ended in the middle is completed by importing the file again."""

import json

import pytest

from wellkept.core.ids import SessionId
from wellkept.sessions.rows import transfer
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

LINES = [
    {"type": "session", "session_id": "one", "source": "cli", "started": 1.0, "title": "Herons"},
    *({"session_id": "one", "id": number, "role": "user", "content": f"heron {number}", "timestamp": 1.0 + number} for number in range(1, 5)),
    {"type": "session", "session_id": "two", "source": "cli", "started": 9.0, "parent_session_id": "one",
     "link": "compression", "carried": [5, 3, 4], "context_from": 5, "notes": {"tone": "calm"}},
    {"session_id": "two", "id": 5, "role": "user", "content": "a summary", "origin": "synthetic", "timestamp": 9.0},
    {"session_id": "two", "id": 6, "role": "user", "content": "and owls?", "timestamp": 10.0},
    {"session_id": "three", "id": 7, "role": "user", "content": "late", "timestamp": 30.0},
    {"session_id": "three", "id": 8, "role": "assistant", "content": "early", "timestamp": 20.0, "title": "Third"},
]  # fmt: skip
RAW = [json.dumps(line).encode() for line in LINES]


class Ended(Exception):
    """Simulates the end of the process: what was committed stays."""


def end_after(count):
    yield from RAW[:count]
    raise Ended


def open_store(path):
    return SqliteSessionStore(open_state(path))


def lines_of(store):
    return list(store.transfer.export())


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(transfer, "BATCH", 2)


@pytest.mark.parametrize("count", range(len(RAW) + 1))
def test_importing_again_completes_an_import_that_was_ended(tmp_path, count):
    """Wherever it ended, the second import gives the same sessions, titles, starts, notes and carried messages."""
    whole, ended = open_store(tmp_path / "whole.db"), open_store(tmp_path / "ended.db")
    whole.transfer.import_lines(RAW)
    with pytest.raises(Ended):
        ended.transfer.import_lines(end_after(count))

    ended.transfer.import_lines(RAW)

    assert lines_of(ended) == lines_of(whole)
    texts = [message.message.text for message in ended.context(SessionId("two"))]
    assert texts == ["a summary", "heron 3", "heron 4", "and owls?"]


def test_importing_again_leaves_a_finished_session_alone(tmp_path):
    """A session that was imported to its end and rewound since is not linked again."""
    store = open_store(tmp_path / "state.db")
    store.transfer.import_lines(RAW)
    rewound = store.context(SessionId("two"))[1].id
    store.rewind(SessionId("two"), rewound)
    before = lines_of(store)

    store.transfer.import_lines(RAW)

    assert [line for line in lines_of(store) if line.get("type")] == [line for line in before if line.get("type")]
    assert [message.message.text for message in store.context(SessionId("two"))][:1] == ["a summary"]

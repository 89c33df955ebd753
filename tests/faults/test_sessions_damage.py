"""Files that were damaged under a store: said by the check, mended as far as can be, the rest reported."""

import random
import shutil

import pytest

from kept.core.clock import SystemClock
from kept.core.errors import Busy, NewerDatabase, StorageError
from kept.core.events import Warned
from kept.core.ids import SessionId
from kept.core.messages import Message, NewMessage, Origin, Role, Session
from kept.core.search import SearchRequest
from kept.sessions.settings import SessionSettings
from kept.sessions.sqlite.checkup import checked, log_tail
from kept.sessions.sqlite.repair import Repair
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.storage.sqlite import PAGE_BYTES as PAGE
from kept.storage.state import open_state

WORDS = [
    f"{first}{second}{third}"
    for first in "bdfgklmnprst"
    for second in "aeiou"
    for third in ("nder", "lock", "stem", "rive")
]


def silent(event):
    """Hear nothing."""


@pytest.fixture
def path(tmp_path):
    """A closed database of forty sessions with fifty messages each."""
    path = tmp_path / "state.db"
    database = open_state(path)
    store = SqliteSessionStore(database)
    choose = random.Random(7)
    for number in range(40):
        name = SessionId(f"session{number:02}")
        store.create(Session(name, "cli", 1.75e9 + number, title=f"Talk {number}"))
        store.append(
            name,
            [
                NewMessage(
                    Message(Role.USER, f"mark{number}x{place} " + " ".join(choose.choices(WORDS, k=30))),
                    1.75e9 + number,
                    Origin.PERSON,
                )
                for place in range(50)
            ],
        )
    database.close()
    return path


def pages_of(path, table):
    database = open_state(path)
    found = [
        row[0]
        for row in database.connection.execute(
            "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY pageno", (table,)
        )
    ]
    database.close()
    return found


def overwrite(path, page):
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(random.Random(page).randbytes(PAGE))


def repaired(path):
    return Repair(path, SessionSettings(), clock=SystemClock(), sink=silent).run()


def store_at(path, sink=silent):
    return SqliteSessionStore(open_state(path), sink=sink)


def test_a_whole_store_has_nothing_to_mend(path):
    """A healthy store is checked and left as it is."""
    report = repaired(path)

    assert (report.found, report.done, report.left) == ([], [], [])


@pytest.mark.parametrize("table", ["message_words_data", "message_substrings_data", "message_words_docsize"])
def test_a_damaged_index_is_said_and_mended(path, table):
    """A corrupt index page is found by the check, and repair builds the index anew without losing a message."""
    pages = pages_of(path, table)
    for page in pages[1 : max(2, len(pages) // 2)] or pages:
        overwrite(path, page)

    store = store_at(path)
    assert checked(store)
    store.database.close()
    report = repaired(path)

    assert report.found
    assert report.done
    assert report.left == []
    store = store_at(path)
    assert store.search(SearchRequest("mark17x23")).messages
    assert sum(one.message_count for one in store.recent(limit=100)) == 2_000
    store.database.close()


def test_a_damaged_index_mends_itself_at_a_search(path):
    """A search over a corrupt index builds it anew by itself, says so, and answers."""
    for table in ("message_words_data", "message_substrings_data"):
        for page in pages_of(path, table)[1:]:
            overwrite(path, page)
    heard = []
    store = store_at(path, heard.append)

    found = [store.search(SearchRequest(f"mark{number}x{number}")).messages for number in range(0, 40, 7)]

    assert all(found)
    assert any(isinstance(event, Warned) and "index" in event.message for event in heard)
    assert checked(store) == []
    store.database.close()


def test_a_damaged_index_does_not_stop_an_append(path):
    """A message is stored although the index it belongs to is damaged; the index is mended on the way."""
    for page in pages_of(path, "message_words_docsize"):
        overwrite(path, page)
    store = store_at(path)

    store.append(SessionId("session00"), [NewMessage(Message(Role.USER, "afterwards zebra"), 1.76e9, Origin.PERSON)])

    assert store.search(SearchRequest("zebra")).messages
    store.database.close()


def test_a_damaged_table_is_salvaged(path):
    """Corrupt pages of the table of messages: what can be read is brought over, the rest is counted."""
    pages = pages_of(path, "messages")
    for page in pages[10:13]:
        overwrite(path, page)

    report = repaired(path)

    assert report.found
    assert report.salvaged is not None
    lost = report.salvaged.lost["messages"]
    assert 0 < lost < 150
    assert report.salvaged.rows["messages"] == 2_000 - lost
    assert report.put_aside is not None
    assert report.put_aside.exists()
    assert report.left == []
    store = store_at(path)
    assert sum(one.message_count for one in store.recent(limit=100)) == 2_000 - lost
    assert store.search(SearchRequest("mark39x49")).messages
    store.database.close()


def test_messages_outlive_the_row_of_their_session(path):
    """When the rows of sessions are lost, their messages come back under rows made anew."""
    for page in pages_of(path, "sessions"):
        overwrite(path, page)

    report = repaired(path)

    assert report.salvaged is not None
    assert report.salvaged.rows["messages"] == 2_000
    assert report.salvaged.unnamed_sessions == 40
    store = store_at(path)
    assert len(store.messages(SessionId("session07"))) == 50
    store.database.close()


def test_a_file_in_use_is_not_put_aside(path):
    """While another connection has the file open, a damaged one is not replaced."""
    other = open_state(path)
    other.connection.execute("SELECT count(*) FROM sessions").fetchall()
    for page in pages_of(path, "messages")[10:13]:
        overwrite(path, page)

    with pytest.raises(Busy):
        repaired(path)

    other.close()
    assert not list(path.parent.glob("*.damaged-*"))


def test_a_truncated_log_loses_only_its_end(path):
    """A write-ahead log that was cut off is said; everything before the cut is there and found."""
    store = store_at(path)
    store.database.connection.pragma("wal_autocheckpoint", 0)
    for number in range(30):
        store.append(
            SessionId("session00"), [NewMessage(Message(Role.USER, f"late{number} whale"), 1.76e9, Origin.PERSON)]
        )
    copy = path.parent / "copy" / "state.db"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    log = path.with_name("state.db-wal").read_bytes()
    copy.with_name("state.db-wal").write_bytes(log[: len(log) * 2 // 3 + 100])
    store.database.close()

    finding = log_tail(copy)
    cut = store_at(copy)

    assert finding is not None
    assert checked(cut) == []
    kept = [
        text
        for text in (message.message.text for message in cut.messages(SessionId("session00")))
        if text.startswith("late")
    ]
    assert 0 < len(kept) < 30
    assert kept == [f"late{number} whale" for number in range(len(kept))]
    assert cut.search(SearchRequest(f"late{len(kept) - 1}")).messages
    cut.database.close()


def test_a_newer_database_is_left_untouched(path):
    """A file of a newer version is refused, and not one byte of it changes."""
    database = open_state(path)
    database.connection.pragma("user_version", 9_999)
    database.close()
    before = path.read_bytes()

    with pytest.raises(NewerDatabase):
        open_state(path)

    assert path.read_bytes() == before


def test_no_database_at_all(tmp_path):
    """A file that is not a database is refused in words; it is left as it is."""
    path = tmp_path / "state.db"
    path.write_bytes(b"hello, I am a letter\n" * 200)

    with pytest.raises(StorageError):
        open_state(path)

    assert path.read_bytes().startswith(b"hello")

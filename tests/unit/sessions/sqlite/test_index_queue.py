"""Messages that wait for the index: appending indexes nothing, and every search sees every message."""

from contextlib import closing
from pathlib import Path

import pytest

from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.sessions.sqlite import index, index_check
from wellkept.sessions.sqlite.store import SqliteSessionStore

NAME = SessionId("s")
NOW = 1_700_000_000.0


@pytest.fixture
def store(tmp_path: Path):
    with closing(SqliteSessionStore(tmp_path / "state.db")) as opened:
        opened.create(Session(NAME, "cli", NOW))
        yield opened


def say(store: SqliteSessionStore, *texts: str) -> list[MessageId]:
    return store.append(NAME, [NewMessage(Message(Role.USER, text), NOW, Origin.PERSON) for text in texts])


def count(store: SqliteSessionStore, table: str) -> int:
    ((number,),) = store.database.connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(str(number))


def test_appending_indexes_nothing_and_the_next_search_finds_it(store: SqliteSessionStore) -> None:
    """The row waits, the search indexes it first, and the session's count stays as appending set it."""
    (number,) = say(store, "the okapi sleeps")
    assert (count(store, "index_queue"), count(store, "message_words_docsize")) == (1, 0)

    found = store.search(SearchRequest("okapi"))

    assert [hit.message_id for hit in found.messages] == [number]
    assert (count(store, "index_queue"), count(store, "message_words_docsize")) == (0, 1)
    assert store.upkeep.check() == []


def test_what_is_sent_in_its_place_does_not_take_a_message_off_the_queue(store: SqliteSessionStore) -> None:
    """A prompt gets its recalled passages right after it was stored, before any search."""
    (first,) = say(store, "the okapi sleeps")
    store.set_sent_text(first, "the okapi sleeps, with passages")

    assert [hit.message_id for hit in store.search(SearchRequest("okapi")).messages] == [first]
    store.set_sent_text(first, "the okapi sleeps, with others")
    assert count(store, "index_queue") == 0


def test_the_queue_stays_short_without_any_search(store: SqliteSessionStore) -> None:
    """A process that only stores indexes some of what waits with its appends."""
    most = index.MOST_WAITING_CHARS // index.ROW_CHARS
    for number in range(most // 40):
        say(store, *(f"word{number} {place}" for place in range(40)))
    indexed = count(store, "message_words_docsize")
    say(store, "x" * index.MOST_WAITING_CHARS)

    assert most // 2 < indexed <= most
    assert count(store, "index_queue") == 0
    assert store.upkeep.check() == []


def test_one_of_several_writers_indexes_what_all_have_stored(store: SqliteSessionStore, tmp_path: Path) -> None:
    """A writer whose rows another one has just indexed leaves the few that came since to the next."""
    half = "x" * (index.MOST_WAITING_CHARS // 2)
    with closing(SqliteSessionStore(tmp_path / "state.db")) as other:
        say(other, *["okapi"] * 10, half)
        say(store, half, half)
        assert count(store, "index_queue") == 0
        (later,) = say(store, "later")
        say(other, half)
        assert count(store, "index_queue") == 2

        assert other.search(SearchRequest("later")).messages[0].message_id == later


def test_many_messages_of_one_call_are_indexed_at_once(store: SqliteSessionStore) -> None:
    """An import waits for no search."""
    say(store, *(f"word{number}" for number in range(index.FEW + 1)))

    assert (count(store, "index_queue"), count(store, "message_words_docsize")) == (0, index.FEW + 1)


def test_closing_leaves_nothing_waiting(tmp_path: Path) -> None:
    """The next process finds a complete index, also where it may only read."""
    with closing(SqliteSessionStore(tmp_path / "state.db")) as store:
        store.create(Session(NAME, "cli", NOW))
        say(store, "the okapi sleeps")

    with closing(SqliteSessionStore(tmp_path / "state.db")) as again:
        assert count(again, "index_queue") == 0
        assert index_check.find_faults(again.database.connection) == []


def test_the_check_compares_what_does_not_wait(store: SqliteSessionStore) -> None:
    """A wrong list of an indexed message is told while others wait."""
    (number,) = say(store, "the okapi sleeps")
    store.search(SearchRequest("okapi"))
    with store.database.writing() as connection:
        index.SqliteIndex(connection).remove([number])
    say(store, "the zebra waits")

    assert any("not in the word index" in one.what for one in store.upkeep.check())


def test_indexing_again_and_again_leaves_few_segments(store: SqliteSessionStore) -> None:
    """Each search after an append adds a segment, and a term is looked up in all of them: small ones are merged."""
    for number in range(14):
        say(store, f"the okapi sleeps {number}")
        store.search(SearchRequest("okapi"))

    ((segments,),) = store.database.connection.execute("SELECT count(DISTINCT segid) FROM message_words_idx").fetchall()
    assert segments <= 6
    assert len(store.search(SearchRequest("okapi", limit=20)).messages) == 14

"""The indexes built anew: what is found afterwards is what was found before."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from wellkept.core.clock import SystemClock
from wellkept.core.events import Event, Progressed
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import Found, SearchRequest
from wellkept.sessions.reports import ForgetPlan
from wellkept.sessions.search.analysis import IndexedText
from wellkept.sessions.search.postings import Word
from wellkept.sessions.sqlite import index, index_check
from wellkept.sessions.sqlite.postings import SqlitePostings, find
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import APPLICATION_ID, Database, open_state, state_migrations

NOW = 1_700_000_000.0
SAID = (
    "Ann: I went to the parseHttpHeader talk in src/wellkept/main.py",
    "Ben: the mice ate v1.2.3 of the cheese",
    "今天天气很好",
    "sure",
)
ASKED = ("Ann go", "parse header", "src/wellkept/main.py", "mouse", "天", "what did Ben say", "1.2.3", "sure")


def answers(store: SqliteSessionStore) -> list[Found]:
    return [find(store.database.connection, SearchRequest(query), now=NOW) for query in ASKED]


def test_a_rebuilt_index_answers_as_before(store: SqliteSessionStore) -> None:
    """Base forms, parts of identifiers, speakers and single characters are in the new index as in the old."""
    name = SessionId("s")
    store.create(Session(name, "cli", NOW))
    store.append(name, [NewMessage(Message(Role.USER, text), NOW, Origin.PERSON) for text in SAID])
    store.file.catch_up()
    before = answers(store)
    assert [query for query, found in zip(ASKED, before, strict=True) if not found.messages] == []
    assert index.rebuild(store.database, sink=lambda _: None, clock=SystemClock()) == len(SAID)
    assert answers(store) == before
    assert index_check.find_faults(store.database.connection) == []


def test_a_rebuild_notes_when_a_session_of_another_program_was_last_active(store: SqliteSessionStore) -> None:
    """A process that is killed after a rebuild leaves its queue to the next search; until then the session is dated."""
    with store.database.writing() as connection:
        connection.execute("INSERT INTO sessions (id, source, user_id, started) VALUES ('s', 'cli', 'owner', 1)")
        connection.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'owl', 5)")

    index.rebuild(store.database, sink=lambda _: None, clock=SystemClock())

    session = store.session(SessionId("s"))
    assert session is not None
    assert (session.message_count, session.last_active) == (1, 5)


def make_old_store(path: Path, count: int) -> None:
    """Make a store of the version that indexed only the first 200,000 characters of a message."""
    old = Database(path, application_id=APPLICATION_ID, migrations=state_migrations()[:15])
    with old.writing() as connection:
        index.create(connection)
        connection.execute("INSERT INTO sessions (id, source, user_id, started) VALUES ('s', 'cli', 'owner', 1)")
        for number in range(count):
            text = "filler words of a log " * 20_000 + f"quokka{number}"
            connection.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1)", (text,)
            )
            index.add_texts(connection, [IndexedText(connection.last_insert_rowid(), text[:200_000])])
        connection.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'short', 1)"
        )
        index.add_texts(connection, [IndexedText(count + 1, "short")])
        connection.execute("DELETE FROM index_queue")
        connection.execute("INSERT INTO state_meta (key, value) VALUES ('index_version', '3')")
    old.close()


def test_long_messages_of_an_old_store_are_found_by_their_last_word(tmp_path: Path) -> None:
    """They are indexed again by the next search, and nothing else is; until then the check finds nothing wrong."""
    make_old_store(tmp_path / "state.db", 1)

    with closing(SqliteSessionStore(tmp_path / "state.db")) as store:
        assert store.database.connection.execute("SELECT message_id FROM index_queue").fetchall() == [(1,)]
        assert store.upkeep.check() == []
        found = store.search(SearchRequest("quokka0"))

        assert found.messages[0].message_id == 1
        assert store.upkeep.check() == []


def test_queued_messages_are_indexed_in_short_transactions(tmp_path: Path) -> None:
    """Between long messages others can write, and a drain that was interrupted continues where it was."""
    make_old_store(tmp_path / "state.db", 6)
    waiting: list[int] = []

    with (
        closing(SqliteSessionStore(tmp_path / "state.db")) as store,
        closing(open_state(tmp_path / "state.db")) as other,
    ):
        store.database.connection.set_commit_hook(lambda: bool(waiting.append(index_size(other))))
        index.drain(store.database, seconds=3_600)

    assert waiting[0] == 6
    assert sorted(set(waiting), reverse=True) == [6, 4, 2, 0]


def index_size(database: Database) -> int:
    """Return how many messages wait, as another process sees it."""
    ((count,),) = database.connection.execute("SELECT count(*) FROM index_queue").fetchall()
    return int(str(count))


def say(store: SqliteSessionStore, texts: Iterable[str]) -> list[int]:
    """Store one message for each text."""
    if store.session(SessionId("s")) is None:
        store.create(Session(SessionId("s"), "cli", NOW))
    new = [NewMessage(Message(Role.USER, text), NOW, Origin.PERSON) for text in texts]
    return [int(number) for number in store.append(SessionId("s"), new)]


TRIGRAMS = "content='', contentless_delete=1, detail=none, tokenize='trigram remove_diacritics 1'"
OLD_INDEXES = {
    "3": [
        f"CREATE VIRTUAL TABLE message_substrings USING fts5(text, {TRIGRAMS})",
        "INSERT INTO message_substrings (rowid, text) SELECT id, content FROM messages",
    ],
    "4": [
        f"CREATE VIRTUAL TABLE message_trigrams USING fts5(text, {TRIGRAMS})",
        "INSERT INTO message_trigrams (rowid, text) SELECT id >> 3, group_concat(content, ' ') FROM messages GROUP BY 1",
        "INSERT INTO state_meta (key, value) VALUES ('trigrams_missing_below', '7')",
    ],
}


def make_store_with_trigrams(path: Path, count: int, version: str = "4") -> None:
    """Make a store with trigrams instead of the list of words: of each message, or of eight together."""
    store = SqliteSessionStore(path)
    with closing(store.database):
        say(store, (f"the winterquokka{number} sleeps" for number in range(count)))
        store.file.catch_up()
        with store.database.writing() as connection:
            connection.execute("DROP TABLE message_spellings")
            for sql in OLD_INDEXES[version]:
                connection.execute(sql)
            connection.execute("UPDATE state_meta SET value = ? WHERE key = 'index_version'", (version,))


def count_missing(store: SqliteSessionStore) -> int:
    """Return how many messages have words that are not listed yet."""
    below = "SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = 'spellings_missing_below'"
    ((count,),) = store.database.connection.execute(f"SELECT count(*) FROM messages WHERE id < ({below})").fetchall()
    return int(str(count))


@pytest.mark.parametrize("version", OLD_INDEXES)
def test_an_old_store_opens_at_once_and_is_brought_over_in_steps(tmp_path: Path, version: str) -> None:
    """Words and parts of words are found meanwhile; the check has nothing to say."""
    make_store_with_trigrams(tmp_path / "state.db", 1_300, version)

    with closing(SqliteSessionStore(tmp_path / "state.db")) as store:
        assert count_missing(store) == 1_300
        assert store.search(SearchRequest("winterquokka7")).messages[0].message_id == 8
        assert store.upkeep.check() == []
        index.fill_spellings(store.database, seconds=0, sink=lambda _: None)  # one step, as if killed after it

        assert 0 < count_missing(store) < 1_300
        assert store.upkeep.check() == []
        newest = SqlitePostings(store.database.connection).newest_containing("quokka1299", 5)
        assert newest == [1_300]
        assert SqlitePostings(store.database.connection).newest_containing("rquokka2", 500)[-1] == 3
        told: list[Event] = []
        store.file.sink = told.append
        store.upkeep.optimize()

        assert count_missing(store) == 0
        assert any(isinstance(event, Progressed) and event.task == index.TASK for event in told)
        assert SqlitePostings(store.database.connection).newest_containing("rquokka2", 500)[-1] == 3
        assert store.upkeep.check() == []
        left = "SELECT 1 FROM sqlite_schema WHERE name GLOB 'message_substrings*' OR name GLOB 'message_trigrams*'"
        assert store.database.connection.execute(left).fetchone() is None


def test_a_command_that_writes_brings_an_old_store_over(tmp_path: Path) -> None:
    """The end of such a command indexes some thousand messages."""
    make_store_with_trigrams(tmp_path / "state.db", 60)
    with closing(SqliteSessionStore(tmp_path / "state.db")) as store:
        say(store, ["one more"])

    with closing(SqliteSessionStore(tmp_path / "state.db")) as store:
        assert count_missing(store) == 0


def test_an_old_store_that_cannot_be_written_is_searched(tmp_path: Path) -> None:
    """It has no list of words; its words and parts of them are found."""
    make_store_with_trigrams(tmp_path / "state.db", 20)

    with closing(SqliteSessionStore(open_state(tmp_path / "state.db", read_only=True))) as store:
        assert store.search(SearchRequest("winterquokka7")).messages[0].message_id == 8
        assert store.search(SearchRequest("quokka7")).messages[0].message_id == 8
        assert store.search(SearchRequest('"the winterquokka7 sleeps"')).messages[0].message_id == 8


def test_what_changes_during_a_rebuild_is_in_the_new_index(tmp_path: Path) -> None:
    """A message that is taken back or removed after it was indexed is found by neither index."""
    with closing(SqliteSessionStore(tmp_path / "state.db")) as store:
        say(store, (f"number {number} saw a jerboa{number}" for number in range(2_100)))
        told: list[Event] = []

        def change(event: Event) -> None:
            if not told:
                store.forgetting.carry_out(ForgetPlan(messages=(MessageId(2),)))
                say(store, ["a tardigrade walks"])
            told.append(event)

        index.rebuild(store.database, sink=change, clock=SystemClock())
        assert len(told) > 1
        store.file.catch_up()

        postings = SqlitePostings(store.database.connection)
        assert postings.ids(Word("jerboa1")) == []
        assert 2 not in postings.newest_containing("erboa1", 2_000)
        assert postings.newest_containing("erboa2", 2_000)[-1] == 3
        assert postings.newest_containing("ardigrade", 5) == [2_101]
        assert store.upkeep.check() == []

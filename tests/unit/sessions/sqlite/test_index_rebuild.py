"""The indexes built anew: what is found afterwards is what was found before."""

from contextlib import closing
from pathlib import Path

from kept.core.clock import SystemClock
from kept.core.ids import SessionId
from kept.core.messages import Message, NewMessage, Origin, Role, Session
from kept.core.search import Found, SearchRequest
from kept.sessions.search.analysis import IndexedText
from kept.sessions.sqlite import index, index_check
from kept.sessions.sqlite.postings import find
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.storage.sqlite import APPLICATION_ID, Database, open_state, state_migrations

NOW = 1_700_000_000.0
SAID = (
    "Ann: I went to the parseHttpHeader talk in src/kept/main.py",
    "Ben: the mice ate v1.2.3 of the cheese",
    "今天天气很好",
    "sure",
)
ASKED = ("Ann go", "parse header", "src/kept/main.py", "mouse", "天", "what did Ben say", "1.2.3", "sure")


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

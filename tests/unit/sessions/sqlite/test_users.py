"""Several users in one file: what the search may read of it, and files from before usage had users."""

from wellkept.core.ids import OWNER, MessageId, SessionId, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session, Usage
from wellkept.core.search import SearchRequest
from wellkept.sessions.search import candidates
from wellkept.sessions.search.postings import SessionFilter
from wellkept.sessions.sqlite.postings import SqliteCatalog
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import APPLICATION_ID, Database, open_state, state_migrations

KIM = UserId("kim")
EVERY_SESSION = SessionFilter(None, (), None, None)


def say(store: SqliteSessionStore, name: str) -> MessageId:
    store.create(Session(SessionId(name), "cli", 1.0))
    (number,) = store.append(SessionId(name), [NewMessage(Message(Role.USER, "a violin"), 1.0, Origin.PERSON)])
    return number


def test_the_catalog_knows_one_users_sessions(store: SqliteSessionStore) -> None:
    """By id, by condition and by span, sessions of another user do not exist."""
    say(store, "mine")
    say(store.for_user(KIM), "theirs")
    catalog = SqliteCatalog(store.database.connection, user=OWNER)

    assert set(catalog.sessions(["mine", "theirs"])) == {"mine"}
    assert list(catalog.session_ids(EVERY_SESSION, 10)) == ["mine"]
    assert catalog.span(["mine"]) is not None
    assert catalog.span(["theirs"]) is None


def test_a_user_with_many_sessions_finds_none_of_another(store: SqliteSessionStore, monkeypatch) -> None:
    """Where a user's sessions are too many to be listed first, each candidate is still tested."""
    monkeypatch.setattr(candidates, "_FEW_SESSIONS", 0)
    say(store, "mine")
    say(store.for_user(KIM), "theirs")

    found = store.search(SearchRequest("violin"))

    assert {hit.session_id for hit in found.messages} == {"mine"}
    assert sum(found.excluded.values()) == 0


def test_usage_of_an_older_file_goes_to_its_sessions_users(tmp_path) -> None:
    """Rows move to the user of their session; those of sessions that are gone are the owner's."""
    path = tmp_path / "state.db"
    old = Database(path, application_id=APPLICATION_ID, migrations=state_migrations()[:2])
    with old.writing() as connection:
        for name, user in (("a", "owner"), ("k", "kim")):
            connection.execute(
                "INSERT INTO sessions (id, source, user_id, started) VALUES (?, 'cli', ?, 1)", (name, user)
            )
        for name, tokens in (("a", 1), ("k", 2), ("", 4)):
            connection.execute(
                "INSERT INTO usage (session_id, day, model, task, api_call_count, input_tokens) "
                "VALUES (?, '2026-01-01', 'm', 'main', 1, ?)",
                (name, tokens),
            )
    old.close()

    store = SqliteSessionStore(open_state(path))

    assert sorted((row.session_id, row.usage) for row in store.usage()) == [("", Usage(4)), ("a", Usage(1))]
    assert [(row.session_id, row.usage) for row in store.for_user(KIM).usage()] == [("k", Usage(2))]
    store.close()

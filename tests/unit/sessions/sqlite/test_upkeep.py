"""Whole sessions removed from the tables of a file, and the file measured; the rest is in the contract of keepers."""

from kept.core.ids import SessionId
from kept.core.messages import ImagePart, Message, NewMessage, Origin, Role, Session
from kept.sessions.sqlite import index_check, removal


def talk(store, name, *contents):
    store.create(Session(SessionId(name), "cli", 1.0), system_prompt=f"only of {name}")
    store.append(SessionId(name), [NewMessage(Message(Role.USER, one), 1.0, Origin.PERSON) for one in contents])


def test_what_is_removed_leaves_no_row(store):
    """Swept from the trash, a session takes its messages, blobs, prompt and index rows with it."""
    talk(store, "a", "hidden okapi", (ImagePart("image/png", "QUJDRA=="),))
    store.upkeep.delete([SessionId("a")])

    store.upkeep.sweep(days=0)

    for table in ("sessions", "messages", "blobs", "blob_uses", "prompts", "index_queue"):
        assert store.database.connection.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]
    assert index_check.find_faults(store.database.connection) == []


def test_a_large_session_is_removed_in_steps(store):
    """More messages than one step takes are removed, whole and with their index."""
    talk(store, "a", *(f"m{number}" for number in range(removal.STEP + 10)))
    talk(store, "b", "stays")

    removed = removal.purge_sessions(store.database, [SessionId("a")], keep_borrowed=True)

    assert removed.messages == removal.STEP + 10
    assert index_check.find_faults(store.database.connection) == []
    assert [one.id for one in store.recent(limit=5)] == ["b"]


def test_statistics_name_every_table(store):
    """The bytes are told for each table and index."""
    talk(store, "a", "x" * 500)

    found = store.upkeep.stats()

    assert {"messages", "sessions", "message_words_data"} <= set(found["tables"])

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


def test_only_a_vacuum_gives_space_back(store):
    """Optimising leaves the freed pages in the file; with `vacuum` the file shrinks."""
    talk(store, "a", *(f"{number} " * 2_000 for number in range(50)))
    store.upkeep.optimize()
    store.upkeep.delete([SessionId("a")])
    store.upkeep.sweep(days=0)

    plain = store.upkeep.optimize()
    packed = store.upkeep.optimize(vacuum=True)

    assert plain["bytes_after"] >= plain["bytes_before"] * 0.9
    assert packed["bytes_after"] < packed["bytes_before"] * 0.5


def test_a_prompt_is_stored_later_too(store):
    """The prompt that a session reuses is the one that was set last."""
    talk(store, "a", "hello")

    store.set_system_prompt(SessionId("a"), "you are brief")

    assert store.system_prompt(SessionId("a")) == "you are brief"


def test_a_year_is_told_month_by_month(store):
    """The statistics go back twelve months."""
    month = 31 * 86_400.0
    for number in range(14):
        session = SessionId(f"s{number}")
        store.create(Session(session, "cli", number * month))
        store.append(session, [NewMessage(Message(Role.USER, "x"), number * month, Origin.PERSON)])

    assert len(store.upkeep.stats()["growth"]) == 12

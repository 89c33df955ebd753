"""Whole sessions removed from the tables of a file, and the file measured; the rest is in the contract of keepers."""

from contextlib import closing

import apsw
import pytest

from wellkept.core.clock import FixedClock
from wellkept.core.ids import MessageId, SessionId, UserId
from wellkept.core.messages import ImagePart, Message, NewMessage, Origin, Role, Session, State
from wellkept.core.search import SearchRequest
from wellkept.sessions.rows import removal
from wellkept.sessions.settings import SessionSettings
from wellkept.sessions.sqlite import index_check
from wellkept.sessions.sqlite.store import SqliteSessionStore


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


A = SessionId("a")
READINGS = {
    "session": lambda store: store.session(A).id,
    "recent": lambda store: [one.id for one in store.recent(limit=5)],
    "append": lambda store: store.append(A, [NewMessage(Message(Role.USER, "x"), 1.0, Origin.PERSON)]),
    "messages": lambda store: [one.message.text for one in store.messages(A)],
    "context": lambda store: [one.message.text for one in store.context(A)],
    "window": lambda store: [one.message.text for one in store.window(MessageId(1), before=1, after=1)],
    "message": lambda store: store.message(MessageId(1)).message.text,
    "search": lambda store: [hit.session_id for hit in store.search(SearchRequest("okapi")).sessions],
}


def damage_everything_derived(path):
    """Overwrite the indexes of sessions and messages, and the search index."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        of_rows = "SELECT rootpage FROM sqlite_schema WHERE type = 'index' AND tbl_name IN ('sessions', 'messages')"
        roots = [row[0] for row in connection.execute(of_rows)]
        size = connection.pragma("page_size")
        words = "SELECT pageno FROM dbstat WHERE name IN ('message_words_data', 'message_spellings')"
        pages = [*roots, *(row[0] for row in connection.execute(words))]
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * size)
            file.write(b"\xee" * size)


@pytest.mark.parametrize("name", READINGS)
def test_a_damaged_index_is_rebuilt_by_whatever_meets_it(tmp_path, name):
    """Reading, appending and searching give the same as on a whole file."""
    path = tmp_path / "state.db"
    with closing(SqliteSessionStore(path)) as store:
        talk(store, "a", "an okapi", "second")
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    with closing(SqliteSessionStore(copy)) as store:
        expected = READINGS[name](store)
    damage_everything_derived(path)

    with closing(SqliteSessionStore(path)) as store:
        found = READINGS[name](store)

        assert found == expected
        assert store.upkeep.check() == []


def test_rewound_messages_are_never_read(store):
    """Whatever states a caller asks for."""
    talk(store, "a", "first", "second")
    store.rewind(A, MessageId(2))

    assert [one.message.text for one in store.messages(A, states=list(State))] == ["first"]


def test_what_is_not_there_has_nothing(store):
    """Reading parts of an unknown session gives the empty answer of each."""
    nobody = SessionId("nobody")
    talk(store, "a", "first", "second")

    assert store.count_before(nobody, MessageId(2)) == 0
    assert store.count_before(A, MessageId(2)) == 1
    assert (store.edges(nobody, first=2, last=2), store.context_ids(nobody)) == (([], []), [])
    assert (store.preview(nobody), store.nodes(nobody), store.read_note(nobody, "x")) == ("", [], None)
    assert store.totals() == (1, 2)


def test_optimising_completes_what_was_put_off(store):
    """Messages of other programs are indexed, checksums are computed, the index becomes one segment."""
    for number in range(30):
        talk(store, f"s{number}", f"okapi {number}")
        store.file.catch_up()
    connection = store.database.connection
    connection.execute("UPDATE messages SET checksum = NULL")
    connection.execute("INSERT INTO state_meta VALUES ('checksums_missing_to', '30', NULL)")
    connection.execute("INSERT OR IGNORE INTO index_queue (message_id) VALUES (3)")
    before = segments(connection)

    report = store.upkeep.optimize()

    assert report["caught_up"] == 1
    assert connection.execute("SELECT count(*) FROM messages WHERE checksum IS NULL").fetchall() == [(0,)]
    assert segments(connection) < before


def segments(connection):
    return connection.execute("SELECT count(DISTINCT id >> 37) FROM message_words_data WHERE id > 10").fetchall()[0][0]


def test_a_rebuilt_index_waits_for_nothing(store):
    """A row of the queue whose message is gone would make every later check leave the index out."""
    talk(store, "a", "an okapi")
    store.database.connection.execute("INSERT INTO index_queue (message_id) VALUES (99)")

    assert store.upkeep.reindex() == 1

    assert store.database.connection.execute("SELECT count(*) FROM index_queue").fetchall() == [(0,)]


def test_the_trash_is_emptied_after_the_days_of_the_settings(tmp_path):
    """Not before; and `days` given by hand is what counts then."""
    clock = FixedClock()
    with closing(SqliteSessionStore(tmp_path / "state.db", SessionSettings(trash_days=3), clock=clock)) as store:
        talk(store, "a", "first", "second")
        store.upkeep.delete([A])
        clock.forward(days=2)
        assert store.upkeep.sweep().sessions == 0
        assert store.upkeep.sweep(days=2.5).sessions == 0
        clock.forward(days=1.5)

        removed = store.upkeep.sweep()

        assert (removed.sessions, removed.messages) == (1, 2)
        assert store.upkeep.trash() == []


def test_a_prune_by_size_takes_the_oldest_until_the_rest_fits(store):
    """And tells how many bytes go."""
    for number in range(4):
        session = SessionId(f"s{number}")
        store.create(Session(session, "cli", float(number)))
        store.append(session, [NewMessage(Message(Role.USER, "x" * 100), float(number), Origin.PERSON)])

    found = store.upkeep.prunable(days=None, source=None, most_bytes=200)

    assert ([one.id for one in found.sessions], found.text_bytes) == (["s0", "s1"], 200)
    assert store.upkeep.prunable(days=None, source=None, most_bytes=400).sessions == ()
    assert [one.id for one in store.upkeep.prunable(days=None, source=None, most_bytes=399).sessions] == ["s0"]


def test_statistics_tell_the_ten_biggest_sessions(store):
    """With their title, and the growth of each month."""
    for number in range(12):
        session = SessionId(f"s{number:02}")
        store.create(Session(session, "cli", 1.7e9, title=f"Talk {number}"))
        store.append(session, [NewMessage(Message(Role.USER, "x" * (number + 1)), 1.7e9, Origin.PERSON)])

    found = store.upkeep.stats()

    assert [one["session_id"] for one in found["biggest"]] == [f"s{number:02}" for number in range(11, 1, -1)]
    assert found["biggest"][0] == {"session_id": "s11", "title": "Talk 11", "messages": 1, "text_bytes": 12}
    assert found["growth"] == [{"month": "2023-11", "messages": 12, "text_bytes": 78}]
    assert (found["sessions"], found["in_trash"], found["messages"], found["text_bytes"]) == (12, 0, 12, 78)
    assert found["file_bytes"] == store.database.path.stat().st_size


def test_a_message_that_two_branches_carry_moves_to_one_of_them(store):
    """When its session is removed for good, the other branch still shows it, once, and both counts are right."""
    talk(store, "a", "first", "second")
    for name in ("b", "c"):
        store.branch(A, at=None, new=Session(SessionId(name), "cli", 2.0))
    store.upkeep.delete([A])

    removed = store.upkeep.sweep(days=0)

    assert (removed.sessions, removed.messages) == (1, 0)
    for name in ("b", "c"):
        assert [one.message.text for one in store.context(SessionId(name))] == ["first", "second"]
    assert store.upkeep.check() == []


def test_marks_of_users_are_their_own():
    """The owner's marks have the plain id, as before there were other users; messages by id or by content."""
    owner = removal.mark_scope("s", UserId("owner"))
    ann = removal.mark_scope("s", UserId("ann"))

    assert (owner, ann != owner) == ("s", True)
    assert removal.session_mark("salt", owner) != removal.session_mark("salt", ann)
    assert removal.session_mark("salt", owner) != removal.session_mark("pepper", owner)
    by_id = removal.message_mark("salt", "s", external_id="1", mark=b"x")
    assert by_id == removal.message_mark("salt", "s", external_id="1", mark=b"y")
    assert by_id != removal.message_mark("salt", "s", external_id=None, mark=b"x")


def test_the_salt_of_a_file_stays_the_same(store):
    """It is made once: another salt would make every mark worthless."""
    connection = store.database.connection
    assert removal.find_salt(connection) == ""

    salt = removal.make_salt(connection)

    assert (len(salt), removal.make_salt(connection), removal.find_salt(connection)) == (32, salt, salt)

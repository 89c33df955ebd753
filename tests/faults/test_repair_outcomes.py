"""What a repair keeps apart: users, the trash, sessions without an owner; and what a check must not report."""

import random

import pytest

from wellkept.config.home import Home
from wellkept.core.clock import SystemClock
from wellkept.core.errors import ForeignDatabase, NotFound, Unreadable
from wellkept.core.ids import SessionId, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.sessions.settings import SessionSettings
from wellkept.sessions.sqlite.check import check_file
from wellkept.sessions.sqlite.repair import Repair
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.sqlite import PAGE_BYTES, Database, open_state

USERS = (UserId("owner"), UserId("alice"))


def silent(event):
    """Ignore the event."""


@pytest.fixture
def path(tmp_path):
    """Sessions of two users, one of each in the trash, enough messages for several pages."""
    path = tmp_path / "state.db"
    store = SqliteSessionStore(open_state(path))
    for number in range(12):
        own = store.for_user(USERS[number % 2])
        name = SessionId(f"session{number:02}")
        own.create(Session(name, "cli", 1.75e9 + number, title=f"Talk {number}"))
        for place in range(20):
            text = f"mark{number}x{place} whale " + "lake and river " * 8
            own.append(name, [NewMessage(Message(Role.USER, text), 1.75e9 + place, Origin.PERSON)])
        if number >= 10:
            own.upkeep.delete([name])
    store.close()
    return path


def pages_of(path, table, kind="leaf"):
    database = open_state(path)
    sql = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ? ORDER BY pageno"
    found = [row[0] for row in database.connection.execute(sql, (table, kind)).fetchall()]
    database.close()
    return found


def overwrite(path, page):
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(random.Random(page).randbytes(PAGE_BYTES))


def repair(path):
    return Repair(path, SessionSettings(), clock=SystemClock(), sink=silent).run()


def found_by(store, user):
    return {hit.session_id for hit in store.for_user(user).search(SearchRequest("whale", limit=50)).messages}


def test_restored_sessions_keep_their_user_and_stay_in_the_trash(path):
    """All rows of sessions are lost; their indexes say whose they are, and what was deleted."""
    for page in pages_of(path, "sessions"):
        overwrite(path, page)

    report = repair(path)

    assert len(report.salvaged.restored) == 12
    assert report.salvaged.quarantined == []
    store = SqliteSessionStore(open_state(path))
    for user, first in zip(USERS, (0, 1), strict=True):
        own = store.for_user(user)
        assert {session.id for session in own.recent(limit=50)} == {f"session{one:02}" for one in range(first, 10, 2)}
        assert [session.id for session in own.upkeep.trash()] == [f"session{10 + first}"]
        assert all(int(name[-2:]) % 2 == first for name in found_by(store, user))
    store.database.close()


def test_sessions_without_a_certain_owner_are_quarantined(path):
    """Rows and indexes of sessions are lost: nobody finds the messages, until they are given to a user."""
    for table in ("sessions", "sqlite_autoindex_sessions_1", "sessions_recent", "sessions_title"):
        for page in pages_of(path, table):
            overwrite(path, page)

    report = repair(path)

    assert report.salvaged.rows["messages"] == 240
    assert len(report.salvaged.quarantined) == 12
    assert all(finding.is_lost for finding in report.left)
    store = SqliteSessionStore(open_state(path))
    assert store.users() == []
    assert found_by(store, USERS[0]) == found_by(store, USERS[1]) == set()
    assert any("belong to nobody" in finding.what for finding in store.upkeep.check())
    store.upkeep.give([SessionId("session03")], user=USERS[1])
    assert found_by(store, USERS[1]) == {"session03"}
    assert found_by(store, USERS[0]) == set()
    with pytest.raises(NotFound):
        store.upkeep.give([SessionId("session03")], user=USERS[0])
    store.database.close()


@pytest.mark.parametrize("last", [2**62, 2**63 - 1, 0])
def test_a_wild_sequence_neither_hangs_nor_loses(path, last):
    """The last number of a table says nothing about its rows."""
    database = open_state(path)
    database.connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'messages'", (last,))
    database.close()
    overwrite(path, pages_of(path, "messages")[3])

    report = repair(path)

    lost = len(report.salvaged.lost["messages"])
    assert 0 < lost < 20
    assert report.salvaged.rows["messages"] == 240 - lost
    store = SqliteSessionStore(open_state(path))
    (number,) = store.append(
        SessionId("session00"), [NewMessage(Message(Role.USER, "late zebra"), 1.76e9, Origin.PERSON)]
    )
    assert number == 241
    store.database.close()


@pytest.mark.parametrize("size", [16, 100, PAGE_BYTES])
def test_a_zeroed_header_loses_nothing(path, size):
    """Magic, header, or the whole first page with the root of the schema."""
    with path.open("r+b") as file:
        file.write(bytes(size))

    with pytest.raises(Unreadable):
        open_state(path)
    report = repair(path)

    assert (report.salvaged.rows["messages"], report.salvaged.rows["sessions"]) == (240, 12)
    assert report.left == []


@pytest.mark.parametrize(("at", "mask"), [(60, 0x10), (63, 0x10), (63, 0x01), (68, 0x10), (71, 0x01)])
def test_a_damaged_mark_or_version_does_not_make_the_file_foreign_or_newer(path, at, mask):
    """One bit in the application id or in the version: our file, damaged; not another program's, and not empty."""
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ mask]))

    assert Home(path.parent).database == path
    with pytest.raises(Unreadable):
        open_state(path)
    assert repair(path).salvaged.rows["messages"] == 240


def test_the_file_of_another_program_stays_foreign(tmp_path):
    """Sessions and messages alone do not make a file ours, and a repair does not touch it."""
    import apsw

    path = tmp_path / "state.db"
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY); CREATE TABLE messages (id INTEGER, content TEXT)")
    other.close()
    before = path.read_bytes()

    assert Home(tmp_path).database == tmp_path / "kept.db"
    with pytest.raises(ForeignDatabase):
        repair(path)
    assert path.read_bytes() == before


def test_a_file_that_was_only_begun_is_healthy(tmp_path):
    """A process was killed between creating the file and the first migration."""
    path = tmp_path / "state.db"
    Database(path, application_id=APPLICATION_ID, migrations=()).close()

    assert check_file(path, clock=SystemClock()) == []


def test_many_alike_messages_are_healthy(tmp_path):
    """A search cannot show all of them; that is not a fault."""
    path = tmp_path / "state.db"
    store = SqliteSessionStore(open_state(path))
    store.create(Session(SessionId("s"), "cli", 1.75e9))
    alike = NewMessage(Message(Role.USER, "nothing new under the bright lamp"), 1.75e9, Origin.PERSON)
    store.append(SessionId("s"), [alike] * 60)

    assert store.upkeep.check() == []
    store.close()
    assert check_file(path, clock=SystemClock()) == []


def test_a_running_process_with_a_full_log_is_healthy(path):
    """The log was restarted, is cut to its limit, and holds old frames after the new ones."""
    running = open_state(path)
    running.connection.pragma("wal_autocheckpoint", 0)
    store = SqliteSessionStore(running)
    for number in range(30):
        new = NewMessage(Message(Role.USER, f"late {number} " + "reed " * 900), 1.76e9, Origin.PERSON)
        store.append(SessionId("session00"), [new])
        if number == 20:
            running.connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    with path.with_name("state.db-wal").open("ab") as log:
        log.write(bytes(777))

    assert check_file(path, clock=SystemClock()) == []
    running.close()


def test_the_check_writes_nothing(path):
    """Neither the file nor its folder changes, except for what SQLite itself needs to read a log."""
    before = path.read_bytes()

    assert check_file(path, clock=SystemClock()) == []

    assert path.read_bytes() == before
    assert {file.name for file in path.parent.iterdir()} <= {"state.db", "state.db-wal", "state.db-shm"}

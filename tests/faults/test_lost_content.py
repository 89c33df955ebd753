"""A database that was emptied, and a damaged write-ahead log: losses are reported, intact data is saved."""

import random
import shutil
from contextlib import closing

import pytest

from wellkept.app import open_app
from wellkept.app.store_care import check_store
from wellkept.core.clock import SystemClock
from wellkept.core.errors import DamagedLog
from wellkept.core.events import Warned
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.salvage.pages import PageFile
from wellkept.salvage.rows import Salvage, describe_shapes
from wellkept.sessions.reports import Salvaged
from wellkept.sessions.settings import SessionSettings
from wellkept.sessions.sqlite.check import check_file
from wellkept.sessions.sqlite.repair import Repair
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

TALKS = 30


def check(home):
    """Return what the doctor says about the conversations; None if nothing was ever stored."""
    app = open_app(str(home), environ={})
    try:
        found = check_store(app)
        return None if found is None else [finding.what for finding in found]
    finally:
        app.close()


@pytest.mark.parametrize("trace", ["config.yaml", "memories/ledger.db", "backups/old.tar", "state.db.before-3", None])
def test_an_emptied_database_does_not_count_as_new(tmp_path, trace):
    """In a home that was in use the doctor reports it, before and after the next command creates a new database."""
    (tmp_path / "state.db").touch()
    if trace is not None:
        (tmp_path / trace).parent.mkdir(exist_ok=True)
        (tmp_path / trace).touch()

    before = check(tmp_path)
    app = open_app(str(tmp_path), environ={})
    app.owner.sessions.recent(limit=1)
    app.close()
    after = check(tmp_path)

    if trace is None:
        assert (before, after) == (None, [])
    else:
        assert "state.db is empty (0 bytes)" in before[0]
        assert "was found empty and set aside as state.db.damaged-" in after[0]
        assert (tmp_path / "state.db").stat().st_size > 0


def test_an_empty_log_of_a_database_that_was_set_aside_is_not_reported(tmp_path):
    """A forget removes the copy and may leave its log, which holds nothing."""
    app = open_app(str(tmp_path), environ={})
    app.owner.sessions.create(Session(SessionId("one"), "cli", 1.75e9))
    app.close()
    (tmp_path / "state.db.damaged-20261117-164316-wal").touch()

    assert check(tmp_path) == []


@pytest.fixture
def unfinished(tmp_path):
    """A copy of a store whose log holds every page."""
    running = tmp_path / "running"
    running.mkdir()
    store = SqliteSessionStore(open_state(running / "state.db"))
    store.database.connection.pragma("wal_autocheckpoint", 0)
    store.database.connection.set_wal_hook(None)
    store.database.connection.execute("VACUUM")  # writes the tables to the log too
    for number in range(TALKS):
        name = SessionId(f"session{number:02}")
        store.create(Session(name, "cli", 1.75e9 + number))
        store.append(name, [NewMessage(Message(Role.USER, f"lake {number} " * 30), 1.75e9, Origin.PERSON)])
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("state.db", "state.db-wal"):
        shutil.copy(running / name, copy / name)
    store.close()
    return copy / "state.db"


def repair(path):
    return Repair(path, SessionSettings(), clock=SystemClock(), sink=lambda event: None).run()


def count(path):
    database = open_state(path)
    ((found,),) = database.connection.execute("SELECT count(*) FROM messages WHERE content GLOB 'lake*'").fetchall()
    database.close()
    return found


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_log_without_its_file_is_saved(unfinished, is_missing):
    """SQLite would delete the log of an empty file; a log that holds every page is made a file again."""
    unfinished.write_bytes(b"")
    if is_missing:
        unfinished.unlink()

    (finding,) = check_file(unfinished, clock=SystemClock())
    report = repair(unfinished)

    assert "the log is there" in finding.what
    assert (count(unfinished), report.left) == (TALKS, [])
    assert report.salvaged is None


def damage_log(data, choose):
    """Return the bytes of a damaged log: a flipped bit, one in the header of a frame, or an overwritten part."""
    data, step = bytearray(data), 24 + 4_096
    frame = 32 + choose.randrange((len(data) - 32) // step - 1) * step
    start, size = choose.randrange(len(data) - step), choose.randrange(2, 600)
    match choose.choice(["bit", "bit", "header", "range", "range", "frame", "frames"]):
        case "bit":
            data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
        case "header":
            data[frame + choose.randrange(24)] ^= 1 << choose.randrange(8)
        case "range":
            data[start : start + size] = choose.choice([bytes(size), choose.randbytes(size)])
        case kind:
            size = step if kind == "frame" else min(3 * step, len(data) - step - frame)
            data[frame : frame + size] = choose.choice([bytes(size), choose.randbytes(size)])
    return bytes(data)


def find_cells(path):
    """Return where in the log, or else in the file, the newest bytes of each message are."""
    file = PageFile(path)
    with closing(open_state(path, read_only=True)) as database:
        shapes = describe_shapes(database.connection)
    found = {}
    for page in Salvage(file, shapes).extents["messages"].pages:
        tree = file.tree(page)
        at = file.log.frames.get(page)
        for cell in tree.cells if tree.is_leaf else ():
            found[cell.rowid] = (at + cell.start, at + cell.end) if at is not None else None
    return found


def read_messages(path):
    with closing(open_state(path, read_only=True)) as database:
        return dict(database.connection.execute("SELECT id, content FROM messages").fetchall())


@pytest.mark.parametrize("seed", range(8))
def test_what_is_whole_in_a_damaged_log_is_saved_and_the_rest_is_named(unfinished, seed):
    """Damage anywhere in the log costs at most the rows that it hits, and these are named."""
    log = unfinished.with_name("state.db-wal")
    before, cells = log.read_bytes(), find_cells(unfinished)
    healthy = read_messages(unfinished)
    log.write_bytes(before)  # the last reader removes it
    choose = random.Random(seed)
    while (after := damage_log(before, choose)) == before:
        pass  # zeros over zeros
    log.write_bytes(after)

    found = check_file(unfinished, clock=SystemClock())
    report = repair(unfinished)

    assert any("log" in finding.what for finding in found), found
    salvaged = report.salvaged or Salvaged()  # where every page could be recovered, no row is copied
    now = read_messages(unfinished)
    named = {one.partition(" ")[0] for table in (salvaged.damaged, salvaged.lost) for one in table.get("messages", [])}
    changed = [number for number, text in healthy.items() if now.get(number) != text]
    is_intact = {number: cell is None or before[slice(*cell)] == after[slice(*cell)] for number, cell in cells.items()}
    assert [number for number in changed if is_intact[number]] == []
    assert [number for number in changed if str(number) not in named] == []
    assert all(finding.is_lost for finding in report.left), report.left


def test_a_log_whose_pages_can_be_recovered_is_when_the_file_is_opened(unfinished):
    """SQLite would read up to the damage and remove the log with everything that was committed after it."""
    log = unfinished.with_name("state.db-wal")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 4
    log.write_bytes(data)

    assert count(unfinished) == TALKS

    (aside,) = unfinished.parent.glob("state.db.damaged-*-wal")
    assert aside.read_bytes() == bytes(data)


def test_a_log_whose_pages_cannot_be_recovered_is_left_to_a_repair(unfinished):
    """Opening the file alone changes nothing; the store repairs it before."""
    log = unfinished.with_name("state.db-wal")
    data = bytearray(log.read_bytes())
    middle = 32 + len(data) // (24 + 4_096) // 2 * (24 + 4_096)
    data[middle : middle + 4_120] = bytes(4_120)
    log.write_bytes(data)

    with pytest.raises(DamagedLog, match="pages in it cannot be read"):
        open_state(unfinished)
    assert log.read_bytes() == bytes(data)

    events = []
    store = SqliteSessionStore(unfinished, sink=events.append)
    store.close()
    (warning,) = [event for event in events if isinstance(event, Warned)]
    assert "state.db was repaired" in warning.message
    assert count(unfinished) >= TALKS - 2


def test_a_torn_end_of_a_log_is_not_damage(unfinished):
    """A loss of power leaves it: the last transaction was never whole, and nothing comes after it."""
    log = unfinished.with_name("state.db-wal")
    data = log.read_bytes()
    log.write_bytes(data[:-100] + bytes(100))

    assert count(unfinished) in {TALKS - 1, TALKS}

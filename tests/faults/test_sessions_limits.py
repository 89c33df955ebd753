"""Conditions that nobody plans for: a full disk, huge messages, a clock that goes backwards, a foreign file."""

import json
import shutil
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from wellkept.core.clock import FixedClock
from wellkept.core.events import Warned
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.sessions.sqlite import index_check
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

NAME = SessionId("a")


def said(text, at=1.75e9):
    return NewMessage(Message(Role.USER, text), at, Origin.PERSON)


@pytest.fixture
def store(tmp_path):
    database = open_state(tmp_path / "state.db")
    store = SqliteSessionStore(database)
    store.create(Session(NAME, "cli", 1.75e9))
    yield store
    database.close()


FULL_DISK = textwrap.dedent(
    """
    import json, os, sys
    from pathlib import Path
    from wellkept.core.errors import StorageError
    from wellkept.core.ids import SessionId
    from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
    from wellkept.core.search import SearchRequest
    from wellkept.sessions.sqlite import index, index_check
    from wellkept.sessions.sqlite.store import SqliteSessionStore
    from wellkept.storage.sqlite import open_state

    folder = Path(sys.argv[1])
    store = SqliteSessionStore(open_state(folder / "state.db"))
    name = SessionId("a")
    store.create(Session(name, "cli", 1.0))
    kept, errors = [], []
    for number in range(20_000):
        text = f"message{number} " + "filler of the disk " * 40
        try:
            kept += store.append(name, [NewMessage(Message(Role.USER, text), 1.0, Origin.PERSON)])
        except StorageError as error:
            errors.append([error.message, error.remedy])
            if len(errors) == 3:
                break
    (folder / "ballast").unlink()
    after = store.append(name, [NewMessage(Message(Role.USER, "room again zebra"), 1.0, Origin.PERSON)])
    print(json.dumps({
        "kept": len(kept),
        "stored": len(store.messages(name)),
        "errors": errors,
        "found": len(store.search(SearchRequest("zebra")).messages),
        "index": index_check.find_faults(store.database.connection),
    }))
    """
)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs a mount of its own")
def test_a_full_disk_is_reported_and_survived(tmp_path):
    """On a full disk an append is refused with the reason, nothing stored is lost, and with room it works again."""
    (tmp_path / "full.py").write_text(FULL_DISK)
    disk = tmp_path / "disk"
    disk.mkdir()
    script = (
        f"mount -t tmpfs -o size=6m tmpfs {disk} && dd if=/dev/zero of={disk}/ballast bs=1M count=2 status=none "
        f"&& {sys.executable} {tmp_path / 'full.py'} {disk}"
    )
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no mount here: {done.stderr.strip()}")

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["errors"]
    assert "disk" in result["errors"][0][0]
    assert result["stored"] == result["kept"] + 1
    assert result["found"] >= 1
    assert result["index"] == []


def test_a_message_of_ten_megabytes(store):
    """A huge message is stored, read back whole and found by its words."""
    text = "needle " + "lorem ipsum dolor sit amet " * 400_000

    (number,) = store.append(NAME, [said(text)])

    assert len(text) > 10_000_000
    assert store.messages(NAME)[0].message.text == text
    assert store.search(SearchRequest("needle")).messages[0].message_id == number


def test_base64_in_the_text_is_kept_once_and_apart(store):
    """Long base64 in a message is stored by its hash outside the text, once, and comes back byte for byte."""
    encoded = "QUJDabc123+/" * 5_000

    store.append(NAME, [said(f"data:image/png;base64,{encoded} first"), said(f"again {encoded}"), said("x" * 5_000)])

    kept = [message.message.text for message in store.messages(NAME)]
    assert kept == [f"data:image/png;base64,{encoded} first", f"again {encoded}", "x" * 5_000]
    connection = store.database.connection
    assert connection.execute("SELECT count(*) FROM blobs").fetchall() == [(1,)]
    assert max(length for (length,) in connection.execute("SELECT length(content) FROM messages")) < 6_000


def test_a_clock_that_goes_backwards(tmp_path):
    """Order follows the writing, not the clock; the last activity never moves back; leases still end."""
    clock = FixedClock()
    began = clock.moment.timestamp()
    database = open_state(tmp_path / "state.db")
    store = SqliteSessionStore(database, clock=clock)
    store.create(Session(NAME, "cli", clock.moment.timestamp()))
    store.append(NAME, [said("first", clock.moment.timestamp())])
    clock.forward(days=-400)

    store.append(NAME, [said("second", clock.moment.timestamp())])

    assert [message.message.text for message in store.context(NAME)] == ["first", "second"]
    session = store.session(NAME)
    assert session.last_active == began
    assert len(store.search(SearchRequest("second")).messages) >= 1
    database.close()


def test_rows_of_another_program_are_found(store):
    """The next search finds a row that a plain SQLite client inserted or changed, and not one that it deleted."""
    other = sqlite3.connect(store.database.path)
    with other:
        other.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', 'walrus tusk', 5)"
        )
    assert [hit.message_id for hit in store.search(SearchRequest("walrus")).messages] == [1]
    assert store.session(NAME).message_count == 1
    with other:
        other.execute("UPDATE messages SET content = 'narwhal tusk' WHERE id = 1")
    assert store.search(SearchRequest("walrus")).messages == ()
    assert [hit.message_id for hit in store.search(SearchRequest("narwhal")).messages] == [1]
    with other:
        other.execute("DELETE FROM messages WHERE id = 1")
    other.close()

    assert store.search(SearchRequest("narwhal")).messages == ()
    assert index_check.find_faults(store.database.connection) == []
    assert store.upkeep.check() == []


def test_a_foreign_database_is_left_alone(tmp_path):
    """Beside another program's state.db we use kept.db, say so once with the import command, and never write theirs."""
    path = tmp_path / "state.db"
    theirs = sqlite3.connect(path)
    with theirs:
        theirs.execute("CREATE TABLE sessions (id TEXT)")
    theirs.close()
    before = path.read_bytes()
    heard = []

    for _ in range(2):
        database = open_state(path, sink=heard.append)
        SqliteSessionStore(database)
        assert database.path.name == "kept.db"
        database.close()

    assert path.read_bytes() == before
    assert len(heard) == 1
    assert isinstance(heard[0], Warned)
    assert "kept import" in heard[0].remedy


def test_another_version_of_the_index_is_rebuilt(store, tmp_path):
    """An index that another version made is rebuilt at the next open, and finds everything."""
    store.append(NAME, [said("ocelot one"), said("ocelot two")])
    with store.database.writing() as connection:
        connection.execute("UPDATE state_meta SET value = '0' WHERE key = 'index_version'")
        connection.execute("DELETE FROM message_words WHERE rowid = 1")
    store.database.close()

    again = SqliteSessionStore(open_state(tmp_path / "state.db"))

    assert len(again.search(SearchRequest("ocelot")).messages) == 2
    assert index_check.find_faults(again.database.connection) == []
    again.database.close()

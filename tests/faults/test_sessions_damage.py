"""Damaged files of a store: the check reports the damage, and a repair restores what it can and reports the rest."""

import os
import random
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from wellkept.core.clock import SystemClock
from wellkept.core.errors import Busy, NewerDatabase, StorageError
from wellkept.core.events import Warned
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.memory.page import Add
from wellkept.memory.store import MemoryStore
from wellkept.sessions.settings import EmbeddingSettings, SessionSettings
from wellkept.sessions.sqlite.check import check_file
from wellkept.sessions.sqlite.repair import INDEX_DONE, Repair
from wellkept.sessions.sqlite.semantic import FileVectors
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import PAGE_BYTES as PAGE
from wellkept.storage.sqlite import open_state

WORDS = [
    f"{first}{second}{third}"
    for first in "bdfgklmnprst"
    for second in "aeiou"
    for third in ("nder", "lock", "stem", "rive")
]


IS_HEAVY = bool(os.environ.get("KEPT_HEAVY"))
EACH = 50 if IS_HEAVY else 15
"""Messages of each session; most of the time of these tests is that of indexing them again."""


def silent(event):
    """Ignore the event."""


def mark(number):
    """Return a word that one message of a session has."""
    return f"mark{number}x{number % EACH}"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A closed database of forty sessions."""
    path = tmp_path_factory.mktemp("built") / "state.db"
    database = open_state(path)
    store = SqliteSessionStore(database)
    choose = random.Random(7)
    for number in range(40):
        name = SessionId(f"session{number:02}")
        store.create(Session(name, "cli", 1.75e9 + number, title=f"Talk {number}"))
        store.append(
            name,
            [
                NewMessage(
                    Message(Role.USER, f"mark{number}x{place} " + " ".join(choose.choices(WORDS, k=30))),
                    1.75e9 + number,
                    Origin.PERSON,
                )
                for place in range(EACH)
            ],
        )
    store.file.catch_up()
    database.close()
    return path


@pytest.fixture
def path(built, tmp_path):
    """A copy of it."""
    return Path(shutil.copy(built, tmp_path / "state.db"))


def pages_of(path, table, kinds=("leaf",)):
    database = open_state(path)
    rows = database.connection.execute(
        "SELECT pageno, pagetype FROM dbstat WHERE name = ? ORDER BY pageno", (table,)
    ).fetchall()
    database.close()
    return [page for page, kind in rows if kind in kinds]


def overwrite(path, page, *, zeros=False):
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(bytes(PAGE) if zeros else random.Random(page).randbytes(PAGE))


def repaired(path):
    return Repair(path, SessionSettings(), clock=SystemClock(), sink=silent).run()


def store_at(path, sink=silent):
    return SqliteSessionStore(open_state(path), sink=sink)


def test_an_intact_store_needs_no_repair(path):
    """A healthy store is checked and left as it is."""
    report = repaired(path)

    assert (report.found, report.done, report.left) == ([], [], [])


@pytest.mark.parametrize("table", ["message_words_data", "message_spellings", "message_words_docsize"])
def test_a_damaged_index_is_reported_and_rebuilt(path, table):
    """A corrupt index page is found by the check, and repair rebuilds the index without losing a message."""
    pages = pages_of(path, table)
    for page in pages[1 : max(2, len(pages) // 2)] or pages:
        overwrite(path, page)

    store = store_at(path)
    assert store.upkeep.check()
    store.database.close()
    report = repaired(path)

    assert report.found
    assert report.done
    assert report.left == []
    store = store_at(path)
    assert store.search(SearchRequest(mark(17))).messages
    assert sum(one.message_count for one in store.recent(limit=100)) == 40 * EACH
    store.database.close()


def test_a_ledger_in_the_place_of_the_conversations_is_named(tmp_path):
    """A repair would refuse it as the file of another program; the remedy is to exchange the names."""
    with closing(MemoryStore(tmp_path / "memories")) as pages:
        pages.apply("memory", Add("the heron stands"))
    path = Path(shutil.copy(tmp_path / "memories" / "ledger.db", tmp_path / "state.db"))

    (found,) = check_file(path, clock=SystemClock())

    assert "is the ledger of the pages" in found.what
    assert "memories/ledger.db" in found.remedy


def test_lost_names_of_sources_are_found_by_their_hashes(tmp_path):
    """What was imported stays marked as imported, although the page with the names is gone."""
    path = tmp_path / "state.db"
    store = store_at(path)
    line = b'{"session_id": "one", "role": "user", "content": "the heron stands", "timestamp": 1750000000}'
    store.transfer.import_lines([line], source="claude-code")
    store.database.close()
    overwrite(path, pages_of(path, "sources")[0])

    repaired(path)

    store = store_at(path)
    assert [one["provenance"] for one in store.transfer.export() if "content" in one] == ["import:claude-code"]
    store.database.close()


def test_a_damaged_index_whose_messages_are_all_queued_is_reported_and_rebuilt(tmp_path):
    """The new index misses nothing, and the repair is reported all the same."""
    path = tmp_path / "state.db"
    store = store_at(path)
    store.create(Session(SessionId("one"), "cli", 1.75e9))
    store.append(SessionId("one"), [NewMessage(Message(Role.USER, "a word that waits"), 1.75e9, Origin.PERSON)])
    store.database.close()
    overwrite(path, pages_of(path, "message_words_data")[0])

    report = repaired(path)

    assert (report.done, report.left) == ([INDEX_DONE], [])
    assert store_at(path).search(SearchRequest("waits")).messages


def test_a_search_rebuilds_a_damaged_index(path):
    """A search over a corrupt index rebuilds it, reports that, and answers."""
    for table in ("message_words_data", "message_spellings"):
        for page in pages_of(path, table)[1:]:
            overwrite(path, page)
    heard = []
    store = store_at(path, heard.append)

    found = [store.search(SearchRequest(mark(number))).messages for number in range(0, 40, 7)]

    assert all(found)
    assert any(isinstance(event, Warned) and "index" in event.message for event in heard)
    assert store.upkeep.check() == []
    store.database.close()


def test_a_damaged_index_does_not_stop_an_append(path):
    """A message is stored although the index it belongs to is damaged; the index is rebuilt in passing."""
    for page in pages_of(path, "message_words_docsize"):
        overwrite(path, page)
    store = store_at(path)

    store.append(SessionId("session00"), [NewMessage(Message(Role.USER, "afterwards zebra"), 1.76e9, Origin.PERSON)])

    assert store.search(SearchRequest("zebra")).messages
    store.database.close()


def test_a_damaged_table_is_salvaged(path):
    """Corrupt pages of the table of messages: what can be read is brought over, the rest is counted."""
    pages = pages_of(path, "messages")
    for page in pages[10:13]:
        overwrite(path, page)

    report = repaired(path)

    assert report.found
    assert report.salvaged is not None
    lost = len(report.salvaged.lost["messages"])
    assert 0 < lost < 40
    assert report.salvaged.rows["messages"] == 40 * EACH - lost
    assert report.put_aside is not None
    assert report.put_aside.exists()
    assert report.left == []
    store = store_at(path)
    assert sum(one.message_count for one in store.recent(limit=100)) == 40 * EACH - lost
    assert store.search(SearchRequest(mark(39))).messages
    store.database.close()


def test_messages_outlive_the_row_of_their_session(path):
    """When the rows of sessions are lost, they are restored from their indexes."""
    for page in pages_of(path, "sessions"):
        overwrite(path, page)

    report = repaired(path)

    assert report.salvaged is not None
    assert report.salvaged.rows["messages"] == 40 * EACH
    assert len(report.salvaged.restored) == 40
    assert report.left == []
    store = store_at(path)
    assert len(store.messages(SessionId("session07"))) == EACH
    assert store.session(SessionId("session07")).title == "Talk 7"
    store.database.close()


HOLDER = """
import sys
from pathlib import Path
from wellkept.storage.sqlite import open_state
database = open_state(Path(sys.argv[1]))
print(database.connection.execute("SELECT count(*) FROM sessions").fetchall(), flush=True)
sys.stdin.read()
"""


def test_a_file_in_use_is_not_put_aside(path):
    """While another process has the file open, a damaged one is not replaced, and the repair says why."""
    for page in pages_of(path, "messages")[10:13]:
        overwrite(path, page)
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()

        with pytest.raises(Busy, match="another process has"):
            repaired(path)

        other.stdin.close()
    assert not list(path.parent.glob("*.damaged-*"))
    assert not list(path.parent.glob("*.salvaged-*"))
    assert not list(path.parent.glob("*.repair"))
    assert repaired(path).salvaged is not None


def test_a_truncated_log_loses_only_its_end(path):
    """A write-ahead log that was cut off is reported; everything before the cut is there and found."""
    store = store_at(path)
    store.database.connection.pragma("wal_autocheckpoint", 0)
    for number in range(30):
        store.append(
            SessionId("session00"), [NewMessage(Message(Role.USER, f"late{number} whale"), 1.76e9, Origin.PERSON)]
        )
    copy = path.parent / "copy" / "state.db"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    log = path.with_name("state.db-wal").read_bytes()
    copy.with_name("state.db-wal").write_bytes(log[: len(log) * 2 // 3 + 100])
    store.database.close()

    (finding,) = check_file(copy, clock=SystemClock())
    cut = store_at(copy)

    assert finding.is_lost
    assert cut.upkeep.check() == []
    kept = [
        text
        for text in (message.message.text for message in cut.messages(SessionId("session00")))
        if text.startswith("late")
    ]
    assert 0 < len(kept) < 30
    assert kept == [f"late{number} whale" for number in range(len(kept))]
    assert cut.search(SearchRequest(f"late{len(kept) - 1}")).messages
    cut.database.close()


def test_a_newer_database_is_left_untouched(path):
    """A file of a newer version is refused, and not one byte of it changes."""
    database = open_state(path)
    database.connection.execute("CREATE TABLE inventions (id INTEGER PRIMARY KEY)")
    database.connection.pragma("user_version", 9_999)
    database.close()
    before = path.read_bytes()

    with pytest.raises(NewerDatabase):
        open_state(path)

    assert path.read_bytes() == before


def test_no_database_at_all(tmp_path):
    """A file that is not a database is refused in words; it is left as it is."""
    path = tmp_path / "state.db"
    path.write_bytes(b"hello, I am a letter\n" * 200)

    with pytest.raises(StorageError):
        open_state(path)

    assert path.read_bytes().startswith(b"hello")


class Letters:
    """A model that counts letters."""

    name = "letters"

    def embed(self, texts):
        """Return how often each of sixteen letters occurs in each text."""
        return [[0.1 + text.count(letter) for letter in "abcdefghiklmnopr"] for text in texts]


def open_semantic_search(database, sink=silent):
    settings = EmbeddingSettings(provider="local", background=False)
    return FileVectors(database, settings, model=Letters, sink=sink)


ROUNDS = 16 if IS_HEAVY else 1
DERIVED = (
    "message_words_data",
    "message_words_idx",
    "message_words_docsize",
    "message_words_config",
    "message_spellings",
    "messages_session",
    "sessions_recent",
    "sqlite_autoindex_sessions_1",
    "index_queue",
    "leases",
    "message_vectors",
    "sqlite_autoindex_message_vectors_1",
    "vector_state",
)


@pytest.fixture(scope="module")
def built_with_vectors(built, tmp_path_factory):
    """The same, every message with a vector."""
    path = Path(shutil.copy(built, tmp_path_factory.mktemp("vectors") / "state.db"))
    database = open_state(path)
    open_semantic_search(database).embed_all()
    database.close()
    return path


@pytest.fixture
def path_with_vectors(built_with_vectors, tmp_path):
    """A copy of it."""
    return Path(shutil.copy(built_with_vectors, tmp_path / "state.db"))


def answers(store, number):
    """Whether a search finds a message by its own mark, and a question and a phrase are answered."""
    store.search(SearchRequest("where was the bander that they locked?"))
    store.search(SearchRequest('"banderlock dorive"'))
    hits = store.search(SearchRequest(mark(number))).messages
    return bool(hits) and store.message(hits[0].message_id).message.text.startswith(f"{mark(number)} ")


@pytest.mark.parametrize("table", DERIVED)
def test_damage_to_any_derived_data_is_reported_survived_and_repaired(path_with_vectors, table):
    """Whatever page of derived data breaks: the check names it, search and storing still work, and the repair fixes it."""
    path = path_with_vectors
    pages = pages_of(path, table, kinds=("leaf", "internal"))
    rounds = [(page, zeros) for page in pages for zeros in (False, True)]
    whole = path.read_bytes()
    for page, zeros in random.Random(table).sample(rounds, min(len(rounds), ROUNDS)):
        path.write_bytes(whole)
        overwrite(path, page, zeros=zeros)

        store = store_at(path)
        assert any(table in finding.what for finding in store.upkeep.check()), page
        store.meaning = open_semantic_search(store.database)
        found = [answers(store, number) for number in (3, 11, 29)]
        store.append(SessionId("session00"), [NewMessage(Message(Role.USER, "late zebra"), 1.76e9, Origin.PERSON)])
        assert sum(found) >= (2 if table == "message_words_idx" else 3), page  # it may end a list without a sign
        assert store.search(SearchRequest("zebra")).messages, page
        assert len(store.messages(SessionId("session03"))) == EACH, page
        assert len(store.recent(limit=100)) == 40, page
        store.database.close()

        report = repaired(path)
        assert report.salvaged is None, page
        assert report.left == [], page
        store = store_at(path)
        assert store.upkeep.check() == [], page
        assert all(answers(store, number) for number in (3, 11, 29)), page
        store.database.close()


def test_damaged_vectors_are_reported_once_and_readable_ones_are_kept(path_with_vectors):
    """Search uses words only, with one warning; repair keeps the vectors of intact pages and recomputes the rest."""
    path = path_with_vectors
    overwrite(path, pages_of(path, "message_vectors")[3])
    heard = []
    store = store_at(path)
    store.meaning = open_semantic_search(store.database, heard.append)

    assert answers(store, 7)
    assert answers(store, 8)
    store.database.close()
    report = repaired(path)

    assert [event.message for event in heard] == ["search uses words only: the vectors of the messages are damaged"]
    assert any("vectors" in what for what in report.done)
    store = store_at(path)
    store.meaning = open_semantic_search(store.database)
    kept = store.upkeep.coverage()
    assert 0 < kept.waiting < 200
    assert store.meaning.embed_all() == kept.waiting
    assert store.upkeep.coverage().waiting == 0
    store.database.close()


def test_a_damaged_name_of_a_source_is_reported(tmp_path):
    """The number of a source is a hash of its name, and nobody trusts messages of a source without its name."""
    path = tmp_path / "state.db"
    with closing(SqliteSessionStore(path)) as store:
        store.create(Session(SessionId("one"), "cli", 1.0))
        read = NewMessage(Message(Role.USER, "read elsewhere"), 1.0, Origin.PERSON, source="web:example.org")
        store.append(SessionId("one"), [read])
        with store.database.writing() as connection:
            connection.execute("UPDATE sources SET name = 'web:eXample.org'")

    (finding,) = check_file(path, clock=SystemClock())

    assert finding.is_lost
    assert "the name of a source is damaged: sources" in finding.what

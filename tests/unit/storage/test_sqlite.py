"""SQLite: units of work, migrations, and files that are not ours."""

import gc
import hashlib
import json
import sqlite3
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from wellkept.core.errors import Busy, ForeignDatabase, NewerDatabase, StorageError, Unreadable
from wellkept.storage import sqlite as ours
from wellkept.storage.connections import Migration, sql_migrations, statements
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.maintenance import copy_file
from wellkept.storage.sqlite import Database, open_state

ONE = Migration(1, "CREATE TABLE facts (text TEXT)")
TWO = Migration(2, "ALTER TABLE facts ADD COLUMN seen INTEGER DEFAULT 0", rewrites=True)


@pytest.fixture
def open_database(tmp_path):
    databases = []

    def open_(*migrations, name="state.db", **options):
        databases.append(
            Database(tmp_path / name, application_id=APPLICATION_ID, migrations=migrations or (ONE,), **options)
        )
        return databases[-1]

    yield open_
    for database in databases:
        database.close()


def digests(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if "-shm" not in path.name
    }


def facts(database):
    with database.reading() as connection:
        return [text for (text,) in connection.execute("SELECT text FROM facts")]


def insert(database, text):
    with database.writing() as connection:
        connection.execute("INSERT INTO facts (text) VALUES (?)", (text,))


def test_a_new_database_is_marked_private_and_in_wal(open_database, tmp_path):
    """It carries our mark and schema version, and nobody else can read it."""
    database = open_database()

    assert database.connection.pragma("application_id") == APPLICATION_ID
    assert database.connection.pragma("user_version") == 1
    assert database.connection.pragma("journal_mode") == "wal"
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.parametrize(("durability", "level"), [("normal", 1), ("full", 2)])
def test_every_connection_has_the_durability_that_was_asked_for(open_database, durability, level):
    """Each thread's connection syncs as configured: `full` at every commit, `normal` at checkpoints."""
    database = open_database(durability=durability)

    def pragmas():
        connection = database.connection
        return [connection.pragma(name) for name in ("journal_mode", "synchronous", "secure_delete", "foreign_keys")]

    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(pragmas).result()

    assert pragmas() == elsewhere == ["wal", level, 1, 1]


def test_the_default_durability_survives_a_crash_of_the_process(open_database):
    """The default is `normal`; in WAL mode it never corrupts the file."""
    assert open_database().connection.pragma("synchronous") == 1


def test_a_reopened_database_is_as_durable_as_a_new_one(open_database):
    """SQLite stores the journal mode in the file but not `synchronous`, so it is set again on each open."""
    open_database(durability="full").close()

    assert open_database(durability="full").connection.pragma("synchronous") == 2


def test_a_writer_waits_for_another(open_database, tmp_path):
    """A lock that is held for a moment delays a write and does not fail it."""
    database = open_database()
    other = apsw.Connection(str(tmp_path / "state.db"))
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.3, other.execute, args=("ROLLBACK",))
    release.start()

    insert(database, "late")

    assert facts(database) == ["late"]
    release.join()
    other.close()


def test_a_limited_wait_ends_in_busy_and_then_the_usual_wait_applies(open_database, tmp_path):
    """Inside `limit_wait` the lock is not waited for; afterwards writes wait as usual."""
    database = open_database()
    other = apsw.Connection(str(tmp_path / "state.db"))
    other.execute("BEGIN IMMEDIATE")
    start = time.monotonic()
    with database.limit_wait(0.01) as connection:
        assert connection.pragma("busy_timeout") == 10
        with pytest.raises(Busy):
            insert(database, "never")
    assert time.monotonic() - start < ours.BUSY_SECONDS
    assert connection.pragma("busy_timeout") == 10_000
    connection.set_busy_timeout(0)  # so that only the retries of `writing` wait below
    release = threading.Timer(0.3, other.execute, args=("ROLLBACK",))
    release.start()

    insert(database, "late")

    assert facts(database) == ["late"]
    release.join()
    other.close()


def test_a_unit_of_work_is_whole_or_nothing(open_database):
    """An error inside rolls everything back."""
    database = open_database()
    insert(database, "before")

    with pytest.raises(ZeroDivisionError), database.writing() as connection:
        connection.execute("INSERT INTO facts (text) VALUES ('lost')") and 1 / 0

    assert facts(database) == ["before"]


def test_a_nested_unit_joins_the_outer(open_database):
    """Two tiers that write inside one unit commit together or not at all."""
    database = open_database()
    with pytest.raises(ZeroDivisionError), database.writing():
        insert(database, "inner") or 1 / 0
    assert facts(database) == []

    with database.writing():
        insert(database, "a")
        insert(database, "b")
    assert facts(database) == ["a", "b"]


def test_threads_write_side_by_side(open_database):
    """Each thread has a connection of its own; none of their rows is lost."""
    database = open_database()
    threads = [threading.Thread(target=lambda n=n: [insert(database, f"{n}.{i}") for i in range(10)]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(facts(database))) == 40


def test_a_busy_database_says_so(open_database, tmp_path, monkeypatch):
    """Another program's write lock becomes Busy with what to do."""
    database = open_database()
    monkeypatch.setattr(ours, "BUSY_SECONDS", 0.05)
    database.connection.set_busy_timeout(50)
    other = apsw.Connection(str(tmp_path / "state.db"))
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(Busy, match="try again"):
            insert(database, "x")
    finally:
        other.close()


@pytest.mark.parametrize("in_wal", [False, True])
def test_a_foreign_database_is_refused_and_untouched(open_database, tmp_path, in_wal):
    """Not one byte changes, a leftover log of its owner included."""
    other = sqlite3.connect(tmp_path / "state.db")
    if in_wal:
        other.execute("PRAGMA journal_mode=wal")
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    if not in_wal:
        other.close()
    before = digests(tmp_path)
    assert not in_wal or "state.db-wal" in before

    with pytest.raises(ForeignDatabase):
        open_database()
    with pytest.raises(ForeignDatabase):
        open_database(read_only=True)

    assert digests(tmp_path) == before
    other.close()


def test_a_newer_database_is_refused_and_untouched(open_database, tmp_path):
    """An older kept never writes to a newer schema."""
    open_database(ONE, Migration(7, "CREATE TABLE later (x)")).close()
    before = digests(tmp_path)

    with pytest.raises(NewerDatabase, match="schema 7"):
        open_database(ONE)
    assert digests(tmp_path) == before


def test_a_newer_version_that_stands_only_in_the_log_is_refused(open_database, tmp_path):
    """The header of the file itself may lag behind; the log is not folded in by looking."""
    open_database(ONE).close()
    newer = open_database(ONE, Migration(7, "CREATE TABLE later (x)"))
    assert (tmp_path / "state.db-wal").stat().st_size
    before = digests(tmp_path)

    with pytest.raises(NewerDatabase):
        open_database(ONE)
    assert digests(tmp_path) == before
    newer.close()


def test_garbage_is_damaged_and_untouched(open_database, tmp_path):
    """A file that is not a database is reported with the command that helps."""
    (tmp_path / "state.db").write_bytes(b"by no means a database " * 100)
    before = digests(tmp_path)

    with pytest.raises(StorageError, match="kept doctor"):
        open_database()
    assert digests(tmp_path) == before


def test_a_folder_in_the_database_s_place(open_database, tmp_path):
    """It is an error in our words."""
    (tmp_path / "state.db").mkdir()

    with pytest.raises(StorageError, match="folder"):
        open_database()


def test_reading_only_makes_no_file(open_database, tmp_path):
    """A reader of a database that is not there is told so, and leaves nothing behind."""
    with pytest.raises(StorageError, match="no database"):
        open_database(read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_migrations_run_once_in_order(open_database, tmp_path):
    """An old database is brought up to date with its rows, after a copy where a step rewrites."""
    old = open_database(ONE)
    insert(old, "kept")
    old.close()

    new = open_database(ONE, TWO)
    assert new.connection.execute("SELECT text, seen FROM facts").fetchall() == [("kept", 0)]
    copy = sqlite3.connect(tmp_path / "state.db.before-2")
    assert copy.execute("SELECT * FROM facts").fetchall() == [("kept",)]
    copy.close()
    assert open_database(ONE, TWO).connection.pragma("user_version") == 2


def test_a_failed_migration_leaves_the_schema_as_it_was(open_database):
    """Each step is one transaction: half of it is nothing."""

    def fails(connection):
        connection.execute("CREATE TABLE half (x)")
        raise ZeroDivisionError

    open_database(ONE).close()
    with pytest.raises(ZeroDivisionError):
        open_database(ONE, Migration(2, fails))

    again = open_database(ONE)
    assert again.connection.pragma("user_version") == 1
    assert again.connection.execute("SELECT name FROM sqlite_schema WHERE name = 'half'").fetchall() == []


def test_two_openers_migrate_once(tmp_path):
    """Threads that open a new database at the same moment all find it up to date."""
    opened, errors = [], []

    def open_one():
        try:
            opened.append(Database(tmp_path / "x.db", application_id=APPLICATION_ID, migrations=(ONE, TWO)))
        except StorageError as error:
            errors.append(error)

    threads = [threading.Thread(target=open_one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    for database in opened:
        database.close()


def test_connections_end_with_their_threads(open_database):
    """A process of many short threads keeps no connection of a thread that is gone."""
    database = open_database()

    for _ in range(20):
        thread = threading.Thread(target=insert, args=(database, "from a thread"))
        thread.start()
        thread.join()
    gc.collect()

    assert len(database._all) == 1
    assert len(database.connection.execute("SELECT 1 FROM facts").fetchall()) == 20


def test_a_copy_is_whole_while_another_writes(open_database, tmp_path):
    """What is committed only in the log is in the copy, too."""
    database = open_database()
    insert(database, "in the log")
    copy_file(str(tmp_path / "state.db"), str(tmp_path / "copy.db"))

    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    assert sqlite3.connect(tmp_path / "copy.db").execute("SELECT text FROM facts").fetchall() == [("in the log",)]


def test_where_no_file_can_be_made_an_empty_one_is_read():
    """Where that is asked for, every thread reads the newest schema without rows, and a write raises why."""
    place = Path("/proc/nowhere/state.db")  # a folder that not even root can make
    options = {"application_id": APPLICATION_ID, "migrations": (ONE, TWO)}
    database = Database(place, **options, empty_if_refused=True)
    seen = []

    thread = threading.Thread(target=lambda: seen.append(facts(database)))
    thread.start()
    thread.join()

    assert (database.is_empty, database.is_read_only, facts(database), seen) == (True, True, [], [[]])
    with pytest.raises(StorageError, match="cannot create the folder"):
        insert(database, "kept nowhere")
    assert facts(database) == []
    database.close()
    with pytest.raises(StorageError):
        Database(place, **options)


def test_a_file_that_may_be_there_is_not_taken_for_missing(tmp_path):
    """A place below a file is a mistake of whoever named it, not an empty home."""
    (tmp_path / "home").write_text("a file")

    with pytest.raises(StorageError):
        Database(
            tmp_path / "home" / "state.db", application_id=APPLICATION_ID, migrations=(ONE,), empty_if_refused=True
        )


def test_a_replacement_that_was_interrupted_is_completed_before_the_file_is_opened(open_database, tmp_path):
    """The new file is read, not an empty one; who may only read is told to wait instead."""
    path = tmp_path / "state.db"
    database = open_database()
    insert(database, "kept")
    database.close()
    path.rename(tmp_path / "state.db.salvaged-20260101-120000")
    (tmp_path / "state.db.damaged-20260101-120000").write_bytes(b"old")

    with pytest.raises(StorageError):
        open_database(read_only=True)
    assert facts(open_database()) == ["kept"]


def test_statements_are_found_by_name():
    """A name that is not there is named in the error."""
    found = statements("wellkept.memory", "ledger.sql")

    assert "FROM edits" in found.newest
    with pytest.raises(AttributeError, match=r"nothing.*ledger.sql"):
        _ = found.nothing


def test_shipped_migrations_are_ordered_and_unique():
    """Versions count up from one without a gap."""
    for package in ("wellkept.memory", "wellkept.storage"):
        versions = [migration.version for migration in sql_migrations(package)]
        assert versions == list(range(1, len(versions) + 1))


@pytest.mark.parametrize("stage", ["copying", "swapping"])
def test_a_journal_says_how_a_replacement_ends(open_database, tmp_path, stage):
    """A copy is taken back, a swap is carried on, before anything is read; who may only read is told to wait."""
    database = open_database()
    insert(database, "new")
    database.close()
    (tmp_path / "state.db").rename(tmp_path / "state.db.salvaged-now")
    database = open_database()
    insert(database, "old")
    database.close()
    journal = tmp_path / "state.db.repair"
    journal.write_text(json.dumps({"stage": stage, "stamp": "now", "pid": 4_194_999}))

    with pytest.raises(StorageError, match="interrupted"):
        open_database(read_only=True)
    assert facts(open_database()) == (["new"] if stage == "swapping" else ["old"])
    assert not journal.exists()
    assert not (tmp_path / "state.db.salvaged-now").exists()


def test_a_file_below_a_link_is_opened_where_it_is(open_database, tmp_path):
    """Its log and its repairs are beside the real file."""
    (tmp_path / "real").mkdir()
    (tmp_path / "state.db").symlink_to(tmp_path / "real" / "state.db")
    database = open_database()
    insert(database, "kept")

    assert (tmp_path / "real" / "state.db-wal").exists()
    assert facts(database) == ["kept"]


@pytest.mark.parametrize("version", [999, -5])
def test_a_version_that_no_schema_has_is_not_called_damage(tmp_path, version):
    """A newer kept may have written it; if none did, a repair corrects the number."""
    path = tmp_path / "state.db"
    open_state(path).close()
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("user_version", version)

    with pytest.raises(Unreadable, match=f"says that it has schema {version}") as refused:
        open_state(path)

    assert "is damaged" not in refused.value.message
    assert "update" in refused.value.remedy
    assert "kept sessions repair" in refused.value.remedy

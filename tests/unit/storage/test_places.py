"""Databases in places that cannot be written, beside files of other programs, and with migrations to run."""

import os
import sqlite3
import stat
import threading
from types import SimpleNamespace

import apsw
import pytest

from wellkept.core.errors import ForeignDatabase, StorageError
from wellkept.core.events import Warned
from wellkept.storage import connections
from wellkept.storage.connections import (
    CHECKPOINT_PAGES,
    RESTART_PAGES,
    RESTART_WAIT_MILLISECONDS,
    Checkpointer,
    EmptyDatabase,
    Migration,
    connect_read_only,
    find_refusal,
    is_emptied,
    migrate,
    sql_migrations,
)
from wellkept.storage.sqlite import BUSY_SECONDS, PAGE_BYTES, Database, open_state

MARK = 0x6B657074
ONE = Migration(1, "CREATE TABLE facts (text TEXT)")
TWO = Migration(2, "INSERT INTO facts VALUES ('second')", rewrites=True)


def make_file(path, *, wal):
    """Write a small database of another program."""
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {'wal' if wal else 'delete'}")
    connection.execute("CREATE TABLE facts (text TEXT)")
    connection.execute("INSERT INTO facts VALUES ('theirs')")
    connection.commit()
    return connection


class TestOpenState:
    """`kept.db` is used where `state.db` belongs to another program."""

    def test_a_foreign_file_is_announced_once(self, tmp_path):
        """The person is told once where conversations go, and how to bring the others over."""
        make_file(tmp_path / "state.db", wal=False).close()
        events = []
        for _ in range(2):
            open_state(tmp_path / "state.db", sink=events.append).close()

        (event,) = events
        assert isinstance(event, Warned)
        assert "state.db" in event.message
        assert "kept.db" in event.message
        assert f"kept import hermes --source {tmp_path}" in event.remedy

    def test_without_a_sink_it_is_logged(self, tmp_path, caplog):
        """A library user sees it too."""
        make_file(tmp_path / "state.db", wal=False).close()
        open_state(tmp_path / "kept.db").close()

        assert "belongs to another program" in caplog.text

    def test_our_own_file_is_opened_in_silence(self, tmp_path, caplog):
        """Nothing is announced where nothing is foreign."""
        events = []
        for _ in range(2):
            database = open_state(tmp_path / "state.db", sink=events.append)
            assert database.path == tmp_path / "state.db"
            database.close()
        open_state(tmp_path / "other" / "kept.db", sink=events.append).close()

        assert events == []
        assert not caplog.text

    def test_two_foreign_files_are_refused(self, tmp_path):
        """There is no third name."""
        make_file(tmp_path / "state.db", wal=False).close()
        make_file(tmp_path / "kept.db", wal=False).close()

        with pytest.raises(ForeignDatabase):
            open_state(tmp_path / "state.db")

    def test_reading_only_creates_nothing(self, tmp_path):
        """A missing file is an error, not an empty home."""
        with pytest.raises(StorageError, match="there is no database"):
            open_state(tmp_path / "home" / "state.db", read_only=True)

        assert list(tmp_path.iterdir()) == []


class TestReadOnly:
    """A file can be read where nothing can be written next to it."""

    @pytest.fixture
    def refuse(self, monkeypatch):
        """Make the first connection fail as on a read-only file system, where SQLite cannot create its log."""

        def set_up(*, is_writable, is_full):
            real, opened = apsw.Connection, []

            class Refusing:
                def __init__(self, name, flags):
                    opened.append((name, flags))
                    self.connection = real(name, flags=flags)

                def config(self, *values):
                    self.connection.config(*values)

                def execute(self, sql):
                    raise apsw.CantOpenError("unable to open database file")

                def close(self):
                    self.connection.close()

            def connect(name, flags):
                return Refusing(name, flags) if not opened else real(name, flags=flags)

            monkeypatch.setattr(connections, "_Connection", connect)
            monkeypatch.setattr(os, "access", lambda _path, _mode: is_writable)
            monkeypatch.setattr(connections, "is_full", lambda _path: is_full)
            return opened

        return set_up

    @pytest.mark.parametrize(("is_writable", "is_full"), [(False, False), (True, True), (False, True)])
    def test_without_a_log_it_is_read_as_it_stands(self, tmp_path, refuse, is_writable, is_full):
        """On a full disk and on a read-only file system."""
        path = tmp_path / "a file%20.db"
        make_file(path, wal=False).close()
        refuse(is_writable=is_writable, is_full=is_full)

        connection = connect_read_only(path)

        assert connection.execute("SELECT text FROM facts").fetchall() == [("theirs",)]
        with pytest.raises(apsw.ReadOnlyError):
            connection.execute("DELETE FROM facts")
        connection.close()

    def test_with_a_log_it_is_refused(self, tmp_path, refuse):
        """What is only in the log would be missing."""
        path = tmp_path / "state.db"
        writer = make_file(path, wal=True)
        refuse(is_writable=False, is_full=False)

        with pytest.raises(apsw.CantOpenError):
            connect_read_only(path)
        writer.close()

    def test_an_empty_log_holds_nothing_back(self, tmp_path, refuse):
        """SQLite leaves an empty log behind when it is cut off after a checkpoint."""
        path = tmp_path / "state.db"
        make_file(path, wal=False).close()
        path.with_name("state.db-wal").touch()
        refuse(is_writable=False, is_full=False)

        connection = connect_read_only(path)
        assert connection.execute("SELECT count(*) FROM facts").fetchall() == [(1,)]
        connection.close()

    def test_where_there_is_room_the_error_is_another(self, tmp_path, refuse):
        """It is not taken for a full disk."""
        make_file(tmp_path / "state.db", wal=False).close()
        refuse(is_writable=True, is_full=False)

        with pytest.raises(apsw.CantOpenError):
            connect_read_only(tmp_path / "state.db")

    def test_nothing_can_be_written_through_it(self, tmp_path):
        """Also where the file itself could be written."""
        make_file(tmp_path / "state.db", wal=False).close()
        connection = connect_read_only(tmp_path / "state.db")

        with pytest.raises(apsw.ReadOnlyError):
            connection.execute("INSERT INTO facts VALUES ('ours')")
        connection.close()


class TestRefusedWrites:
    """A file that could not be written is read, and each write tries again."""

    @pytest.fixture
    def database(self, tmp_path):
        made = Database(tmp_path / "state.db", application_id=MARK, migrations=(ONE,))
        with made.writing() as connection:
            connection.execute("INSERT INTO facts VALUES ('first')")
        made.close()
        return tmp_path / "state.db"

    def test_reads_go_on_and_a_write_tries_again(self, database, monkeypatch):
        """As soon as there is space, messages are stored again."""
        refusing = [True]
        real = Database._connect_for_writing

        def connect(self, *, is_new):
            if refusing:
                raise apsw.FullError("database or disk is full")
            return real(self, is_new=is_new)

        monkeypatch.setattr(Database, "_connect_for_writing", connect)
        opened = Database(database, application_id=MARK, migrations=(ONE,))

        assert opened.is_read_only
        assert not opened.is_empty
        with opened.reading() as connection:
            assert connection.execute("SELECT text FROM facts").fetchall() == [("first",)]
        with pytest.raises(StorageError, match="the disk is full"), opened.writing():
            pytest.fail("the block of a refused write runs")
        assert not opened.has_written
        refusing.clear()
        with opened.writing() as connection:
            connection.execute("INSERT INTO facts VALUES ('second')")
        assert opened.has_written
        assert not opened.is_read_only
        opened.close()

    def test_an_old_schema_is_not_read(self, database, monkeypatch):
        """It would have to be migrated first, which the place refuses."""

        def refuse(_self, *, is_new):
            raise apsw.FullError(f"full, new: {is_new}")

        monkeypatch.setattr(Database, "_connect_for_writing", refuse)

        with pytest.raises(StorageError, match="the disk is full"):
            Database(database, application_id=MARK, migrations=(ONE, TWO))

    def test_reading_by_request_never_writes(self, database):
        """Also where the file could be written."""
        opened = Database(database, application_id=MARK, migrations=(ONE,), read_only=True)

        assert opened.is_read_only
        with pytest.raises(StorageError), opened.writing() as connection:
            connection.execute("INSERT INTO facts VALUES ('second')")
        opened.close()


class TestMigrate:
    """Each step is one transaction, and a step that rewrites rows is preceded by a copy."""

    def test_a_failed_step_leaves_no_transaction_open(self, tmp_path):
        """The connection can be used, and the version stays at the last step that succeeded."""
        connection = apsw.Connection(str(tmp_path / "a.db"))
        broken = Migration(2, "CREATE TABLE more (x); INSERT INTO nowhere VALUES (1)")

        with pytest.raises(apsw.SQLError):
            migrate(connection, (ONE, broken), tmp_path / "a.db")

        assert not connection.in_transaction
        assert connection.pragma("user_version") == 1
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("facts",)]
        connection.close()

    def test_a_rewrite_is_preceded_by_a_private_copy(self, tmp_path):
        """The copy is the file before the step."""
        path = tmp_path / "a.db"
        Database(path, application_id=MARK, migrations=(ONE,)).close()
        Database(path, application_id=MARK, migrations=(ONE, TWO)).close()

        copy = tmp_path / "a.db.before-2"
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        opened = apsw.Connection(str(copy))
        assert opened.pragma("user_version") == 1
        assert opened.execute("SELECT * FROM facts").fetchall() == []
        opened.close()

    def test_a_step_may_be_a_function_and_memory_is_not_copied(self, tmp_path, monkeypatch):
        """An in-memory database has no path."""
        monkeypatch.chdir(tmp_path)
        connection = apsw.Connection(":memory:")
        made = []

        migrate(connection, (ONE, Migration(2, made.append, rewrites=True)), None)

        assert made == [connection]
        assert connection.pragma("user_version") == 2
        assert list(tmp_path.iterdir()) == []
        connection.close()

    def test_without_migrations_there_is_nothing_to_do(self, tmp_path):
        """A database without a schema of ours is version 0."""
        database = Database(tmp_path / "a.db", application_id=MARK, migrations=())

        assert database.connection.pragma("user_version") == 0
        database.close()

    def test_files_are_read_in_order_of_their_number(self):
        """And a first line asks for the copy."""
        found = sql_migrations("wellkept.storage")

        assert len(found) > 3
        assert [step.version for step in found] == sorted(step.version for step in found)
        assert all(isinstance(step.step, str) and step.step for step in found)
        assert all(step.rewrites == str(step.step).startswith("-- rewrites") for step in found)


class TestConnection:
    """What every connection is set to."""

    @pytest.fixture
    def database(self, tmp_path):
        database = Database(tmp_path / "state.db", application_id=MARK, migrations=(ONE,))
        yield database
        database.close()

    def test_the_settings_of_a_connection(self, database):
        """On each thread."""
        expected = {
            "page_size": PAGE_BYTES,
            "application_id": MARK,
            "secure_delete": 1,
            "foreign_keys": 1,
            "journal_mode": "wal",
            "busy_timeout": int(BUSY_SECONDS * 1_000),
            "journal_size_limit": CHECKPOINT_PAGES * PAGE_BYTES,
        }
        seen = []

        def look():
            seen.append({name: database.connection.pragma(name) for name in expected})

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        look()

        assert seen == [expected, expected]

    def test_the_limit_of_a_wait_is_restored(self, database):
        """Also after an error."""
        seen = []

        def fail():
            with database.limit_wait(0.25) as connection:
                seen.append(connection.pragma("busy_timeout"))
                raise ValueError("inside")

        with pytest.raises(ValueError, match="inside"):
            fail()
        assert seen == [250]
        assert database.connection.pragma("busy_timeout") == 10_000

    def test_an_error_rolls_back(self, database):
        """And the next transaction can begin."""

        def fail():
            with database.writing() as connection:
                connection.execute("INSERT INTO facts VALUES ('lost')")
                raise ValueError("inside")

        with pytest.raises(ValueError, match="inside"):
            fail()
        assert not database.connection.in_transaction
        assert not database.has_written
        assert database.connection.execute("SELECT * FROM facts").fetchall() == []

    def test_close_closes_every_thread_s_connection(self, database):
        """SQLite copies the log into the file with the last one."""
        done, leave = threading.Event(), threading.Event()
        kept_open = []

        def use():
            kept_open.append(database.connection)
            done.set()
            leave.wait(30)

        thread = threading.Thread(target=use)
        thread.start()
        assert done.wait(30)
        with database.writing() as connection:
            connection.execute("INSERT INTO facts VALUES ('one')")

        database.close()

        assert not database.path.with_name("state.db-wal").exists()
        with pytest.raises(apsw.ConnectionClosedError):
            kept_open[0].execute("SELECT 1")
        leave.set()
        thread.join()
        assert database.connection.execute("SELECT * FROM facts").fetchall() == [("one",)]

    def test_the_log_is_watched_by_our_rule(self, tmp_path, monkeypatch):
        """Each commit tells it how long the log is."""
        seen = []

        class Watch:
            def __call__(self, _connection, name, pages):
                seen.append((name, pages))
                return apsw.SQLITE_OK

        monkeypatch.setattr("wellkept.storage.sqlite.Checkpointer", Watch)
        database = Database(tmp_path / "watched.db", application_id=MARK, migrations=(ONE,))
        with database.writing() as connection:
            connection.execute("INSERT INTO facts VALUES ('one')")
        database.close()

        assert seen
        assert {name for name, _ in seen} == {"main"}

    def test_a_reader_waits_as_long_as_a_writer(self, database):
        """The wait is that of every connection."""
        reader = Database(database.path, application_id=MARK, migrations=(ONE,), read_only=True)

        assert reader.connection.pragma("busy_timeout") == 10_000
        assert reader.connection.pragma("foreign_keys") == 1
        reader.close()

    def test_an_empty_file_of_sqlite_becomes_ours(self, tmp_path):
        """One that holds a table, a version or a mark does not."""
        for name, statement, is_ours in (
            ("blank", "PRAGMA user_version = 1; PRAGMA user_version = 0", True),
            ("table", "CREATE TABLE t (x)", False),
            ("version", "PRAGMA user_version = 1", False),
            ("mark", "PRAGMA application_id = 7", False),
        ):
            other = apsw.Connection(str(tmp_path / name))
            other.execute(statement)
            other.close()
            if is_ours:
                opened = Database(tmp_path / name, application_id=MARK, migrations=(ONE,))
                assert opened.connection.pragma("application_id") == MARK
                opened.close()
            else:
                with pytest.raises(ForeignDatabase):
                    Database(tmp_path / name, application_id=MARK, migrations=(ONE,))


class TestCheckpointer:
    """When the log is copied into the file, and how."""

    class Recorder:
        """A connection that writes down what is asked of it."""

        def __init__(self, error=None, copied=0):
            self.calls = []
            self.error = error
            self.copied = copied

        def pragma(self, _name):
            return 10_000

        def set_busy_timeout(self, milliseconds):
            self.calls.append(milliseconds)

        def wal_checkpoint(self, name, mode):
            if mode == apsw.SQLITE_CHECKPOINT_NOOP:
                return 0, self.copied
            self.calls.append((name, mode))
            if self.error is not None:
                raise self.error
            return 0, 0

    def test_it_waits_for_the_first_pages_and_then_for_more(self):
        """A checkpoint makes one writer wait for the disk."""
        connection, checkpointer = self.Recorder(), Checkpointer()
        passive = ("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
        counts = []
        for pages in (CHECKPOINT_PAGES - 1, CHECKPOINT_PAGES, CHECKPOINT_PAGES + 3_999, CHECKPOINT_PAGES + 4_000, 10):
            assert checkpointer(connection, "main", pages) == apsw.SQLITE_OK
            counts.append(len(connection.calls))
        checkpointer(connection, "main", CHECKPOINT_PAGES)

        assert counts == [0, 1, 1, 2, 2]
        assert connection.calls == [passive] * 3

    def test_what_another_process_has_just_copied_is_not_copied_again(self):
        """Of four writers one waits for the disk, not each in turn."""
        connection = self.Recorder(copied=CHECKPOINT_PAGES - 3_999)
        Checkpointer()(connection, "main", CHECKPOINT_PAGES)
        assert connection.calls == []

        connection.copied -= 1
        Checkpointer()(connection, "main", CHECKPOINT_PAGES)
        assert connection.calls == [("main", apsw.SQLITE_CHECKPOINT_PASSIVE)]

    @pytest.mark.parametrize("error", [None, apsw.BusyError("reader"), apsw.LockedError("reader"), apsw.IOError("x")])
    def test_a_long_log_makes_others_wait_briefly(self, error, caplog):
        """The usual time to wait is restored, and no error reaches the commit."""
        connection = self.Recorder(error, copied=RESTART_PAGES)

        assert Checkpointer()(connection, "main", RESTART_PAGES) == apsw.SQLITE_OK

        restart = ("main", apsw.SQLITE_CHECKPOINT_RESTART)
        assert connection.calls == [RESTART_WAIT_MILLISECONDS, restart, 10_000]
        assert ("could not be copied" in caplog.text) == isinstance(error, apsw.IOError)

    def test_below_that_length_nobody_waits(self):
        """A page less is a passive checkpoint."""
        connection = self.Recorder()
        Checkpointer()(connection, "main", RESTART_PAGES - 1)

        assert connection.calls == [("main", apsw.SQLITE_CHECKPOINT_PASSIVE)]


class TestRefusals:
    """What can be said about a file before anything is written to it."""

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "state.db"
        path.write_bytes(b"x")
        return path

    def set_disk(self, monkeypatch, *, flags=0, free=10**9):
        found = SimpleNamespace(f_flag=flags, f_blocks=1_000, f_bavail=free, f_frsize=1)
        monkeypatch.setattr(os, "statvfs", lambda _path: found)

    def test_a_place_that_takes_writes_is_not_refused(self, path, monkeypatch):
        """There is room, and file and folder may be written."""
        self.set_disk(monkeypatch)

        assert find_refusal(path) is None

    def test_a_full_disk_and_a_read_only_one_are_named(self, path, monkeypatch):
        """Each for itself."""
        self.set_disk(monkeypatch, free=65_535)
        assert "the disk is full" in find_refusal(path).message
        self.set_disk(monkeypatch, flags=os.ST_RDONLY)
        assert "the file system is read-only" in find_refusal(path).message

    @pytest.mark.parametrize("closed", ["state.db", ""])
    def test_a_file_or_folder_without_permission_is_named(self, path, monkeypatch, closed):
        """SQLite writes beside the file too."""
        self.set_disk(monkeypatch)
        monkeypatch.setattr(os, "access", lambda place, _mode: place != path.parent / closed)

        assert "it is read-only" in find_refusal(path).message

    def test_a_file_without_content_was_emptied_unless_its_log_is_left(self, tmp_path):
        """The log then holds the rest; a missing file is new."""
        path, log = tmp_path / "state.db", tmp_path / "state.db-wal"
        assert not is_emptied(path)
        path.touch()
        log.touch()
        assert is_emptied(path)
        log.write_bytes(b"x")
        assert not is_emptied(path)
        path.write_bytes(b"x")
        assert not is_emptied(path)
        assert not is_emptied(tmp_path)

    def test_two_empty_databases_are_two(self):
        """All connections to one see the same, and nothing of another."""
        reason = StorageError("refused", "wait")
        one, other = EmptyDatabase(reason), EmptyDatabase(reason)
        one.connect().execute("CREATE TABLE t (v)")

        assert one.refused is reason
        assert one.connect().execute("SELECT count(*) FROM sqlite_schema").fetchall() == [(1,)]
        assert other.connect().execute("SELECT count(*) FROM sqlite_schema").fetchall() == [(0,)]


class TestOthersMeanwhile:
    """What another process does at the same moment."""

    def test_a_step_that_another_process_has_run_is_not_run_again(self, tmp_path):
        """It was waiting for the lock while the other one migrated."""
        path = tmp_path / "a.db"
        steps = (Migration(1, "CREATE TABLE t (v)"), Migration(2, "INSERT INTO t VALUES (1)"))
        connection, other = apsw.Connection(str(path)), apsw.Connection(str(path))
        begun = []

        def meanwhile(_cursor, sql, _bindings):
            if sql.startswith("BEGIN") and not begun:
                begun.append(sql)
                migrate(other, steps, path)
            return True

        connection.exec_trace = meanwhile
        migrate(connection, steps, path)

        assert begun
        assert connection.execute("SELECT * FROM t").fetchall() == [(1,)]
        assert not connection.in_transaction
        connection.close()
        other.close()

    def test_a_wait_inside_a_wait_is_the_shorter_one_and_ends(self, tmp_path):
        """Each block restores what was before it."""
        database = Database(tmp_path / "a.db", application_id=MARK, migrations=(ONE,))
        seen = []
        with database.limit_wait(2) as connection:
            with database.limit_wait(0.5):
                seen.append(connection.pragma("busy_timeout"))
            seen.append(connection.pragma("busy_timeout"))
            with database.writing():
                seen.append(connection.pragma("busy_timeout"))
        seen.append(connection.pragma("busy_timeout"))
        database.close()

        assert seen == [500, 2_000, 2_000, 10_000]

    def test_what_is_changed_without_checksums_has_none(self, tmp_path):
        """An import of millions of rows computes them afterwards."""
        database = open_state(tmp_path / "state.db")
        for key, options in (("with", {}), ("without", {"with_checksums": False})):
            with database.writing(**options) as connection:
                connection.execute("INSERT INTO state_meta (key, value) VALUES (?, 'x')", (key,))
        found = dict(database.connection.execute("SELECT key, checksum IS NULL FROM state_meta WHERE value = 'x'"))
        database.close()

        assert found == {"with": 0, "without": 1}

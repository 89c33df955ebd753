"""The replacement of a database file: what each stage of it leaves, and who completes it."""

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from wellkept.core.errors import Busy, StorageError
from wellkept.storage.connections import Migration
from wellkept.storage.sqlite import build, create
from wellkept.storage.swap import Replacement, companion, finish, hold_alone, is_unfinished, refuse_unfinished


@pytest.fixture
def path(tmp_path):
    """A database file with a log, both of which only have to be bytes here."""
    path = tmp_path / "state.db"
    path.write_bytes(b"old")
    companion(path, "-wal").write_bytes(b"old log")
    return path


def names(path):
    return sorted(file.name for file in path.parent.iterdir() if not file.name.endswith(".lock"))


def begin(path):
    replacement = Replacement.of(path, "moment")
    replacement.begin()
    replacement.fresh.write_bytes(b"new")
    return replacement


def rewrite_journal(path, **values):
    """Let the journal say something else; without a process that is alive."""
    journal = companion(path, ".repair")
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    journal.write_text(json.dumps({**json.loads(journal.read_text()), "pid": int(ended.stdout), **values}))


def test_a_swap_puts_the_new_file_in_place_and_keeps_the_old_with_its_log(path):
    """The log of the old file must not be found beside the new one: SQLite would apply it."""
    replacement = begin(path)

    replacement.swap()

    assert path.read_bytes() == b"new"
    assert replacement.aside.read_bytes() == b"old"
    assert companion(replacement.aside, "-wal").read_bytes() == b"old log"
    assert names(path) == ["state.db", "state.db.damaged-moment", "state.db.damaged-moment-wal"]
    assert not is_unfinished(path)


def test_a_new_file_whose_log_is_not_in_it_takes_no_place(path):
    """SQLite closes a file without an error although the disk refused what its log holds; the old file stays."""
    replacement = begin(path)
    companion(replacement.fresh, "-wal").write_bytes(b"new log")

    with pytest.raises(StorageError, match="did not take all of the new file"):
        replacement.swap()
    replacement.abandon()

    assert path.read_bytes() == b"old"
    assert names(path) == ["state.db", "state.db-wal"]


def test_names_that_are_taken_are_not_used_again(path):
    """Two repairs in one second keep both old files."""
    begin(path).swap()
    companion(path, ".salvaged-moment-2").write_bytes(b"somebody's")

    assert [Replacement.of(path, name).stamp for name in ("moment", "other")] == ["moment-3", "other"]


def test_a_replacement_that_was_abandoned_leaves_nothing(path):
    """Of the new file, its companions and the journal; the old file is untouched."""
    replacement = begin(path)
    companion(replacement.fresh, "-wal").write_bytes(b"x")

    replacement.abandon()

    assert names(path) == ["state.db", "state.db-wal"]
    assert (path.read_bytes(), companion(path, "-wal").read_bytes()) == (b"old", b"old log")


def test_one_that_has_begun_to_swap_is_not_abandoned(path):
    """The next open completes it."""
    replacement = begin(path)
    rewrite_journal(path, stage="swapping")

    replacement.abandon()

    assert replacement.fresh.exists()
    assert is_unfinished(path)


def test_a_copy_that_is_being_made_is_left_to_its_process(path):
    """It is unfinished only when the process is gone."""
    begin(path)

    assert not is_unfinished(path)
    assert finish(path) is False
    assert companion(path, ".repair").exists()
    refuse_unfinished(path)


def test_a_copy_whose_process_is_gone_is_rolled_back(path):
    """The old file was not touched."""
    begin(path)
    rewrite_journal(path)
    assert is_unfinished(path)
    with pytest.raises(StorageError, match="interrupted"):
        refuse_unfinished(path)

    assert finish(path) is True

    assert names(path) == ["state.db", "state.db-wal"]
    assert path.read_bytes() == b"old"
    assert finish(path) is False


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_swap_that_was_interrupted_is_carried_on(path, is_renamed):
    """Before the rename, or after it: the new file is in place, without the log of the old one."""
    replacement = begin(path)
    os.link(path, replacement.aside)
    if is_renamed:
        companion(path, "-wal").unlink()
        replacement.fresh.replace(path)
    rewrite_journal(path, stage="swapping")

    assert finish(path) is True

    assert path.read_bytes() == b"new"
    assert names(path) == ["state.db", "state.db.damaged-moment"]


def test_a_copy_is_not_rolled_back_when_there_is_no_other_file(path):
    """It may be all that is left."""
    replacement = begin(path)
    rewrite_journal(path)
    path.unlink()

    finish(path)

    assert replacement.fresh.read_bytes() == b"new"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stage": "swapping"}', '{"stage": "x", "stamp": "y", "pid": "z"}'])
def test_a_journal_that_cannot_be_read_says_nothing(path, text):
    """It is left for a person to look at; nothing is renamed on its word."""
    companion(path, ".repair").write_text(text)

    assert (is_unfinished(path), finish(path)) == (False, False)
    assert path.read_bytes() == b"old"


def test_the_repair_of_an_earlier_version_is_completed(path):
    """It moved the old file away before it renamed the new one, and wrote no journal."""
    old, new = companion(path, ".damaged-20260101-120000"), companion(path, ".salvaged-20260101-120000")
    path.rename(old)
    assert finish(path) is False  # nothing says that a repair was going on
    new.write_bytes(b"new")

    assert finish(path) is True

    assert path.read_bytes() == b"new"
    assert finish(path) is False


def test_a_file_that_is_not_the_repaired_one_of_a_lost_file_stays(path):
    """While the file itself is there, nothing is renamed."""
    companion(path, ".damaged-20260101-120000").write_bytes(b"x")
    new = companion(path, ".salvaged-20260101-120000")
    new.write_bytes(b"new")

    assert finish(path) is False
    assert (path.read_bytes(), new.exists()) == (b"old", True)


def test_a_new_database_is_complete_before_it_has_its_name(tmp_path):
    """Private, with the tables, page size and mark that were asked for; one that is there already is left as it is."""
    path = tmp_path / "made" / "state.db"
    steps = (Migration(1, "CREATE TABLE t (v); INSERT INTO t VALUES ('first')"), Migration(3, "ALTER TABLE t ADD w"))
    data = build(steps, page_bytes=8_192, application_id=1_234)

    create(path, data)

    with closing(apsw.Connection(str(path))) as connection:
        assert (connection.pragma("page_size"), connection.pragma("application_id")) == (8_192, 1_234)
        assert (connection.pragma("user_version"), list(connection.execute("SELECT * FROM t"))) == (
            3,
            [("first", None)],
        )
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(path) == ["state.db"]
    path.write_bytes(b"mine")
    create(path, data)
    assert path.read_bytes() == b"mine"


def test_files_of_two_kinds_are_not_mixed_up(tmp_path):
    """A process makes pages, ledgers and stores; each has its own tables, mark and page size."""
    for name, column, mark in (("a", "v", 1), ("b", "w", 1), ("c", "v", 2)):
        steps = (Migration(1, f"CREATE TABLE t ({column})"),)
        create(tmp_path / name, build(steps, page_bytes=512 * mark, application_id=mark))

    for name, column, mark in (("a", "v", 1), ("b", "w", 1), ("c", "v", 2)):
        with closing(apsw.Connection(str(tmp_path / name))) as connection:
            assert connection.execute("SELECT name FROM pragma_table_info('t')").fetchall() == [(column,)]
            assert (connection.pragma("application_id"), connection.pragma("page_size")) == (mark, 512 * mark)


@pytest.mark.parametrize("failure", [1, 95])
def test_where_files_have_one_name_only_a_database_is_created_all_the_same(tmp_path, monkeypatch, failure):
    """A file system without links: an empty file, which SQLite fills."""
    path = tmp_path / "state.db"

    def refuse(*_):
        raise OSError(failure, "no links here")

    monkeypatch.setattr(os, "link", refuse)

    create(path, b"data")

    assert (path.read_bytes(), names(path), path.stat().st_mode & 0o777) == (b"", ["state.db"], 0o600)


def test_another_error_of_the_disk_is_raised(tmp_path, monkeypatch):
    """A full disk is not mistaken for a file system without links."""

    def refuse(*_):
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "link", refuse)

    with pytest.raises(OSError, match="no space"):
        create(tmp_path / "state.db", b"data")
    assert list(tmp_path.iterdir()) == []


def test_a_swap_without_links_copies(path, monkeypatch):
    """The old file and its log are there afterwards, as bytes of their own."""

    def refuse(*_):
        raise OSError(1, "no links here")

    replacement = begin(path)
    monkeypatch.setattr(os, "link", refuse)

    replacement.swap()

    assert (path.read_bytes(), replacement.aside.read_bytes()) == (b"new", b"old")
    assert companion(replacement.aside, "-wal").read_bytes() == b"old log"


def test_a_file_in_use_is_not_held(tmp_path):
    """While SQLite reads or writes it, nobody may replace it; afterwards it is held, and SQLite has to wait."""
    path = tmp_path / "a.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE t (v)")
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy, match="another process"), hold_alone(path, wait_seconds=0.1):
            pass
        connection.execute("COMMIT")

        with hold_alone(path, wait_seconds=0.1):
            path.read_bytes()  # closing another descriptor of the file must not end the lock
            with pytest.raises(apsw.BusyError):
                connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("INSERT INTO t VALUES (1)")


@pytest.fixture
def system_calls(monkeypatch, tmp_path):
    """Record what reaches the disk, in its order: syncs, renames, second names and removals."""
    calls = []

    def record(owner, name, describe):
        real = getattr(owner, name)

        def call(*given, **options):
            calls.append((name, *describe(*given)))
            return real(*given, **options)

        monkeypatch.setattr(owner, name, call)

    def shorten(*paths):
        return [re.sub(r"\.?kept-tmp-.*", "", Path(path).name) for path in paths]

    record(os, "fsync", lambda descriptor: shorten(Path(f"/proc/self/fd/{descriptor}").readlink()))
    record(os, "link", shorten)
    record(os, "replace", shorten)
    record(os, "unlink", shorten)
    return calls


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to name open files")
def test_a_swap_survives_power_loss_at_any_moment(path, system_calls):
    """The old file has its second name before the journal says so, its log goes before the new file has its place."""
    replacement = begin(path)
    system_calls.clear()

    replacement.swap()

    folder, fresh, aside = path.parent.name, replacement.fresh.name, replacement.aside.name
    journal = [("fsync", ".state.db.repair"), ("replace", ".state.db.repair", "state.db.repair"), ("fsync", folder)]
    assert system_calls == [
        ("fsync", fresh),
        ("link", "state.db", aside),
        ("link", "state.db-wal", f"{aside}-wal"),
        ("fsync", folder),
        *journal,
        *(("unlink", f"state.db{suffix}") for suffix in ("-wal", "-shm", "-journal")),
        ("fsync", folder),
        ("replace", fresh, "state.db"),
        ("fsync", folder),
        ("unlink", "state.db.repair"),
        ("fsync", folder),
    ]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to name open files")
def test_a_copy_in_place_of_a_second_name_is_on_the_disk_too(path, system_calls, monkeypatch):
    """Before the journal says that the old file is safe."""
    replacement = begin(path)
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(1, "no links here")))
    system_calls.clear()

    replacement.swap()

    aside = replacement.aside.name
    assert [call for call in system_calls if call[1].startswith(aside)] == [("fsync", aside), ("fsync", f"{aside}-wal")]


def test_a_file_that_has_the_second_name_already_is_not_overwritten(path):
    """It is the old file of another repair."""
    replacement = begin(path)
    replacement.aside.write_bytes(b"another")

    with pytest.raises(StorageError, match="cannot replace"):
        replacement.swap()
    assert (path.read_bytes(), replacement.aside.read_bytes()) == (b"old", b"another")


def test_of_several_repairs_of_an_earlier_version_the_newest_is_completed(path):
    """If the old file of it is there; a copy without one may be half of a file."""
    path.unlink()
    for stamp in ("20260101-120000", "20260102-120000", "20260103-120000"):
        companion(path, f".salvaged-{stamp}").write_bytes(stamp.encode())
    for stamp in ("20260101-120000", "20260102-120000"):
        companion(path, f".damaged-{stamp}").write_bytes(b"old")

    assert finish(path) is True

    assert path.read_bytes() == b"20260102-120000"


def test_an_empty_database_is_built_once(tmp_path):
    """The migrations take longer than everything else that a new user needs."""
    steps = (Migration(1, "CREATE TABLE once (v)"),)

    assert build(steps, page_bytes=512, application_id=1) is build(steps, page_bytes=512, application_id=1)


def test_all_bytes_that_sqlite_locks_are_held_and_no_others(tmp_path):
    """The pending, the reserved and the shared bytes, as the file format places them."""
    path = tmp_path / "a.db"
    path.touch()

    def is_free(at):
        with path.open("r+b") as file:
            wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
            try:
                fcntl.fcntl(file, fcntl.F_OFD_SETLK, wanted)
            except OSError:
                return False
            return True

    first = 0x40000000
    with hold_alone(path):
        assert [is_free(at) for at in (first - 1, first, first + 511, first + 512)] == [True, False, False, True]
    assert is_free(first)


def test_a_file_that_is_freed_meanwhile_is_held(tmp_path):
    """It is tried again until the time is over."""
    path = tmp_path / "a.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.1, connection.execute, ("COMMIT",))
        release.start()
        with hold_alone(path, wait_seconds=30):
            release.join()

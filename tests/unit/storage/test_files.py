"""Files: the old bytes or the new bytes, never a mixture, and no litter."""

import errno
import os
import sqlite3
import stat
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wellkept.core.errors import Busy, StorageError, Unreadable
from wellkept.core.regular_files import open_regular
from wellkept.storage import locks
from wellkept.storage.documents import FolderDocuments
from wellkept.storage.files import (
    declares_our_tables,
    find_project,
    is_foreign,
    make_folder,
    read_bytes,
    read_with_stamp,
    remove_stale_temps,
    sync_folder,
    temporary_name,
    write_atomically,
    write_durably,
)
from wellkept.storage.locks import hold_lock, lock_folder
from wellkept.storage.maintenance import copy_file
from wellkept.storage.sqlite import open_state
from wellkept.storage.swap import hold_alone
from wellkept.storage.texts import Texts
from wellkept.storage.versions import find_header_fault


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@settings(max_examples=settings.default.max_examples // 2)  # every write waits for the disk
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_replace_is_whole(tmp_path, old, new):
    """After a write the file holds exactly the new bytes, and nothing else lies beside it."""
    file = tmp_path / "page"
    write_atomically(file, old)
    write_atomically(file, new)

    assert file.read_bytes() == new
    assert list(tmp_path.iterdir()) == [file]


def test_new_files_are_private(tmp_path):
    """0600 whatever the umask says."""
    before = os.umask(0)
    try:
        write_atomically(tmp_path / "page", b"x")
    finally:
        os.umask(before)

    assert mode(tmp_path / "page") == 0o600


@pytest.mark.parametrize("wanted", [0o600, 0o640, 0o644, 0o666])
def test_the_mode_is_kept(tmp_path, wanted):
    """A file that a person shares stays shared."""
    file = tmp_path / "page"
    file.write_bytes(b"old")
    file.chmod(wanted)
    write_atomically(file, b"new")

    assert mode(file) == wanted


def test_a_symlink_is_followed(tmp_path):
    """The file behind the link changes, the link stays."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    write_atomically(link, b"new")

    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_a_dangling_symlink_makes_its_target(tmp_path):
    """A link to a file that is not there yet creates that file."""
    (tmp_path / "link").symlink_to(tmp_path / "later")
    write_atomically(tmp_path / "link", b"new")

    assert (tmp_path / "later").read_bytes() == b"new"


def test_a_circle_of_links_is_an_error_in_our_words(tmp_path):
    """No RuntimeError escapes."""
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")

    with pytest.raises(StorageError, match="circle"):
        write_atomically(tmp_path / "a", b"x")
    with pytest.raises(Unreadable):
        read_bytes(tmp_path / "a")


def test_a_folder_in_the_file_s_place(tmp_path):
    """The error says what stands there and what to do."""
    (tmp_path / "page").mkdir()

    with pytest.raises(StorageError, match="move it away"):
        write_atomically(tmp_path / "page", b"x")
    with pytest.raises(Unreadable, match="move it away"):
        read_bytes(tmp_path / "page")


def test_a_failed_write_leaves_no_temporary_file(tmp_path, monkeypatch):
    """When the rename fails the old bytes stand and the temporary file is gone."""

    def refuse(self, target):
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "page"
    write_atomically(file, b"old")
    monkeypatch.setattr(type(file), "replace", refuse)

    with pytest.raises(StorageError, match="permissions"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_stale_temps_of_dead_writers_are_removed(tmp_path):
    """Those of the living, and other people's files, stay."""
    page = tmp_path / "page"
    stay = [
        tmp_path / f".page.kept-tmp-{os.getpid()}-aa",
        tmp_path / ".page.swp",
    ]
    go = [
        tmp_path / ".page.kept-tmp-4194999-aa",
        tmp_path / ".page.kept-tmp-x",
        tmp_path / ".other.kept-tmp-4194999-a",
        tmp_path / f".page.kept-tmp-{10**30}-a",
    ]
    for path in (*stay, *go):
        path.touch()

    remove_stale_temps(page)

    assert sorted(tmp_path.iterdir()) == sorted(stay)


def test_stale_temps_are_looked_for_behind_a_link(tmp_path):
    """A writer that follows a link leaves its temporary file there."""
    (tmp_path / "far").mkdir()
    (tmp_path / "page").symlink_to(tmp_path / "far" / "real")
    stale = tmp_path / "far" / ".real.kept-tmp-4194999-aa"
    stale.touch()

    remove_stale_temps(tmp_path / "page")

    assert not stale.exists()


def test_every_new_folder_is_private(tmp_path):
    """Not only the last one: a home is made with its pages."""
    make_folder(tmp_path / "home" / "memories")

    assert mode(tmp_path / "home") == mode(tmp_path / "home" / "memories") == 0o700


def test_a_folder_that_is_there_keeps_its_mode(tmp_path):
    """A person's own choice is left alone."""
    tmp_path.chmod(0o755)
    make_folder(tmp_path / "x")
    make_folder(tmp_path)

    assert mode(tmp_path) == 0o755


@pytest.mark.parametrize("below", ["", "memories"])
def test_a_file_in_a_folder_s_place(tmp_path, below):
    """The error names it and the way out."""
    (tmp_path / "home").write_text("not a folder")

    with pytest.raises(StorageError, match="--home"):
        make_folder(tmp_path / "home" / below)


def test_a_missing_file_has_no_bytes(tmp_path):
    """Missing is None, empty is empty."""
    (tmp_path / "empty").touch()

    assert read_bytes(tmp_path / "absent") is None
    assert read_bytes(tmp_path / "empty") == b""


@pytest.fixture
def system_calls(monkeypatch):
    """Record fsync and rename, with the path and the size of the file at that moment."""
    calls = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        calls.append(("fsync", str(path), None if path.is_dir() else os.fstat(descriptor).st_size))
        real_fsync(descriptor)

    def replace(source, target):
        calls.append(("rename", os.fspath(source), os.fspath(target)))
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return calls


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to name open files")


@needs_proc
@pytest.mark.parametrize("exists", [False, True], ids=["new file", "old file"])
def test_a_replace_survives_power_loss(tmp_path, system_calls, exists):
    """All bytes are written and synced before the rename, and the rename is synced through its folder."""
    file = tmp_path / "page"
    if exists:
        file.write_bytes(b"old")

    write_atomically(file, b"new bytes")

    (first, temp, size), (second, source, target), last = system_calls
    assert (first, second) == ("fsync", "rename")
    assert size == len(b"new bytes")
    assert (source, target) == (temp, str(file))
    assert last == ("fsync", str(tmp_path), None)


@needs_proc
def test_a_replace_through_a_link_syncs_the_folder_of_its_target(tmp_path, system_calls):
    """The folder that changed is the one that is synced."""
    (tmp_path / "real").mkdir()
    (tmp_path / "page").symlink_to(tmp_path / "real" / "page")

    write_atomically(tmp_path / "page", b"x")

    assert system_calls[-1] == ("fsync", str(tmp_path / "real"), None)


@needs_proc
def test_a_write_in_place_is_synced_too(tmp_path, system_calls, monkeypatch):
    """Where a rename over the target is forbidden, the bytes in place are synced."""
    file = tmp_path / "page"
    file.write_bytes(b"older and longer")

    def forbidden(source, target):
        raise OSError(errno.EBUSY, "in use")

    monkeypatch.setattr(os, "replace", forbidden)
    write_atomically(file, b"new")

    assert file.read_bytes() == b"new"
    assert ("fsync", str(file), 3) in system_calls


def test_a_disk_that_refuses_to_sync_is_an_error(tmp_path, monkeypatch):
    """A write that may be lost is never reported as done, and the old bytes stay."""
    file = tmp_path / "page"
    file.write_bytes(b"old")

    def refuse(descriptor):
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fsync", refuse)

    with pytest.raises(StorageError, match="input/output error"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"


def test_a_durable_write_replaces_what_was_there(tmp_path):
    """A longer old text does not stay behind a shorter new one."""
    file = tmp_path / "page"
    file.write_bytes(b"a longer text")
    write_durably(file, b"short", mode=0o600)

    assert file.read_bytes() == b"short"


@pytest.fixture
def state(tmp_path):
    """A state file as this version makes it, closed and without a log."""
    path = tmp_path / "state.db"
    open_state(path).close()
    return path


def change_byte(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)


@pytest.mark.parametrize("at", [0, 14, 15])
def test_a_file_that_does_not_begin_as_a_database_is_damaged(state, at):
    """The first sixteen bytes are the same in every database."""
    change_byte(state, at)

    assert find_header_fault(state) == "the file does not begin as an SQLite database"


@pytest.mark.parametrize("at", [68, 71])
def test_a_damaged_mark_does_not_make_the_file_foreign(state, at):
    """The tables that the file declares are ours."""
    change_byte(state, at)

    assert find_header_fault(state) == "the mark of kept in the header is damaged"
    assert not is_foreign(state)


@pytest.mark.parametrize("at", [21, 22, 23, 64, 67, 72, 91])
def test_fields_that_never_change_are_checked(state, at):
    """SQLite itself ignores some of them."""
    change_byte(state, at)

    assert find_header_fault(state) == "fields of the header are damaged"


def test_a_sound_header_has_no_fault(state, tmp_path):
    """Neither has a file that is empty or missing; one that was cut has."""
    (tmp_path / "empty.db").touch()
    (tmp_path / "cut.db").write_bytes(state.read_bytes()[:99])

    assert find_header_fault(state) is None
    assert find_header_fault(tmp_path / "empty.db") is None
    assert find_header_fault(tmp_path / "missing.db") is None
    assert find_header_fault(tmp_path / "cut.db") is not None


def test_a_database_of_another_program_is_foreign(tmp_path):
    """If it has tables; one without any could become ours."""
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("PRAGMA user_version = 1")
        other.commit()
        assert not is_foreign(tmp_path / "other.db")
        other.execute("CREATE TABLE carried (a)")
        other.execute("CREATE TABLE tombstones (a)")
        other.commit()
        assert is_foreign(tmp_path / "other.db")
        other.execute("CREATE TABLE state_meta (a)")  # three names of ours are no coincidence
        other.commit()
        assert not is_foreign(tmp_path / "other.db")


def test_what_is_no_database_belongs_to_nobody(tmp_path):
    """Text of any length is damage, not another program's file."""
    (tmp_path / "a.db").write_bytes(b"CREATE TABLE nothing" * 50)

    assert not is_foreign(tmp_path / "a.db")


def test_the_project_is_the_repository_around_a_folder(tmp_path):
    """The nearest one; the folder itself where there is none."""
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    inner = tmp_path / "repo" / "a" / "b"
    inner.mkdir(parents=True)

    assert find_project(None) is None
    assert find_project(str(inner)) == str(tmp_path / "repo")
    assert find_project(str(tmp_path)) == str(tmp_path)


def test_a_folder_is_held_by_several_readers_or_by_one_writer(tmp_path, monkeypatch):
    """Who does not get it in time is told who has it, and not before that."""
    monkeypatch.setattr(locks, "FOLDER_WAIT_SECONDS", 0.2)
    with lock_folder(tmp_path), lock_folder(tmp_path):
        began = time.monotonic()
        with pytest.raises(Busy, match="opening or replacing"), lock_folder(tmp_path, exclusive=True):
            pass
    assert time.monotonic() - began >= 0.2
    with lock_folder(tmp_path, exclusive=True), pytest.raises(Busy), lock_folder(tmp_path):
        pass
    with lock_folder(tmp_path, exclusive=True):
        pass


def test_a_waiting_writer_gets_the_folder_when_it_is_free(tmp_path):
    """It tries again until then."""
    held = lock_folder(tmp_path)
    held.__enter__()
    release = threading.Timer(0.15, held.__exit__, (None, None, None))
    release.start()
    with lock_folder(tmp_path, exclusive=True):
        release.join()


def test_a_folder_that_is_missing_needs_no_lock(tmp_path):
    """It is created by what runs in the block."""
    with lock_folder(tmp_path / "new", exclusive=True):
        (tmp_path / "new").mkdir()


def open_descriptors():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


@needs_proc
def test_no_descriptor_stays_open(tmp_path):
    """Neither after a success nor after a refusal: a server that runs for months would run out of them."""
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "text").write_bytes(b"no end of line")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = open_descriptors()
    caught = []

    def attempt(act, *given, **options):
        try:
            return act(*given, **options)
        except (OSError, StorageError, ValueError) as error:
            caught.append(error)  # an error keeps the frames alive, and with them what only they hold

    def hold(manager):
        with manager:
            raise ValueError("inside")

    for name in ("file", "folder", "pipe", "absent"):
        attempt(read_bytes, tmp_path / name)
        attempt(write_durably, tmp_path / name, b"y", mode=0o600) if name != "pipe" else None
        attempt(Texts(["walnut"]).are_in_file, tmp_path / name)
    sync_folder(tmp_path)
    FolderDocuments(tmp_path).append("text", b"line\n")
    attempt(hold, hold_lock(tmp_path / "a.lock"))
    attempt(hold, hold_alone(tmp_path / "file"))
    attempt(hold, lock_folder(tmp_path, exclusive=True))
    with hold_lock(tmp_path / "b.lock"):
        attempt(hold, hold_lock(tmp_path / "b.lock", timeout_seconds=0))
    copy_file(str(tmp_path / "file"), str(tmp_path / "copy"))

    assert len(caught) >= 6
    assert open_descriptors() == before


def test_only_regular_files_and_the_null_device_are_opened(tmp_path):
    """A device without an end would be read for ever."""
    (tmp_path / "file").write_bytes(b"x")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"x"
    with open_regular(Path(os.devnull)) as file:
        assert file.read() == b""

    with pytest.raises(OSError, match="not a file") as caught:
        open_regular(Path("/dev/zero"))
    assert caught.value.errno == errno.ENOTSUP
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_a_file_is_read_with_the_moment_of_its_last_change(tmp_path):
    """To the nanosecond, from the same open file; a name that no file can have is an error in our words."""
    (tmp_path / "file").write_bytes(b"x")
    os.utime(tmp_path / "file", ns=(1, 1_700_000_000_123_456_789))

    assert read_with_stamp(tmp_path / "file") == (b"x", 1_700_000_000_123_456_789)
    assert read_with_stamp(tmp_path / "absent") is None
    with pytest.raises(Unreadable, match="check the name"):
        read_with_stamp(tmp_path / "a\0b")


def test_a_project_in_a_place_that_cannot_be_looked_at_is_the_folder_itself():
    """A name that is too long for the system is not an error here."""
    assert find_project("/" + "x" * 5_000) == "/" + "x" * 5_000
    assert find_project("/a\0b") is None
    assert find_project("/\ud800") is None


def test_a_temporary_name_is_hidden_and_says_whose_it_is(tmp_path):
    """Two of one process differ."""
    names = {temporary_name(tmp_path / "page").name for _ in range(20)}

    assert len(names) == 20
    assert all(name.startswith(f".page.kept-tmp-{os.getpid()}-") for name in names)


def test_a_missing_folder_is_made_only_as_far_as_it_is_missing(tmp_path, monkeypatch):
    """Somebody else may make it at the same moment; if it is not a folder then, that is an error."""
    real = Path.mkdir

    def race(self, **options):
        real(self)
        real(self, **options)

    monkeypatch.setattr(Path, "mkdir", race)
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="a file in a folder's place"):
        make_folder(tmp_path / "file")


@pytest.mark.parametrize("change", ["short", "magic", "no schema", "mark", "foreign"])
def test_only_a_database_with_tables_and_without_our_mark_is_foreign(tmp_path, change):
    """Each sign alone says nothing."""
    header = bytearray(b"SQLite format 3\0" + bytes(84))
    header[43] = 1
    match change:
        case "short":
            header = header[:99]
        case "magic":
            header[3] ^= 1
        case "no schema":
            header[43] = 0
        case "mark":
            header[68:72] = b"KEPT"
    (tmp_path / "a.db").write_bytes(header)

    assert is_foreign(tmp_path / "a.db") is (change == "foreign")


def test_tables_of_ours_are_found_in_the_log_too(tmp_path):
    """A new file may have all of them there."""
    marks = (b"CREATE TABLE carried", b"CREATE TABLE tombstones", b"CREATE TABLE blob_uses")
    (tmp_path / "a.db").write_bytes(marks[0] * 3)
    (tmp_path / "a.db-wal").write_bytes(b" ".join(marks[:2]))
    assert not declares_our_tables(tmp_path / "a.db")

    (tmp_path / "a.db-wal").write_bytes(b" ".join(marks[1:]))
    assert declares_our_tables(tmp_path / "a.db")
    (tmp_path / "a.db").unlink()
    (tmp_path / "a.db-wal").write_bytes(b" ".join(marks))
    assert declares_our_tables(tmp_path / "a.db")

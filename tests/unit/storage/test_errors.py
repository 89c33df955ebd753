"""Errors of SQLite and of the system become errors that say what is wrong and what to do next."""

import errno
import os
from types import SimpleNamespace

import apsw
import pytest

from wellkept.core.errors import Busy, StorageError, Unreadable
from wellkept.core.regular_files import explain_errors
from wellkept.storage import locks
from wellkept.storage.connections import explain_sql_errors, is_absent
from wellkept.storage.files import read_bytes, sync_folder
from wellkept.storage.locks import hold_lock

GIB = 1024**3


def disk(*, free=GIB, blocks=1_000, read_only=False):
    """Return what `os.statvfs` reports of a disk with blocks of one byte."""
    return SimpleNamespace(
        f_flag=os.ST_RDONLY if read_only else os.ST_NOSUID, f_blocks=blocks, f_bavail=free, f_frsize=1
    )


def explain(error, path):
    with pytest.raises(StorageError) as caught, explain_sql_errors(path):
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("error", "of_disk", "message", "remedy"),
    [
        (apsw.FullError("full"), disk(), "cannot write {}: the disk is full", "free some space, then try again"),
        (apsw.IOError("short write"), disk(free=65_535), "cannot write {}: the disk is full", "free some space"),
        (apsw.IOError("disk I/O"), disk(free=65_536), "cannot use {}: disk I/O", "check the disk"),
        (apsw.IOError("disk I/O"), disk(free=0, blocks=0), "cannot use {}: disk I/O", "check the disk"),
        (apsw.IOError("disk I/O"), disk(read_only=True), "the file system is read-only", "remount it"),
        (apsw.FullError("full"), disk(read_only=True, free=0), "the file system is read-only", "--home"),
        (apsw.ReadOnlyError("no"), disk(), "cannot write {}: it is read-only", "permissions of the file"),
        (apsw.CantOpenError("no way"), disk(), "cannot open {}: no way", "check the folder"),
        (apsw.PermissionsError("denied"), disk(), "cannot use {}: denied", "permissions"),
        (apsw.AuthError("denied"), disk(), "cannot use {}: denied", "permissions"),
    ],
)
def test_a_refusal_is_explained_by_the_state_of_the_disk(tmp_path, monkeypatch, error, of_disk, message, remedy):
    """The code that SQLite gives is less precise than what the disk says about itself."""
    asked = []
    monkeypatch.setattr(os, "statvfs", lambda path: asked.append(path) or of_disk)
    path = tmp_path / "state.db"

    explained = explain(error, path)

    assert message.format(repr(str(path))) in explained.message
    assert remedy in explained.remedy
    assert type(explained) is StorageError
    assert explained.__cause__ is error
    assert set(asked) <= {tmp_path}


@pytest.mark.parametrize("error", [apsw.BusyError("database is locked"), apsw.LockedError("table is locked")])
def test_a_busy_file_is_not_a_fault(tmp_path, error):
    """Whoever waits and tries again will succeed."""
    explained = explain(error, tmp_path / "state.db")

    assert isinstance(explained, Busy)
    assert "is busy" in explained.message
    assert "another process is writing" in explained.remedy


@pytest.mark.parametrize(
    "error",
    [
        apsw.CorruptError("malformed"),
        apsw.NotADBError("not a database"),
        apsw.SQLError("invalid fts5 file format"),
    ],
)
def test_damage_names_the_check(tmp_path, error):
    """FTS5 reports damage as an SQL error."""
    explained = explain(error, tmp_path / "state.db")

    assert isinstance(explained, Unreadable)
    assert "is damaged" in explained.message
    assert "kept doctor" in explained.remedy


def test_a_mistake_in_our_sql_is_not_taken_for_damage(tmp_path):
    """It is a defect of the program and must be seen."""
    with pytest.raises(apsw.SQLError), explain_sql_errors(tmp_path / "state.db"):
        raise apsw.SQLError("near FORM: syntax error")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permissions"),
        (errno.EPERM, "permissions"),
        (errno.ENOTDIR, "a file in a folder's place"),
        (errno.ENAMETOOLONG, "too long"),
        (errno.EIO, "input/output error"),
        (errno.ENODEV, "check the path and try again"),
        (None, "check the path and try again"),
    ],
)
def test_every_error_of_the_system_has_a_next_step(tmp_path, number, remedy):
    """The message names the path and the reason of the system."""
    error = OSError("odd") if number is None else OSError(number, os.strerror(number))

    with pytest.raises(StorageError) as caught, explain_errors("write", tmp_path / "page"):
        raise error

    assert remedy in caught.value.remedy
    reason = "odd" if number is None else os.strerror(number)
    assert caught.value.message == f"cannot write {str(tmp_path / 'page')!r}: {reason}"


def test_a_file_that_cannot_be_read_says_why(tmp_path, monkeypatch):
    """A missing file is not an error; one that refuses is."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unreadable, match="Is a directory") as caught:
        read_bytes(tmp_path / "folder")
    assert "move it away" in caught.value.remedy

    def refuse(*_args, **_options):
        raise OSError("no reason given")

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(Unreadable, match="no reason given") as caught:
        read_bytes(tmp_path / "page")
    assert caught.value.remedy == "check the file"


def test_a_path_is_absent_only_when_that_is_certain(tmp_path):
    """Below a file, or behind a name that is too long, something may exist on another system."""
    (tmp_path / "file").touch()

    assert is_absent(tmp_path / "nothing")
    assert not is_absent(tmp_path / "file")
    assert not is_absent(tmp_path / "file" / "below")
    assert not is_absent(tmp_path / ("x" * 300))


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_folder_that_cannot_be_synced_at_all_is_no_error(tmp_path, monkeypatch, number):
    """Some file systems do not support it."""

    def refuse(_descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    sync_folder(tmp_path)


def test_a_folder_whose_sync_fails_is_an_error(tmp_path, monkeypatch):
    """The rename may not survive a power loss."""

    def refuse(_descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="error"):
        sync_folder(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF])
def test_without_locks_the_block_runs_after_one_warning(tmp_path, monkeypatch, caplog, code):
    """Atomic replacement still protects readers."""

    def refuse(_descriptor, _operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    monkeypatch.setattr(locks, "_warned", set())
    ran = []
    for name in ("a.lock", "a.lock", "b.lock"):
        with hold_lock(tmp_path / name, timeout_seconds=0):
            ran.append(name)

    assert ran == ["a.lock", "a.lock", "b.lock"]
    assert caplog.text.count("no file locks at") == 1

"""Locks of the operating system, and what a file system supports."""

import errno
import os

import pytest

from wellkept.storage import locks
from wellkept.storage.locks import Support, find_support, is_range_locked, try_lock, try_range


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """Each test tries the file system anew."""
    monkeypatch.setattr(locks, "_found", {})


def test_a_local_disk_supports_everything_and_nothing_is_left(tmp_path):
    """The files of the trial are removed."""
    assert find_support(tmp_path / "spare") is Support.FULL
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_where_no_file_can_be_created_sqlite_finds_out(tmp_path, monkeypatch, code):
    """The next process, or the next open, tries again."""

    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", refuse)

    assert find_support(tmp_path / "spare") is Support.FULL
    assert locks._found == {}


def test_a_range_is_locked_by_one_open_file(tmp_path):
    """Others see that it is held."""
    path = tmp_path / "file"
    path.touch()
    one, other = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)

    assert try_range(one, 10, 5)
    assert (is_range_locked(other, 0, 20), is_range_locked(other, 20, 5)) == (True, False)
    assert not try_range(other, 12, 1)
    os.close(one)
    assert try_range(other, 12, 1)
    os.close(other)


def test_a_file_is_locked_by_one_or_shared_by_many(tmp_path):
    """Until it is closed."""
    path = tmp_path / "file"
    path.touch()
    one, other = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)

    assert (try_lock(one, shared=True), try_lock(other, shared=True), try_lock(other)) == (True, True, False)
    os.close(one)
    assert try_lock(other)
    os.close(other)

"""Locks: one holder at a time, named while it lives, free when it dies."""

import fcntl
import os
import subprocess
import sys
import time

import pytest

from wellkept.core.errors import Busy, StorageError
from wellkept.storage.locks import hold_lock

HOLD = """
import sys, time, pathlib
from wellkept.storage.locks import hold_lock
with hold_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "x.lock")], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_living_holder_is_named(holder, tmp_path):
    """After the time-out the error gives its pid and the next step."""
    start = time.monotonic()
    with pytest.raises(Busy) as caught, hold_lock(tmp_path / "x.lock", timeout_seconds=0.1):
        pass

    assert f"process {holder.pid}" in caught.value.message
    assert caught.value.remedy
    assert 0.1 <= time.monotonic() - start < 9


def test_a_dead_holder_frees_it(holder, tmp_path):
    """kill -9 is enough: the lock dies with its process."""
    holder.kill()
    holder.wait()

    with hold_lock(tmp_path / "x.lock", timeout_seconds=1):
        assert (tmp_path / "x.lock").read_text() == str(os.getpid())


def test_the_holder_is_forgotten_when_it_lets_go(tmp_path):
    """A later holder that writes no pid is not taken for us."""
    with hold_lock(tmp_path / "x.lock"):
        pass
    descriptor = os.open(tmp_path / "x.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(Busy, match="another process"), hold_lock(tmp_path / "x.lock", timeout_seconds=0.05):
            pass
    finally:
        os.close(descriptor)


def test_a_dead_pid_is_not_blamed(tmp_path):
    """The pid of a killed holder is not a holder."""
    (tmp_path / "x.lock").write_text("4194999")
    descriptor = os.open(tmp_path / "x.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(Busy, match="another process"), hold_lock(tmp_path / "x.lock", timeout_seconds=0.05):
            pass
    finally:
        os.close(descriptor)


def test_the_sidecar_is_never_deleted(tmp_path):
    """A deleted sidecar would let two writers in at once."""
    with hold_lock(tmp_path / "deep" / "x.lock"):
        pass

    assert (tmp_path / "deep" / "x.lock").exists()


def test_an_error_inside_frees_it(tmp_path):
    """Whatever happens inside, the next one gets in."""
    with pytest.raises(ZeroDivisionError), hold_lock(tmp_path / "x.lock"):
        raise ZeroDivisionError
    with hold_lock(tmp_path / "x.lock", timeout_seconds=0.05):
        pass


def test_a_folder_in_the_sidecar_s_place(tmp_path):
    """It is an error in our words."""
    (tmp_path / "x.lock").mkdir()

    with pytest.raises(StorageError, match="lock file"), hold_lock(tmp_path / "x.lock"):
        pass

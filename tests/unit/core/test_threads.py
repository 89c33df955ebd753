"""Jobs in daemon threads."""

import sys
import threading

import pytest

from wellkept.core.threads import start_job


def test_a_job_gives_what_its_call_returned() -> None:
    """Whoever waits gets the value."""
    job = start_job(lambda: 7, name="kept-test")

    assert job.wait(5)
    assert job.value() == 7


def test_what_a_call_raises_is_raised_where_it_is_waited_for() -> None:
    """Even what would end a process ends only the job."""
    job = start_job(lambda: sys.exit(3), name="kept-test")

    assert job.wait(5)
    with pytest.raises(SystemExit):
        job.value()


def test_a_call_that_hangs_is_left_behind() -> None:
    """The wait ends in time, and the thread does not hold the exit."""
    release = threading.Event()
    job = start_job(release.wait, name="kept-test-hangs")
    (thread,) = [each for each in threading.enumerate() if each.name == "kept-test-hangs"]

    assert not job.wait(0.05)
    assert thread.daemon
    release.set()
    assert job.wait(5)

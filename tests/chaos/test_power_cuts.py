"""Power cuts: what a command acknowledged is on the disk, and what it had not finished is completed or as it was.

The light form tries a few cuts of three operations; `make test-chaos` tries all operations.
"""

import os
import re
from contextlib import closing
from dataclasses import replace
from random import Random

import apsw
import pytest
from chaos_operations import MESSAGES, OPERATIONS
from power_cut import Disk, read_log

CUTS = int(os.environ.get("KEPT_CHAOS_CUTS", "40"))
"""How many cuts of each operation the full form tries."""
NEEDLESS = re.compile(r"-shm$|\.lock$|/?\.unfinished|/caught-up-|/health-")
"""What a loss of power may take away: memory, locks, scratch folders, the time of the last event."""


def perform(laboratory, operation, log):
    """Run an operation once and return the disk before it and its changes."""
    laboratory.put_back()
    disk = Disk(laboratory.home)
    answer = laboratory.perform(operation, log=log)
    assert answer.code == 0, answer
    return disk, read_log(log)


def find_unsafe(disk, changes):
    found = [what for what in disk.find_unsafe(changes) if not NEEDLESS.search(what)]
    logs = (disk.root / what.partition(" of ")[2] for what in found if what.endswith("-wal"))
    empty = {f"name of {log.relative_to(disk.root)}" for log in logs if not log.stat().st_size}  # made by a reader
    return [what for what in found if what not in empty]


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in {"memory add in a new home", "restore into an empty home", "skills install"} else pytest.mark.heavy) for name in OPERATIONS])
def test_everything_that_a_command_acknowledged_is_synced(laboratory, name, tmp_path):
    """At exit code 0 every file that it wrote, and every folder in which it made a name, was synced after that."""
    operation = OPERATIONS[name]
    laboratory.survey(operation)

    disk, changes = perform(laboratory, operation, tmp_path / "log")

    assert find_unsafe(disk, changes) == []


WITH_ROWS = ("sessions import", "restore into a living home", "forget words", "user create", "sessions delete", "import")


@pytest.mark.parametrize("name", WITH_ROWS)
def test_rows_are_synced_although_another_process_keeps_the_log_open(laboratory, name, tmp_path):
    """The log is copied into the database only when the last process closes it."""
    operation = OPERATIONS[name]
    laboratory.survey(operation)
    laboratory.put_back()
    disk = Disk(laboratory.home)
    if not (laboratory.home / "state.db").exists():
        pytest.skip("no database yet")
    with closing(apsw.Connection(str(laboratory.home / "state.db"))) as other:
        other.execute("SELECT count(*) FROM sessions").fetchall()
        answer = laboratory.perform(operation, log=tmp_path / "log")

        assert answer.code == 0, answer
        assert find_unsafe(disk, read_log(tmp_path / "log")) == []

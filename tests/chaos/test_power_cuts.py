"""Power cuts: what a command acknowledged is on the disk, and what it had not finished is completed or as it was.

The light form tries a few cuts of three operations; `make test-chaos` tries all operations.
"""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from random import Random
from subprocess import PIPE

import pytest
from chaos_operations import OPERATIONS
from msgspec.structs import replace
from power_cut import Disk, read_log

CUTS = int(os.environ.get("KEPT_CHAOS_CUTS", "40" if os.environ.get("KEPT_HEAVY") else "3"))
"""How many cuts of each operation are tried."""
SEED = os.environ.get("KEPT_CHAOS_SEED", "")
"""Other cuts for another seed."""
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


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=()
            if name in {"memory add in a new home", "restore into an empty home", "skills install"}
            else pytest.mark.heavy,
        )
        for name in OPERATIONS
    ],
)
def test_everything_that_a_command_acknowledged_is_synced(laboratory, name, tmp_path):
    """At exit code 0 every file that it wrote, and every folder in which it made a name, was synced after that."""
    operation = OPERATIONS[name]
    laboratory.survey(operation)

    disk, changes = perform(laboratory, operation, tmp_path / "log")

    assert find_unsafe(disk, changes) == []


READER = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("SELECT count(*) FROM sessions").fetchall()
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def keep_open(database):
    """Keep a database open in another process."""
    with subprocess.Popen([sys.executable, "-c", READER, str(database)], stdin=PIPE, stdout=PIPE) as reader:
        reader.stdout.readline()
        yield
        reader.stdin.close()


WITH_ROWS = ("sessions import", "restore into a living home", "forget words", "sessions delete", "import")


@pytest.mark.parametrize("name", WITH_ROWS)
def test_rows_are_synced_although_another_process_keeps_the_log_open(laboratory, name, tmp_path):
    """The log is copied into the database only when the last process closes it."""
    operation = OPERATIONS[name]
    laboratory.survey(operation)
    laboratory.put_back()

    with keep_open(laboratory.home / "state.db"):
        disk = Disk(laboratory.home)
        answer = laboratory.perform(operation, log=tmp_path / "log")

        assert answer.code == 0, answer
        assert find_unsafe(disk, read_log(tmp_path / "log")) == []


def try_cuts(laboratory, operation, log):
    """Cut the power after some changes, and after the end; return what does not hold."""
    survey = laboratory.survey(operation)
    disk, changes = perform(laboratory, operation, log)
    draw, wrong = Random(f"{operation.name}{SEED}"), []
    for number in range(CUTS):
        is_done = number % 3 == 0
        end = len(changes) if is_done else draw.randrange(len(changes))
        disk.cut(changes[:end], draw)
        found = laboratory.judge_cut(survey, is_done=is_done)
        wrong += [f"cut {number} after {end} of {len(changes)} changes: {one}" for one in found]
    return wrong


SEEDS = range(14)
"""Of the cuts of one migration; some leave rows only in older pages, or what a later version of the schema noted."""
LIGHT = {("memory add", "full"), ("restore into a living home", "normal"), ("forget words", "normal")}


@pytest.mark.parametrize(
    ("name", "durability"),
    [
        pytest.param(name, durability, marks=() if (name, durability) in LIGHT else pytest.mark.heavy)
        for name, operation in OPERATIONS.items()
        for durability in ("full", "normal")
        if durability == "full" or operation.eventually is None  # `normal` may lose what waits for delivery, too
    ],
)
def test_after_a_power_cut_the_next_command_finds_or_completes_the_change(laboratory, name, durability, tmp_path):
    """After exit code 0 the new state is there; before it the old one, or the next command completes it."""
    wrong = try_cuts(laboratory, set_durability(OPERATIONS[name], durability), tmp_path / "log")

    assert not wrong, "\n".join(wrong[:8])


def set_durability(operation, durability):
    return replace(operation, prepare=(("config", "set", "sessions.durability", durability), *operation.prepare))


def test_a_forget_goes_on_after_a_power_cut_although_the_database_is_not_synced(laboratory, tmp_path):
    """The key of its note is on the disk before anything is removed."""
    survey = laboratory.survey(set_durability(OPERATIONS["forget words"], "normal"))
    disk, changes = perform(laboratory, survey.operation, tmp_path / "log")
    edited = next(n for n, change in enumerate(changes) if change.kind == "R" and change.path.endswith("/MEMORY.md"))
    synced = next(n for n, change in enumerate(changes) if n > edited and change.kind == "S")

    disk.lose_what_is_not_synced(changes[: synced + 1])

    assert laboratory.view(survey.operation) == survey.new


@pytest.mark.timeout(600)
def test_a_migration_that_lost_pages_loses_nothing_that_was_stored_before(laboratory, tmp_path):
    """Its transaction moved rows to pages that never reached the disk, and wrote others in their older places."""
    survey = laboratory.survey(set_durability(OPERATIONS["migration"], "normal"))
    disk, changes = perform(laboratory, survey.operation, tmp_path / "log")

    wrong = []
    for seed in SEEDS:
        disk.cut(changes[: len(changes) * 3 // 4], Random(seed))
        wrong += laboratory.judge_cut(survey, is_done=False)

    assert wrong == []

"""Every operation, ended or failed at its numbered calls: the old state or the new, and the next command completes it.

The light form tries a few points of the operations that work in several steps; `make test-chaos` tries every point of
all of them and every kind of fault.
"""

import json
import os
import random
import time
from pathlib import Path

import pytest
from chaos_laboratory import Mode
from chaos_operations import EDITS, OPERATIONS
from msgspec.structs import replace

REPORT = os.environ.get("KEPT_CHAOS_REPORT")
"""A file that gets one line of figures per operation and mode."""
STEP = int(os.environ.get("KEPT_CHAOS_STEP", "1"))
"""Only every so many points are tried."""
SEED = os.environ.get("KEPT_CHAOS_SEED", "")
"""Other points for another seed, where not all are tried."""


def try_points(laboratory, survey, mode, points):
    begun, wrong = time.monotonic(), []
    for point in points:
        found = laboratory.try_point(survey, mode, point)
        wrong += [f"{survey.operation.name}, {mode.name} at {point} {survey.calls[point - 1]}: {one}" for one in found]
    if REPORT:
        row = {
            "operation": survey.operation.name, "mode": mode.name, "points": len(points),
            "of": len(survey.points(mode)), "wrong": len(wrong),
            "seconds": round(time.monotonic() - begun, 1),
        }  # fmt: skip
        with Path(REPORT).open("a") as file:
            file.write(json.dumps(row) + "\n")
    assert not wrong, f"{len(wrong)} of {len(points)} points:\n" + "\n".join(wrong[:12])


def as_seen(operation, mode):
    """Return the operation with the views that count: the page is canonical, and an edit succeeds without its ledger."""
    views = tuple(view for view in operation.views if mode.is_deadly or view != EDITS)
    return replace(operation, views=views)


@pytest.mark.heavy
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.COUNT], ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_point(laboratory, name, mode):
    """At every call of every operation: the state is the old or the new one, and the next command completes it."""
    survey = laboratory.survey(as_seen(OPERATIONS[name], mode))

    first = random.Random(f"{name}{mode.name}{SEED}").randrange(STEP) if SEED else 0
    points = survey.points(mode)[first::STEP]

    try_points(laboratory, survey, mode, points)


LIGHT = {
    "memory add": {Mode.KILL: 2, Mode.FULL: 1, Mode.BROKEN_ONCE: 1},
    "sessions import": {Mode.KILL: 2, Mode.FULL: 1},
    "sessions reindex": {Mode.KILL: 2},
    "curator rollback": {Mode.KILL: 2},
    "profile rename": {Mode.KILL: 2, Mode.BROKEN_ONCE: 1},
    "restore into an empty home": {Mode.KILL: 2},
    "restore into a living home": {Mode.KILL: 2, Mode.FULL: 1},
}
"""How many points of which operations the ordinary suite tries."""


@pytest.mark.timeout(600)  # seconds of work, and minutes on a busy machine
@pytest.mark.parametrize("name", LIGHT)
def test_some_points(laboratory, name):
    """The same at a few points that are drawn with a fixed seed."""
    draw = random.Random(name)

    for mode, count in LIGHT[name].items():
        survey = laboratory.survey(as_seen(OPERATIONS[name], mode))
        try_points(laboratory, survey, mode, draw.sample(survey.points(mode), count))


def test_the_shim_sees_the_calls_of_python_and_of_sqlite(laboratory):
    """Pages are written by Python, the ledger by the SQLite inside apsw; a kill and a full disk reach both."""
    answer = laboratory.kept("memory", "add", "a fact", with_calls=True)

    seen = {(kind, path.rpartition("/")[2]) for kind, _, path in answer.calls}
    assert ("rename", "MEMORY.md") in seen
    assert {kind for kind, name in seen if name == "ledger.db-wal"} >= {"open", "pwrite64", "fdatasync", "unlink"}
    assert laboratory.kept("memory", "add", "another", mode=Mode.KILL, point=3).code == -9
    full = laboratory.kept("memory", "add", "another", mode=Mode.FULL, point=1)
    assert (full.code, "disk is full" in full.err) == (74, True)
    assert "another" not in laboratory.kept("memory", "show").out


def test_a_rollback_that_was_killed_is_not_taken_back_by_the_same_command(laboratory):
    """The next `curator rollback` completes the first one; it does not go back to the state before it."""
    survey = laboratory.survey(OPERATIONS["curator rollback"])
    middle = survey.points(Mode.KILL)[len(survey.calls) // 2]
    laboratory.put_back()
    assert laboratory.perform(survey.operation, mode=Mode.KILL, point=middle).code == -9

    again = laboratory.perform(survey.operation)

    assert again.code == 0
    assert "alpha, beta, gamma" in again.out
    assert laboratory.view(survey.operation) == survey.new


def test_an_import_whose_undo_was_killed_before_it_wrote_the_page_is_undone_by_the_next(laboratory):
    """The ledger has the undo already; the page has not."""
    survey = laboratory.survey(OPERATIONS["import undo"])
    renamed = next(number for number, call in enumerate(survey.calls, start=1) if call[0] == "rename")

    assert survey.calls[renamed - 1][2].endswith("/MEMORY.md")
    assert laboratory.try_point(survey, Mode.KILL, renamed) == []


def test_a_kill_while_the_database_is_created_alarms_nobody(laboratory):
    """A home with settings and a page is in use; its first conversation is not lost when it was never stored."""
    survey = laboratory.survey(OPERATIONS["first conversation"])
    calls = [number for number, (*_, path) in enumerate(survey.calls, start=1) if "state.db" in path]

    # the file has its first page, or no name yet, after each of these calls
    for point in calls[:8]:
        laboratory.put_back()
        assert laboratory.perform(survey.operation, mode=Mode.KILL, point=point).code == -9
        doctor = laboratory.kept("doctor", "--offline")
        listed = laboratory.kept("sessions", "list")
        assert (doctor.code, listed.code) == (0, 0), (survey.calls[point - 1], doctor, listed)
        assert "set aside" not in listed.err, (survey.calls[point - 1], listed)
        assert list(laboratory.home.glob("state.db.damaged-*")) == []


def test_a_skill_whose_creation_was_killed_can_be_created_again(laboratory):
    """The empty folder that the kill left takes no name, and the next change of the skill removes it."""
    survey = laboratory.survey(OPERATIONS["skills create"])
    made = next(number for number, call in enumerate(survey.calls, start=1) if call[2] == "/skills/alpha")

    for point in range(made + 1, made + 5):
        assert laboratory.try_point(survey, Mode.KILL, point) == [], survey.calls[point - 1]


def test_a_disk_that_fills_in_the_middle_of_a_forget_is_not_said_to_have_changed_nothing(laboratory):
    """Before the note of the forget nothing is gone; after it, the error says that the next command completes it."""
    survey = laboratory.survey(OPERATIONS["forget words"])
    noted = next(n for n, call in enumerate(survey.calls, start=1) if call[0] == "rename" and "/unfinished/" in call[2])
    later = [point for point in survey.points(Mode.FULL) if point > noted]

    for point in (later[len(later) // 3], later[len(later) // 2]):
        laboratory.put_back()
        answer = laboratory.perform(survey.operation, mode=Mode.FULL, point=point)
        assert "nothing was changed" not in answer.err
        assert answer.code == 1 or "the next command completes it" in answer.err, (survey.calls[point - 1], answer)


def test_a_repair_goes_on_after_a_disk_that_refused_while_it_looked_at_the_file(laboratory):
    """The connection that could only read is closed: it would look like another program that has the file open."""
    survey = laboratory.survey(as_seen(OPERATIONS["sessions repair"], Mode.FULL_ONCE))
    points = [point for point in survey.points(Mode.FULL_ONCE) if survey.calls[point - 1][2] == "/state.db-shm"]

    wrong = [problem for point in points[:20] for problem in laboratory.try_point(survey, Mode.FULL_ONCE, point)]

    assert wrong == []

"""Every operation, ended or failed at its numbered calls: the old state or the new, and the next command completes it.

The light form tries a few points of the operations that work in several steps; `make test-chaos` tries every point of
all of them and every kind of fault.
"""

import json
import os
import time
from pathlib import Path

import pytest
from chaos_laboratory import Mode
from chaos_operations import OPERATIONS

REPORT = os.environ.get("KEPT_CHAOS_REPORT")
"""A file that gets one line of figures per operation and mode."""
STEP = int(os.environ.get("KEPT_CHAOS_STEP", "1"))
"""Only every so many points are tried."""


def try_points(laboratory, survey, mode, points):
    begun, wrong = time.monotonic(), []
    for point in points:
        found = laboratory.try_point(survey, mode, point)
        wrong += [f"{survey.operation.name}, {mode.name} at {point} {survey.calls[point - 1]}: {one}" for one in found]
    if REPORT:
        row = {
            "operation": survey.operation.name, "mode": mode.name, "points": len(points), "wrong": len(wrong),
            "seconds": round(time.monotonic() - begun, 1),
        }  # fmt: skip
        with Path(REPORT).open("a") as file:
            file.write(json.dumps(row) + "\n")
    assert not wrong, f"{len(wrong)} of {len(points)} points:\n" + "\n".join(wrong[:12])


@pytest.mark.heavy
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.COUNT], ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_point(laboratory, name, mode):
    """At every call of every operation: the state is the old or the new one, and the next command completes it."""
    survey = laboratory.survey(OPERATIONS[name])

    points = survey.points(mode)[::STEP]

    try_points(laboratory, survey, mode, points)

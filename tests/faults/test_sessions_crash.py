"""Processes that are killed while they store conversations."""

import json
import sys
from pathlib import Path

import pytest
from tests import forks

KILLER = Path(__file__).with_name("sessions_killer.py")


def killed(path: Path, rounds: int) -> dict:
    done = forks.run([sys.executable, str(KILLER), str(path), str(rounds)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def check(result: dict) -> None:
    assert result["acknowledged"] > result["rounds"]
    assert (result["missing"], result["not_found"], result["problems"]) == (0, 0, [])


def test_no_acknowledged_message_is_lost(tmp_path):
    """After kill -9 of four appending processes every acknowledged message is stored and found."""
    check(killed(tmp_path / "state.db", 6))


@pytest.mark.heavy
@pytest.mark.timeout(3_600)
def test_no_acknowledged_message_is_lost_over_many_rounds(tmp_path):
    """Three hundred rounds of kill -9 lose nothing."""
    check(killed(tmp_path / "state.db", 300))

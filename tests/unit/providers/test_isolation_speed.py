"""What a process of its own costs a turn; `auto` isolates because of this."""

import importlib.util
import statistics
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "isolation.py"


@pytest.mark.speed
def test_a_process_of_its_own_costs_at_most_20_ms_a_turn():
    """Announce, recall, queue, deliver and warm, against the same plugin inside kept; on an idle machine."""
    spec = importlib.util.spec_from_file_location("isolation_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    inside, isolated = (statistics.median(module.measure(way, 100).wholes) for way in ("off", "on"))

    assert isolated - inside <= 0.020

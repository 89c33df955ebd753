"""How much of the program one command runs through."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "touched.py"


def touched(home: Path, *arguments: str) -> tuple[int, int]:
    environment = {**os.environ, "KEPT_HOME": str(home), "HOME": str(home.parent)}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], env=environment, capture_output=True, text=True, check=True
    )
    found = re.search(r"(\d+) modules, depth (\d+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    return int(found[1]), int(found[2])


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("touched") / "home"


def test_a_turn_touches_at_most_90_modules(home):
    """One `kept run` turn without a model, which stores a conversation."""
    modules, depth = touched(home, "run", "the staging server is heron")

    assert modules <= 90
    assert depth <= 24


def test_a_search_touches_at_most_36_modules(home):
    """A question about the stored conversation."""
    touched(home, "run", "the staging server is heron")

    modules, depth = touched(home, "sessions", "search", "staging server")

    assert modules <= 36
    assert depth <= 16


def test_adding_an_entry_touches_at_most_29_modules(home):
    """The shortest write of curated memory."""
    modules, depth = touched(home, "memory", "add", "I like tea")

    assert modules <= 29
    assert depth <= 20

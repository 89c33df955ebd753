"""The mutation harness: its table names what exists, and its own operator removes what it says."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HARNESS = runpy.run_path(str(ROOT / "benchmarks" / "mutants.py"))


@pytest.mark.parametrize("package", sorted(HARNESS["PACKAGES"]))
def test_every_path_of_the_table_exists(package):
    """A renamed module or test does not silently shrink the sample."""
    sources, tests = HARNESS["PACKAGES"][package]

    assert [path for path in (*sources, *tests) if not any(ROOT.glob(path))] == []


def test_a_call_is_removed():
    """The statement becomes `pass`; columns after letters of several bytes are right."""
    source = "def f():\n    'ä'; store(\n        1\n    )\n    log.info('x')\n"

    ((start, _end),) = HARNESS["removable_calls"](source)
    assert HARNESS["remove_call"](source, start) == "def f():\n    'ä'; pass\n    log.info('x')\n"


def test_what_only_a_type_checker_reads_is_left_out():
    """Annotations, protocols and the options of dataclasses."""
    source = "from typing import Protocol\n@d(frozen=True)\nclass A(Protocol):\n    x: int | None = 1\n"

    spans = HARNESS["hidden_lines"](source)
    assert any(first <= (2, 10) < last for first, last in spans)
    assert any(first <= (4, 11) < last for first, last in spans)
    assert not any(first <= (1, 0) < last for first, last in spans)

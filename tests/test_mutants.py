"""The mutation harness: its table names what exists, and its own operator removes what it says."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HARNESS = runpy.run_path(str(ROOT / "benchmarks" / "mutants.py"))
MUTATIONS = runpy.run_path(str(ROOT / "benchmarks" / "mutations.py"))


@pytest.mark.parametrize("package", sorted(HARNESS["PACKAGES"]))
def test_every_path_of_the_table_exists(package):
    """A renamed module or test does not silently shrink the sample."""
    sources, tests = HARNESS["PACKAGES"][package]

    assert [path for path in (*sources, *tests) if not any(ROOT.glob(path))] == []


def test_a_call_is_removed():
    """The statement becomes `pass`; columns after letters of several bytes are right."""
    source = "def f():\n    'ä'; store(\n        1\n    )\n    log.info('x')\n"

    ((start, _end),) = MUTATIONS["removable_calls"](source)
    assert MUTATIONS["remove_call"](source, start) == "def f():\n    'ä'; pass\n    log.info('x')\n"


def test_what_only_a_type_checker_reads_is_left_out():
    """Annotations, protocols and the options of dataclasses."""
    source = "from typing import Protocol\n@d(frozen=True)\nclass A(Protocol):\n    x: int | None = 1\n"

    spans = MUTATIONS["hidden_lines"](source)
    assert any(first <= (2, 10) < last for first, last in spans)
    assert any(first <= (4, 11) < last for first, last in spans)
    assert not any(first <= (1, 0) < last for first, last in spans)


def test_a_statement_is_known_by_all_its_lines():
    """Coverage may name only the first; of a compound statement the head counts, and a default is run at import."""
    source = "LIMIT = (\n    5\n)\ndef f(a=1):\n    if (a and\n        LIMIT):\n        return a\n"
    found = {line: HARNESS["find_statement"](source, line) for line in (2, 4, 6, 7)}

    assert [sorted(each.lines) for each in found.values()] == [[1, 2, 3], [4], [5, 6], [7]]
    assert [each.at_import for each in found.values()] == [True, True, False, False]
    assert [set(each.names) for each in found.values()] == [{"LIMIT"}, {"f"}, {"f"}, {"f"}]


def test_a_mutant_meets_the_tests_that_could_notice_it(tmp_path):
    """Those that run its line and those that start processes; for a constant all, first those that run its name."""
    for path, text in {
        "src/wellkept/a.py": "LIMIT = 5\n\ndef f():\n    return LIMIT\n",
        "t/test_a.py": "from kept.a import f",
        "t/test_b.py": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    seconds = {
        "t/test_b.py::quick": 0.1,
        "t/test_a.py::near": 1.0,
        "t/test_a.py::slow": 90.0,
        "t/test_b.py::child": 2.0,
    }
    covering = {("src/wellkept/a.py", 1): [""], ("src/wellkept/a.py", 4): ["t/test_a.py::near", "t/test_a.py::slow"]}
    record = HARNESS["Record"](covering, seconds, ["t/test_b.py::child"])

    def choose(line):
        return HARNESS["choose_tests"](tmp_path, record, MUTATIONS["Mutant"]("src/wellkept/a.py", line, "x", ""))

    assert choose(4) == [["t/test_a.py::near"], ["t/test_a.py::slow", "t/test_b.py::child"]]
    assert choose(1) == [["t/test_a.py::near"], ["t/test_a.py::slow", "t/test_b.py::quick", "t/test_b.py::child"]]


def test_only_what_a_mutant_cannot_change_is_loaded_before(tmp_path):
    """A module that imports the mutated one, directly or not, is loaded in each fork; imports in functions do not count."""
    for name, text in {
        "a": "",
        "b": "from wellkept.a import x",
        "c": "import wellkept.b",
        "d": "def f():\n    from wellkept.a import x",
        "e": "from wellkept import b",
    }.items():
        path = tmp_path / "src" / "wellkept" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    modules = ["json", *(f"wellkept.{name}" for name in "abcde")]

    assert HARNESS["find_unaffected"](tmp_path, modules, ["src/wellkept/a.py"]) == ["json", "wellkept.d"]


def test_a_test_that_fails_once_kills_nothing():
    """It must fail alone too; the tests behind it are run all the same."""

    class Server:
        def __init__(self, *answers):
            self.answers, self.asked = list(answers), []

        def run(self, tests, **_limits):
            self.asked.append(list(tests))
            return self.answers.pop(0)

    runner = object.__new__(HARNESS["Runner"])
    runner._record = HARNESS["Record"]({}, dict.fromkeys("abc", 1.0))
    chance, real, dead = Server("a", None, None), Server("b", "b"), Server("")

    assert [runner._notices(server, list("abc")) for server in (chance, real, dead)] == [False, True, True]
    assert chance.asked == [["a", "b", "c"], ["a"], ["b", "c"]]

"""Mutation testing: how many small changes of the code the nearest tests notice.

    make mutants PACKAGE=memory          (or: python benchmarks/mutants.py memory --count 200 --seed 1)

A seeded random sample of mutants of one package is made with the operators of cosmic-ray, plus the removal of single
calls. Each mutant runs against the tests named in `PACKAGES`, in a copy of the tree; the working tree is never changed.
Only the tests that run the changed line are tried, as coverage recorded it, and those that start processes; all tests,
if hardly any ran it: such a line is run at import, or once for a cache. What others might notice counts as survived.
A mutant is killed when the tests fail or use three times as much processor time as before. The last line is
`killed/total`; before it come the diffs of the survivors. What no test can notice (`hidden_lines`) is left out.
"""

import argparse
import ast
import compileall
import difflib
import importlib
import json
import os
import py_compile
import queue
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PACKAGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "memory": (("src/kept/memory/*.py",), ("tests/contract/test_memory.py", "tests/unit/memory")),
    "storage": (
        ("src/kept/storage/**/*.py",),
        (
            "tests/unit/storage",
            "tests/unit/sessions/sqlite/test_row_checksums.py",
            "tests/faults/test_repair_outcomes.py",
        ),
    ),
    "security": (("src/kept/security/fence.py", "src/kept/security/secrets.py"), ("tests/unit/security",)),
    "providers": (
        ("src/kept/providers/outbox.py", "src/kept/providers/manager.py"),
        ("tests/unit/providers", "tests/faults/test_manager.py"),
    ),
    "sessions": (
        (
            "src/kept/sessions/sqlite/upkeep.py",
            "src/kept/sessions/sqlite/removal.py",
            "src/kept/sessions/sqlite/store.py",
        ),
        (
            "tests/unit/sessions/sqlite/test_upkeep.py",
            "tests/unit/sessions/sqlite/test_users.py",
            "tests/contract/test_session_store.py",
        ),
    ),
    "context": (("src/kept/context/**/*.py",), ("tests/unit/context", "tests/contract/test_context_engines.py")),
}
"""Package → source globs → test paths."""

SKIPPED_OPERATORS = (
    "VariableReplacer",
    "VariableInserter",
    "ReplaceComparisonOperator_Is_Eq",
    "ReplaceComparisonOperator_IsNot_NotEq",
)
"""The first two need arguments for every single place; the others change nothing for None, enums and classes."""
CPU_FACTOR = 3
CPU_EXTRA_SECONDS = 10
WAIT_FACTOR = 12
"""Longest wall-clock time as a multiple of the normal run, for a mutant that waits for ever."""
FIRST_TESTS = 40
"""How many of the tests that run a changed line are tried before all of them; more of them seldom notice more."""
FEW_TESTS = 5
"""A line that fewer tests run may be one whose result is cached, which other tests use without running it."""
STARTS_PROCESSES = re.compile(r"subprocess|multiprocessing|os\.fork|sys\.executable")
"""In the text of a test file: coverage does not see what its tests run."""
DURATIONS = "durations.json"
RECORDER = f"""
import collections, json, pathlib
import coverage

seconds = collections.Counter()

def pytest_runtest_logstart(nodeid, location):
    coverage.Coverage.current().switch_context(nodeid.partition("[")[0])

def pytest_runtest_logreport(report):
    seconds[report.nodeid.partition("[")[0]] += report.duration

def pytest_sessionfinish(session):
    pathlib.Path("{DURATIONS}").write_text(json.dumps(seconds))
"""
"""A pytest plugin that labels each covered line with the test that ran it, and measures each test."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file."""

    path: str
    line: int
    operator: str
    code: str


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere that an operator can change a file."""

    path: str
    start: tuple[int, int]
    operator: str
    occurrence: int


def find_places(path: Path) -> Iterator[Place]:
    """Yield every place of a file that an operator can change and a test could notice."""
    source = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    hidden = hidden_lines(source)
    lines = source.splitlines()
    for start, _end in removable_calls(source):
        yield Place(name, start, "remove-call", 0)
    plugins, trees = importlib.import_module("cosmic_ray.plugins"), importlib.import_module("cosmic_ray.ast")
    nodes = list(trees.ast_nodes(trees.get_ast(source)))
    for operator_name in plugins.operator_names():
        if operator_name.rpartition("/")[2] in SKIPPED_OPERATORS:
            continue
        operator = plugins.get_operator(operator_name)()
        occurrence = 0
        for node in nodes:
            for start, _end in operator.mutation_positions(node):
                # the `*` and `/` of a parameter list are no operators
                is_marker = lines[start[0] - 1][start[1] :].startswith(("*,", "/,"))
                if not is_marker and not any(first <= start < last for first, last in hidden):
                    yield Place(name, start, operator_name, occurrence)
                occurrence += 1


def hidden_lines(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the spans of what no test can notice.

    Annotations, protocols and options of dataclasses are read by type checkers only; an `assert` and `strict=` of `zip`
    fail only when the program is wrong already.
    """
    found = [each for node in ast.walk(ast.parse(source)) for each in _hidden_parts(node)]
    return [(_start(each), _end(each)) for each in found if each is not None]


def _hidden_parts(node: ast.AST) -> Sequence[ast.expr | ast.stmt | None]:  # noqa: PLR0911 - one per kind
    match node:
        case ast.ClassDef(decorator_list=decorators, bases=bases):
            calls = [each for each in decorators if isinstance(each, ast.Call)]
            options = [keyword.value for call in calls for keyword in call.keywords]  # frozen=True, slots=True
            return [*options, node] if any(ast.unparse(base) == "Protocol" for base in bases) else options
        case ast.FunctionDef(returns=returns) | ast.AsyncFunctionDef(returns=returns):
            return [returns]
        case ast.AnnAssign(annotation=ast.Name("TypeAlias")) | ast.Assert():
            return [node]
        case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
            return [annotation]
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return [node]
        case ast.Call(func=ast.Name("zip"), keywords=keywords):
            return [keyword.value for keyword in keywords]
    return []


def removable_calls(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the spans of calls whose result is not used, apart from log messages and proofs for the type checker."""
    return [
        (_start(node), _end(node))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and not ast.unparse(node.value.func).startswith(("log.", "assert_never"))
    ]


def _start(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def mutate(place: Place) -> Mutant | None:
    """Return the mutant of a place, None when the change gives the same code."""
    source = (ROOT / place.path).read_text(encoding="utf-8")
    if place.operator == "remove-call":
        code = remove_call(source, place.start)
    else:
        operator = importlib.import_module("cosmic_ray.plugins").get_operator(place.operator)()
        try:
            code = importlib.import_module("cosmic_ray.mutating").mutate_code(source, operator, place.occurrence)
        except AttributeError:  # cosmic-ray cannot replace an exception with a dotted name, such as apsw.Error
            return None
    if code is None or not compiles(code) or ast.dump(ast.parse(code)) == ast.dump(ast.parse(source)):
        return None  # 1e18 written as 1e+18
    return Mutant(place.path, place.start[0], place.operator, code)


def compiles(code: str) -> bool:
    """Whether the code is Python: an operator takes the `*` of a parameter list for a multiplication."""
    try:
        compile(code, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def remove_call(source: str, start: tuple[int, int]) -> str | None:
    """Return the source with `pass` in place of the call that starts here."""
    ends = dict(removable_calls(source))
    if start not in ends:
        return None
    lines = source.splitlines(keepends=True)
    (first, column), (last, end) = start, ends[start]
    # columns of `ast` count bytes
    head = lines[first - 1].encode()[:column].decode()
    tail = lines[last - 1].encode()[end:].decode()
    return "".join([*lines[: first - 1], f"{head}pass{tail}", *lines[last:]])


def sample(package: str, *, count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants, at most one for each position in the code, the same ones for the same seed."""
    globs, _ = PACKAGES[package]
    paths = sorted({path for pattern in globs for path in ROOT.glob(pattern)})
    if missing := [each for each in (*globs, *PACKAGES[package][1]) if not any(ROOT.glob(each))]:
        raise SystemExit(f"PACKAGES names paths that do not exist: {', '.join(missing)}")
    by_position: dict[tuple[str, tuple[int, int]], list[Place]] = {}
    for path in paths:
        for place in find_places(path):
            by_position.setdefault((place.path, place.start), []).append(place)
    chance = random.Random(seed)
    positions = sorted(by_position)
    chance.shuffle(positions)
    found: list[Mutant] = []
    for position in positions:
        mutant = mutate(chance.choice(by_position[position]))
        if mutant is not None:
            found.append(mutant)
        if len(found) == count:
            break
    return found


def copy_tree(folder: Path) -> None:
    """Copy every file that git knows or would add; caches and environments stay behind."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    # stale bytecode could hide a mutant of the same size, so bytecode is used only with a source of the same hash
    hashed = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(folder / "src", quiet=1, invalidation_mode=hashed)


class Runner:
    """Runs the tests of a package in copies of the tree, one mutant per copy at a time."""

    def __init__(self, folder: Path, tests: Sequence[str], *, jobs: int, python: str) -> None:
        self._tests = tests
        self._python = python
        self._cpu_seconds: int | None = None
        self._timeout: float | None = None
        self._covering: dict[tuple[str, int], list[str]] = {}
        self._durations: dict[str, float] = {}
        self._copies: queue.Queue[Path] = queue.Queue()
        for number in range(jobs):
            copy_tree(folder / str(number))
            self._copies.put(folder / str(number))

    def measure(self) -> float | None:
        """Run the tests without a mutant and return their seconds, None when they fail."""
        folder = self._copies.get()
        (folder / "record_tests.py").write_text(RECORDER)
        began, cpu_before = time.monotonic(), _cpu_seconds_of_children()
        record = ["-m", "coverage", "run", "--source", "src", "-m", "pytest", "-p", "record_tests"]
        code = self._run(folder, self._tests, record)
        seconds = time.monotonic() - began
        self._cpu_seconds = round(CPU_FACTOR * (_cpu_seconds_of_children() - cpu_before)) + CPU_EXTRA_SECONDS
        self._timeout = WAIT_FACTOR * seconds
        if code == 0:
            self._covering = read_coverage(folder)
            self._durations = json.loads((folder / DURATIONS).read_text())
        self._copies.put(folder)
        return seconds if code == 0 else None

    def kills(self, mutant: Mutant) -> bool:
        """Put the mutant into a free copy, run the tests, and put the original back.

        Tests of files that import the changed module come first, the quickest before the others: the first failure
        ends a run.
        """
        folder = self._copies.get()
        target = folder / mutant.path
        original = target.read_bytes()
        try:
            target.write_text(mutant.code, encoding="utf-8")
            ordered, near = order_tests(folder, self._tests, mutant.path)
            covering = self._covering.get((mutant.path, mutant.line), [])
            covering = sorted(covering, key=lambda test: (test.partition("::")[0] not in near, self._durations[test]))
            first, rest = covering[:FIRST_TESTS], covering[FIRST_TESTS:]
            if first and self._run(folder, first) != 0:
                return True
            if len(covering) < FEW_TESTS:
                rest = ordered
            else:
                rest += [name for name in ordered if STARTS_PROCESSES.search((folder / name).read_text())]
            return bool(rest) and self._run(folder, rest) != 0
        finally:
            target.write_bytes(original)
            self._copies.put(folder)

    def _run(self, folder: Path, tests: Sequence[str], start: Sequence[str] = ("-m", "pytest")) -> int | None:
        # a limit for each test, in seconds that pass, would kill mutants on a busy machine
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "0"]
        command = [self._python, *start, *options, *tests]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder / "src"), str(folder)))}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled tests are worth keeping
        # processor time, because wall-clock time depends on what else runs
        limit = [] if self._cpu_seconds is None else ["sh", "-c", 'ulimit -t "$0" && exec "$@"', str(self._cpu_seconds)]
        try:
            done = subprocess.run(
                [*limit, *command], cwd=folder, env=environment, capture_output=True, timeout=self._timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return None
        if done.returncode != 0:  # so that one can see what noticed each mutant
            print("\n".join(done.stdout.decode().splitlines()[-2:]), file=sys.stderr, flush=True)
        return done.returncode


def read_coverage(folder: Path) -> dict[tuple[str, int], list[str]]:
    """Return the tests that ran each line, by file and line number."""
    data = importlib.import_module("coverage").CoverageData(str(folder / ".coverage"))
    data.read()
    found: dict[tuple[str, int], list[str]] = {}
    for name in data.measured_files():
        path = str(Path(name).resolve().relative_to(folder.resolve()))
        for line, tests in data.contexts_by_lineno(name).items():
            found[path, line] = sorted(filter(None, tests))
    return found


def _cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def order_tests(folder: Path, tests: Sequence[str], path: str) -> tuple[list[str], set[str]]:
    """Return the test files, and which of them import the changed module; these come first.

    Properties take longest and come after the examples of the same kind.
    """
    module = path.removeprefix("src/").removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    files: list[Path] = []
    for each in tests:
        files += (folder / each).rglob("test_*.py") if (folder / each).is_dir() else [folder / each]
    texts = {str(file.relative_to(folder)): file.read_text(encoding="utf-8") for file in files}
    near = {name for name, text in texts.items() if module in text}
    return sorted(texts, key=lambda name: (name not in near, "hypothesis" in texts[name], name)), near


def diff(mutant: Mutant) -> str:
    """Return what the mutant changes."""
    before = (ROOT / mutant.path).read_text(encoding="utf-8").splitlines()
    lines = difflib.unified_diff(before, mutant.code.splitlines(), mutant.path, mutant.operator, lineterm="", n=1)
    return "\n".join(lines)


def judge(runner: Runner, mutants: Sequence[Mutant], *, jobs: int, seconds: float) -> tuple[int, int]:
    """Run the mutants, print those that survive, and return how many were killed and how many ran."""
    deadline = time.monotonic() + seconds

    def run(mutant: Mutant) -> bool | None:
        return runner.kills(mutant) if time.monotonic() < deadline else None

    killed = ran = 0
    with ThreadPoolExecutor(jobs) as pool:
        for mutant, result in zip(mutants, pool.map(run, mutants), strict=True):
            ran += result is not None
            if ran % 10 == 0:
                print(f"{ran} of {len(mutants)}: {killed + (result is True)} killed", file=sys.stderr, flush=True)
            killed += result is True
            if result is False:
                print(f"SURVIVED {mutant.path}:{mutant.line}\n{diff(mutant)}\n", flush=True)
    return killed, ran


def main() -> int:
    """Run a sample and print the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", choices=sorted(PACKAGES))
    parser.add_argument("--count", type=int, default=150, help="how many mutants (default 150)")
    parser.add_argument("--seed", type=int, default=12, help="of the sample (default 12)")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once (default 2)")
    parser.add_argument("--minutes", type=float, default=45, help="start no mutant after this time (default 45)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the tests")
    options = parser.parse_args()

    mutants = sample(options.package, count=options.count, seed=options.seed)
    with tempfile.TemporaryDirectory(prefix="kept-mutants-") as name:
        began = time.monotonic()
        runner = Runner(Path(name), PACKAGES[options.package][1], jobs=options.jobs, python=options.python)
        seconds = runner.measure()
        if seconds is None:
            print("the tests fail without any mutant", file=sys.stderr)
            return 1
        print(f"{len(mutants)} mutants of {options.package}; the tests take {seconds:.0f} s", flush=True)
        killed, ran = judge(runner, mutants, jobs=options.jobs, seconds=options.minutes * 60)
        minutes = (time.monotonic() - began) / 60
    if ran < len(mutants):
        print(f"{len(mutants) - ran} mutants did not run within {options.minutes:g} minutes")
    print(f"{options.package}: {killed}/{ran} killed, {minutes:.0f} minutes, seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

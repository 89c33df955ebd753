"""Mutation testing: how many small changes of the code the nearest tests notice.

    make mutants PACKAGE=memory          (or: python benchmarks/mutants.py memory --count 200 --seed 1)

A seeded random sample of the mutants of one package (`mutations.py`) runs against the tests named in `PACKAGES`, in a
copy of the tree; the working tree is never changed. Each mutant meets the tests that run its statement, as coverage
recorded it, and those that start processes, the quickest first. A statement that runs when its module is imported, such
as a constant, meets all tests, beginning with those that run a line with its name. What others might notice counts as
survived. A mutant is killed when a test fails twice, once among others and once alone, or when tests need far more
time than before (`limits`).

The last line is `killed/total`; before it come the diffs of the survivors.
"""

import argparse
import ast
import compileall
import importlib
import json
import os
import py_compile
import queue
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.mutations import ROOT, Mutant, diff, find_unaffected, sample

PACKAGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "memory": (("src/wellkept/memory/*.py",), ("tests/contract/test_memory.py", "tests/unit/memory")),
    "storage": (
        ("src/wellkept/storage/**/*.py",),
        (
            "tests/unit/storage",
            "tests/unit/sessions/sqlite/test_row_checksums.py",
            "tests/unit/operations/test_storage.py",  # rows of a server
            "tests/contract/test_documents.py",
            # not the repairs of tests/faults: they notice much, and take longer than all of the others together
        ),
    ),
    "security": (("src/wellkept/security/fence.py", "src/wellkept/security/secrets.py"), ("tests/unit/security",)),
    "providers": (
        ("src/wellkept/providers/outbox.py", "src/wellkept/providers/manager.py"),
        ("tests/unit/providers", "tests/faults/test_manager.py"),
    ),
    "sessions": (
        (
            "src/wellkept/sessions/rows/upkeep.py",
            "src/wellkept/sessions/rows/removal.py",
            "src/wellkept/sessions/rows/store.py",
        ),
        (
            "tests/unit/sessions/sqlite/test_upkeep.py",
            "tests/unit/sessions/sqlite/test_users.py",
            "tests/contract/test_session_store.py",
        ),
    ),
    "context": (("src/wellkept/context/**/*.py",), ("tests/unit/context", "tests/contract/test_context_engines.py")),
}
"""Package → source globs → test paths."""

CPU_FACTOR = 3
CPU_EXTRA_SECONDS = 15
"""For imports and collection."""
WAIT_FACTOR = 12
WAIT_EXTRA_SECONDS = 60
"""Of time that passes, for a mutant that waits for ever. It depends on what else runs, so it is generous."""
MEASUREMENTS = 3
"""How often the tests may fail without a mutant: on a busy machine, or in a process that was stopped, some run late."""
FIRST_TESTS = 40
FIRST_SECONDS = 4.0
FIRST_FILES = 2
"""The first run of a mutant has so many of the quickest tests, from few files: most mutants do not get further."""
FEW_TESTS = 5
"""If fewer run a statement, its result may be cached; then all tests of the files that import its module run too."""
RECORD = "tests.json"
OPTIONS = [
    "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
    "--timeout", "0",  # a limit in seconds that pass would kill mutants on a busy machine
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # the server has imported the plugins already
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """What a run without a mutant has shown."""

    covering: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)
    """File and line → tests that run it; "" stands for an import."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    processes: Sequence[str] = ()
    """Tests that start processes: coverage does not see what those run."""

    def tests_of(self, lines: Iterable[tuple[str, int]]) -> set[str]:
        """Return the tests that run one of the lines."""
        return {test for line in lines for test in self.covering.get(line, ())}

    def limits(self, tests: Sequence[str]) -> tuple[int, float]:
        """Return the longest processor time and the longest time that may pass."""
        usual = sum(self.seconds[test] for test in tests)
        return round(CPU_FACTOR * usual) + CPU_EXTRA_SECONDS, WAIT_FACTOR * usual + WAIT_EXTRA_SECONDS


def choose_tests(folder: Path, record: Record, mutant: Mutant) -> list[list[str]]:
    """Return the tests that a mutant meets, in runs: the quickest of the nearest files first."""
    source = (folder / mutant.path).read_text(encoding="utf-8")
    statement = find_statement(source, mutant.line)
    near = near_files(folder, record.seconds, mutant.path)
    running = record.tests_of((mutant.path, line) for line in statement.lines)
    if statement.at_import or "" in running:
        first = record.tests_of(users_of(folder, statement.names)) - {""}
        tests = set(record.seconds)
    else:
        first = running
        tests = running | set(record.processes)
        if len(running) < FEW_TESTS:
            tests |= {test for test in record.seconds if test.partition("::")[0] in near}

    def rank(test: str) -> tuple[bool, bool, float]:
        return test not in first, test.partition("::")[0] not in near, record.seconds[test]

    ordered = sorted(tests, key=rank)
    files = list(dict.fromkeys(test.partition("::")[0] for test in ordered))[:FIRST_FILES]
    quickest = [test for test in ordered if test.partition("::")[0] in files][:FIRST_TESTS]
    total = accumulate(record.seconds[test] for test in quickest)
    early = quickest[: max(1, sum(seconds <= FIRST_SECONDS for seconds in total))]
    return [run for run in (early, [test for test in ordered if test not in early]) if run]


@dataclass(frozen=True, slots=True)
class Statement:
    """Where a mutant is."""

    lines: frozenset[int]
    """Of the innermost statement; of a compound one those of its head."""
    names: frozenset[str]
    """What is defined there: a constant, a field, a function."""
    at_import: bool


def find_statement(source: str, line: int) -> Statement:
    """Return the statement that a line is a part of."""
    lines, names, in_function = {line}, set[str](), False
    for node in ast.walk(ast.parse(source)):  # from outside to inside
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        parts = getattr(node, "body", None) or getattr(node, "cases", None)
        head_end = getattr(parts[0], "lineno", node.lineno + 1) - 1 if parts else node.end_lineno or node.lineno
        if line <= head_end:
            lines |= set(range(node.lineno, head_end + 1))
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                in_function = in_function or line > head_end
                names = {name}
            case ast.Assign(targets=targets):
                names = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = {name}
    return Statement(frozenset(lines), frozenset(names), at_import=not in_function)


def users_of(folder: Path, names: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield file and line of every use of the names."""
    word = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    for path in (folder / "src").rglob("*.py") if names else ():
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if word.search(text):
                yield str(path.relative_to(folder)), number


def near_files(folder: Path, tests: Iterable[str], path: str) -> set[str]:
    """Return the test files that import the changed module."""
    module = path.removeprefix("src/").removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    package, _, name = module.rpartition(".")
    imports = re.compile(rf"{re.escape(module)}\b|from {re.escape(package)} import .*\b{name}\b")
    files = {test.partition("::")[0] for test in tests}
    return {file for file in files if imports.search((folder / file).read_text(encoding="utf-8"))}


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


class Server:
    """A process in a copy of the tree that runs pytest in forks of itself."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self._output = folder / "output.txt"
        self._process = subprocess.Popen(
            [python, "benchmarks/mutant_tests.py"],
            cwd=folder, env=environment(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, tests: Sequence[str], *, cpu_seconds: int, seconds: float) -> str | None:
        """Return which test fails, "" if pytest itself fails or takes too long, None if all pass."""
        self._output.write_text("")
        request = {
            "arguments": [*OPTIONS, "--basetemp", str(self.folder / "temporary"), *tests],
            "output": str(self._output),
            "cpu_seconds": cpu_seconds,
            "seconds": seconds,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        code: int | None = json.loads(self._process.stdout.readline())
        if code == 0:
            return None
        said = self._output.read_text(encoding="utf-8", errors="replace")
        print("\n".join([f"exit code {code}", *said.splitlines()[-2:]]), file=sys.stderr, flush=True)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+?::[^\s\[]+)", said, re.MULTILINE)
        return failed[1] if failed else ""

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of tests in a copy of the tree."""
    paths = (folder / "src", folder, folder / "benchmarks")
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    found.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled tests are worth keeping
    return found


class Runner:
    """Runs the tests of a package in copies of the tree, one mutant per copy at a time."""

    def __init__(self, folder: Path, package: str, *, jobs: int, python: str) -> None:
        self._sources, self._tests = PACKAGES[package]
        self._python = python
        self._record = Record()
        self._folders = [folder / str(number) for number in range(jobs)]
        self._servers: queue.Queue[Server] = queue.Queue()
        for each in self._folders:
            copy_tree(each)

    def measure(self) -> bool:
        """Run the tests without a mutant, once with coverage and once as mutants do, and return whether they pass."""
        first = self._folders[0]
        command = [self._python, "-m", "coverage", "run", "--source", "src", "-m", "pytest", "-p", "mutant_tests"]
        for _ in range(MEASUREMENTS):
            recorded = subprocess.run(
                [*command, *OPTIONS, *self._tests], cwd=first, env=environment(first), capture_output=True, check=False
            )
            if recorded.returncode == 0:
                break
            print(recorded.stdout.decode()[-2000:], file=sys.stderr, flush=True)
        else:
            return False
        self._record = read_record(first)
        told = json.loads((first / RECORD).read_text(encoding="utf-8"))
        told["modules"] = find_unaffected(first, told["modules"], self._sources)
        (first / RECORD).write_text(json.dumps(told), encoding="utf-8")
        for folder in self._folders:
            if folder != first:
                shutil.copy(first / RECORD, folder)
            self._servers.put(Server(folder, self._python))
        server = self._servers.get()
        cpu_seconds, seconds = self._record.limits(list(self._record.seconds))
        try:
            runs = (server.run(self._tests, cpu_seconds=cpu_seconds, seconds=seconds) for _ in range(MEASUREMENTS))
            return any(failed is None for failed in runs)
        finally:
            self._servers.put(server)

    def kills(self, mutant: Mutant) -> bool:
        """Put the mutant into a free copy, run the tests, and put the original back."""
        server = self._servers.get()
        target = server.folder / mutant.path
        original = target.read_bytes()
        runs = choose_tests(server.folder, self._record, mutant)
        try:
            target.write_text(mutant.code, encoding="utf-8")
            return any(self._notices(server, tests) for tests in runs)
        finally:
            target.write_bytes(original)
            self._servers.put(server)

    def _notices(self, server: Server, tests: Sequence[str]) -> bool:
        """Whether a test fails, and fails again alone: on a busy machine one that waits may fail without a reason."""

        def run(chosen: Sequence[str]) -> str | None:
            cpu_seconds, seconds = self._record.limits(chosen)
            return server.run(chosen, cpu_seconds=cpu_seconds, seconds=seconds)

        while tests and (failed := run(tests)) is not None:
            if failed not in tests or run([failed]) is not None:
                return True
            tests = tests[tests.index(failed) + 1 :]
        return False

    def close(self) -> None:
        """End all servers."""
        while not self._servers.empty():
            self._servers.get().close()


def read_record(folder: Path) -> Record:
    """Return what a run with coverage has left in a folder."""
    data = importlib.import_module("coverage").CoverageData(str(folder / ".coverage"))
    data.read()
    covering: dict[tuple[str, int], Sequence[str]] = {}
    for name in data.measured_files():
        path = str(Path(name).resolve().relative_to(folder.resolve()))
        for line, tests in data.contexts_by_lineno(name).items():
            covering[path, line] = tests
    told = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    return Record(covering, told["seconds"], told["processes"])


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

    sources, tests = PACKAGES[options.package]
    if missing := [each for each in (*sources, *tests) if not any(ROOT.glob(each))]:
        raise SystemExit(f"PACKAGES names paths that do not exist: {', '.join(missing)}")
    mutants = sample(sources, count=options.count, seed=options.seed)
    with tempfile.TemporaryDirectory(prefix="kept-mutants-") as name:
        began = time.monotonic()
        runner = Runner(Path(name), options.package, jobs=options.jobs, python=options.python)
        if not runner.measure():
            print("the tests fail without any mutant", file=sys.stderr)
            return 1
        print(f"{len(mutants)} mutants of {options.package}", flush=True)
        killed, ran = judge(runner, mutants, jobs=options.jobs, seconds=options.minutes * 60)
        runner.close()
        minutes = (time.monotonic() - began) / 60
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        busy_minutes = sum(each.ru_utime + each.ru_stime for each in used) / 60
    if ran < len(mutants):
        print(f"{len(mutants) - ran} mutants did not run within {options.minutes:g} minutes")
    times = f"{minutes:.0f} minutes, {busy_minutes:.0f} of processor time"  # the first depends on what else runs
    print(f"{options.package}: {killed}/{ran} killed, {times}, seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs tests for `mutants.py`, inside the interpreter of the tests.

As a plugin of pytest (`-p mutant_tests`, under coverage) it records in `tests.json` what each test costs, whether it
starts processes, and which modules the tests import. As a program it is a server: it imports those modules once, apart
from the tests and from what imports mutated code, and runs pytest in a fork of itself for each line of JSON on its
input. So a mutant pays neither for the start of the interpreter nor for what it cannot change.
"""

import functools
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

RECORD = "tests.json"
OWN_MODULES = ("tests", "conftest", "benchmarks", "mutant_tests", "coverage", "__main__", "test_")
"""Beginnings of names that the server does not import; of kept it imports what `mutants.py` leaves in the record."""
LRU_CACHE = type(functools.cache(len))
PROCESS_EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"}


class Recorder:
    """What each test costs, without the part of its name that names its parameters."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.starting_processes: set[str] = set()
        self.modules: list[str] = []
        self._test = ""
        self._began = 0.0
        self._children = 0.0
        sys.addaudithook(self._notice)

    def _notice(self, event: str, _arguments: Any) -> None:
        if self._test and event in PROCESS_EVENTS:
            self.starting_processes.add(self._test)

    def begin(self, nodeid: str) -> None:
        """Start the clock of a test, with empty caches: coverage must see what every test needs, not only the first."""
        self._test = nodeid.partition("[")[0]
        clear_caches()
        importlib.import_module("coverage").Coverage.current().switch_context(self._test)
        self._began, self._children = time.monotonic(), children_seconds()

    def end(self) -> None:
        """Add the seconds of a test, which have passed, to those of its other parameters."""
        self.seconds[self._test] = self.seconds.get(self._test, 0.0) + time.monotonic() - self._began
        if children_seconds() > self._children:  # multiprocessing raises no event
            self.starting_processes.add(self._test)
        importlib.import_module("coverage").Coverage.current().switch_context("")
        self._test = ""

    def write(self) -> None:
        """Write the record."""
        record = {"seconds": self.seconds, "processes": sorted(self.starting_processes), "modules": self.modules}
        Path(RECORD).write_text(json.dumps(record), encoding="utf-8")


def clear_caches() -> None:
    """Empty the caches of all functions and methods of kept."""
    modules = [module for name, module in sys.modules.items() if name.startswith("wellkept.")]
    owners = [*modules, *(each for module in modules for each in vars(module).values() if isinstance(each, type))]
    for each in [each for owner in owners for each in vars(owner).values()]:
        if isinstance(each, LRU_CACHE):
            each.cache_clear()


def children_seconds() -> float:
    """Return the processor time of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


RECORDER = Recorder()


def pytest_collection_finish() -> None:
    """Remember the libraries that test modules import."""
    RECORDER.modules = [name for name in sys.modules if not name.startswith(OWN_MODULES)]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Begin a test."""
    RECORDER.begin(nodeid)


def pytest_runtest_logfinish() -> None:
    """End a test."""
    RECORDER.end()


def pytest_sessionfinish() -> None:
    """Write what was recorded."""
    RECORDER.write()


def serve() -> None:
    """Run pytest in a fork for each request; answer with its exit code, or null when it took too long."""
    for name in json.loads(Path(RECORD).read_text(encoding="utf-8"))["modules"]:
        try:
            importlib.import_module(name)
        except ImportError:  # made by hand, or of a plugin that is switched off
            continue
    gc.freeze()  # so that no collection in a fork copies the memory of what is loaded
    for line in sys.stdin:
        print(json.dumps(run_in_fork(**json.loads(line))), flush=True)


def run_in_fork(arguments: list[str], output: str, cpu_seconds: int, seconds: float) -> int | None:
    """Return the exit code of pytest with these arguments."""
    process = os.fork()
    if process == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream in (1, 2):
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        code = 3  # of pytest for an error of its own
        try:
            code = int(pytest.main(arguments))
        finally:
            sys.stdout.flush()
            os._exit(code)
    handle = os.pidfd_open(process)
    in_time = bool(select.select([handle], [], [], seconds)[0])
    os.close(handle)
    try:
        os.killpg(process, signal.SIGKILL)  # also what the tests have left behind
    except ProcessLookupError:
        assert in_time
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status) if in_time else None


if __name__ == "__main__":
    serve()

"""The harness of the chaos tests: commands that are ended or failed at one numbered call, and what must hold then.

`Laboratory` runs `kept` commands through server.py, whose children carry the shim. `Operation` describes one thing that
people do; `Laboratory.survey` counts its calls, and `Laboratory.try_point` runs it once more with a fault at one of them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path

from msgspec import Struct, field

HERE = Path(__file__).parent
DOCTOR_STEP = 4
"""The doctor takes as long as everything else together, so it looks at every fourth point."""
DELIVERIES = 6
"""A command waits five seconds for its delivery and leaves the rest to the next one; on a loaded machine that happens."""
_VOLATILE = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?"  # moments
    r'|(?<="id": )\d+|(?<="group_id": )"\w+"|(?<="undoes": )\d+|(?<="context_from": )\d+'  # numbers of rows
    r"|\d{8}T\d{6}|\d{8}_\d{6}_[0-9a-f]{6}|\b1[789]\d{8}(\.\d+)?\b"  # stamps, session ids, epoch seconds
)
"""What differs between two runs of the same command."""
_CARRIED = re.compile(r'"carried": \[[^\]]*\]')
"""Numbers of rows too; how many there are does not differ."""
_LEFT_OVER = re.compile(r"/\.unfinished/|rollback\.json$|/quarantine/.|-journal$")
"""Names of files that only a running command needs; a temporary file goes with the next write in its folder."""
_DEFECT = re.compile(r"this is a bug|Traceback|UnicodeDecodeError")


class Mode(IntEnum):
    """How a point is hit; the same numbers are in shim.c."""

    COUNT = 0
    KILL = 1
    TORN = 2
    """Half of a write, then a kill."""
    FULL_ONCE = 3
    FULL = 4
    BROKEN_ONCE = 5
    BROKEN = 6
    SHORT = 7
    """Half of a write, then a full disk."""

    @property
    def is_deadly(self) -> bool:
        return self in {Mode.KILL, Mode.TORN}


class Answer(Struct, frozen=True):
    """How a command ended, what it printed, and which calls it made."""

    code: int
    out: str
    err: str
    count: int
    calls: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def is_defect(self) -> bool:
        return self.code == 124 or _DEFECT.search(self.out + self.err) is not None


class Operation(Struct, frozen=True):
    """One thing that people do, with the commands that make it possible and those that show what it did."""

    name: str
    command: tuple[str, ...]
    views: tuple[tuple[str, ...], ...]
    """Commands whose output is the state; run after the fault, they are also the next ordinary commands."""
    prepare: tuple[tuple[str, ...] | Callable[["Laboratory"], object], ...] = ()
    given: str = ""
    """Standard input of the command."""
    constants: Mapping[str, object] = field(default_factory=dict)
    """Constants of modules that are smaller here than in production, so that a short run has several steps."""
    again: tuple[str, ...] | None = None
    """The command that completes it; by default the same."""
    is_between_allowed: bool = False
    """Whether it works in steps that are each complete, so that a part of the change may be visible."""
    repeats: bool = False
    """Whether running it twice changes something twice, so that it is run again only from the old state."""
    adds: bool = False
    """Whether every run adds something of its own: the next one succeeds, and completes nothing."""
    refuses_twice: bool = False
    """Whether running it twice is refused, because the first run did everything."""
    warns: bool = False
    """Whether it answers although the disk refuses, and says on standard error what was not stored."""
    reports: bool = False
    """Whether it prints what is wrong as a part of its report, on standard output."""
    ignored: str = ""
    """A pattern of what is stored best effort, such as the title of a session."""
    eventually: tuple[tuple[str, ...], str] | None = None
    """A command and a text that it prints once, after the next runs; for what is delivered in the background."""
    gone: str = ""
    """A text that no file of the home contains when the operation is complete."""
    changes_nothing: bool = False
    """Whether its views show the same before and after, because it changes derived data only."""


class Survey(Struct, frozen=True):
    """An operation that ran once without faults: the state before and after, and the calls in between."""

    operation: Operation
    old: str
    new: str
    calls: list[tuple[str, str, str]]

    def points(self, mode: Mode) -> list[int]:
        """Return the numbers of the calls where this mode makes a difference."""
        wanted = {Mode.TORN: "2", Mode.SHORT: "2", Mode.FULL: "12", Mode.FULL_ONCE: "12"}.get(mode, "012")
        return [number for number, call in enumerate(self.calls, start=1) if call[1] in wanted]


class Server:
    """The process that runs commands in forked children."""

    def __init__(self, shim: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "server.py"), str(shim)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**_plain_environment(), "LD_PRELOAD": str(shim)},
        )

    def run(self, task: Mapping[str, object]) -> Answer:
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Answer(**{**answer, "calls": [tuple(call) for call in answer["calls"]]})

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)


class Laboratory:
    """A home that is put back before every fault, and the server that runs commands in it."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.files = folder / "files"
        self.person = folder / "person"
        self._template = folder / "template"
        for path in (self.files, self.person):
            path.mkdir(parents=True)
        self._server = server
        self.words = {"{files}": str(self.files), "{home}": str(self.home)}
        """What stands for what in the words of a command; a preparation may add to it."""

    def kept(
        self,
        *words: str,
        mode: Mode = Mode.COUNT,
        point: int = 0,
        given: str = "",
        constants=None,
        with_calls=False,
        log: Path | None = None,
    ) -> Answer:
        """Run a command in the home, with `self.words` replaced in its words."""
        task = {
            "argv": [self._fill_in(word) for word in words],
            "root": str(self.home),
            "env": {
                "KEPT_HOME": str(self.home),
                "HOME": str(self.person),
                "TZ": "UTC",
                "EDITOR": str(self.files / "editor"),
            },
            "input": given,
            "mode": mode,
            "point": point,
            "constants": dict(constants or {}),
            "with_calls": with_calls,
            **({} if log is None else {"log": str(log)}),
        }
        return self._server.run(task)

    def _fill_in(self, word: str) -> str:
        for name, value in self.words.items():
            word = word.replace(name, value)
        return word

    def perform(
        self, operation: Operation, *, mode: Mode = Mode.COUNT, point: int = 0, with_calls=False, log=None
    ) -> Answer:
        return self.kept(
            *operation.command,
            mode=mode,
            point=point,
            given=operation.given,
            constants=operation.constants,
            with_calls=with_calls,
            log=log,
        )

    def view(self, operation: Operation) -> str:
        """Return the state as ordinary commands show it, without what differs between two runs."""
        shown = []
        for words in operation.views:
            answer = self.kept(*words)
            assert not answer.is_defect, (words, answer)
            shown.append(f"$ {' '.join(words)} -> {answer.code}\n{answer.out}")
        text = "\n".join(shown).replace(str(self.folder), "")
        text = _CARRIED.sub(lambda match: re.sub(r"\d+", "*", match[0]), text)
        return _VOLATILE.sub("*", re.sub(operation.ignored, "", text) if operation.ignored else text)

    def survey(self, operation: Operation) -> Survey:
        """Prepare the home of an operation, run it once without faults, and return what it changed."""
        shutil.rmtree(self.home, ignore_errors=True)
        for step in operation.prepare:
            if callable(step):
                step(self)
                continue
            answer = self.kept(*step)
            assert answer.code == 0, (step, answer)
        shutil.rmtree(self._template, ignore_errors=True)
        self.home.mkdir(exist_ok=True)
        shutil.copytree(self.home, self._template, symlinks=True)
        old = self.view(operation)
        self.put_back()
        answer = self.perform(operation, with_calls=True)
        assert answer.code == 0, answer
        new = self.view(operation)
        assert operation.changes_nothing or old != new, f"{operation.name} changes nothing that its views show"
        return Survey(operation, old, new, answer.calls)

    def put_back(self) -> None:
        shutil.rmtree(self.home)
        shutil.copytree(self._template, self.home, symlinks=True)

    def try_point(self, survey: Survey, mode: Mode, point: int) -> list[str]:
        """Run the operation with a fault at one call, then the next commands; return what does not hold."""
        operation = survey.operation
        self.put_back()
        answer = self.perform(operation, mode=mode, point=point)
        wrong = _judge_answer(answer, mode, shown=answer.err + (answer.out if operation.reports else ""))
        seen = self.view(operation)
        is_known = seen in {survey.old, survey.new}
        if not is_known and not operation.is_between_allowed:
            wrong.append(f"neither the old state nor the new:\n{_difference(survey.old, seen)}")
        is_told = operation.warns and bool(answer.err.strip())
        if answer.code == 0 and seen != survey.new and not is_told:
            wrong.append(f"said that it was done, and it is not:\n{_difference(survey.new, seen)}")
        wrong += self._complete(survey, seen)
        if wrong or point % DOCTOR_STEP == 0:
            wrong += self._inspect()
        return wrong

    def judge_cut(self, survey: Survey, *, is_done: bool) -> list[str]:
        """Return what does not hold in the home that a power cut has left, `is_done` after the end of the operation."""
        operation = survey.operation
        seen = self.view(operation)
        if is_done and seen != survey.new:
            return [f"what was acknowledged is not there:\n{_difference(survey.new, seen)}"]
        wrong = []
        if seen not in {survey.old, survey.new} and not operation.is_between_allowed:
            wrong.append(f"neither the old state nor the new:\n{_difference(survey.old, seen)}")
        return wrong + self._complete(survey, seen) + self._inspect()

    def _complete(self, survey: Survey, seen: str) -> list[str]:
        """Run the operation again where that makes sense; afterwards the state is the new one."""
        operation = survey.operation
        if seen == survey.new and operation.repeats:
            return []
        if operation.again is not None:
            again = self.kept(*operation.again, constants=operation.constants)
        else:
            again = self.perform(operation)
        wrong = [f"the next run is a defect: {again}"] if again.is_defect else []
        may_refuse = operation.refuses_twice and seen == survey.new
        if again.code != 0 and not may_refuse:
            wrong.append(f"the next run fails: {again.code} {again.err.strip()}")
        after = self.view(operation)
        if after != survey.new and not operation.adds:
            wrong.append(f"the next run does not complete it:\n{_difference(survey.new, after)}")
        return wrong + self._find_gone(operation) + self._find_delivered(operation, again)

    def _find_delivered(self, operation: Operation, again: Answer) -> list[str]:
        if operation.eventually is None or again.code != 0:
            return []
        words, text = operation.eventually
        for _ in range(DELIVERIES):
            found = self.kept(*words).out
            if text in found:
                break
            self.kept("providers", "outbox", "retry")
        queued = self.kept("providers", "outbox", "list").out
        return [] if found.count(text) == 1 else [f"{text!r} is there {found.count(text)} times: {found} {queued}"]

    def _find_gone(self, operation: Operation) -> list[str]:
        if not operation.gone:
            return []
        files = [path for path in self.home.rglob("*") if path.is_file()]
        found = [str(path) for path in files if operation.gone.encode() in path.read_bytes()]
        return [f"{operation.gone!r} is still in {found}"] if found else []

    def _inspect(self) -> list[str]:
        doctor = self.kept("doctor", "--offline")
        wrong = [] if doctor.code == 0 else [f"the doctor finds: {doctor.out} {doctor.err}"]
        names = [f"/{path.relative_to(self.home)}" for path in self.home.rglob("*")]
        left = [name for name in names if _LEFT_OVER.search(name)]
        return [*wrong, f"left over: {left}"] if left else wrong


def _judge_answer(answer: Answer, mode: Mode, *, shown: str) -> list[str]:
    if answer.is_defect:
        return [f"a defect: {answer.code} {answer.out[-300:]} {answer.err[-1_500:]}"]
    if mode.is_deadly:
        return []  # a command whose threads make fewer calls this time ends by itself
    if answer.code not in {0, 74, 1}:
        return [f"the exit code {answer.code}, and {answer.err.strip()}"]
    if answer.code != 0 and not shown.strip():
        return [f"no error is shown, exit code {answer.code}: {answer.out}"]
    return []


def _difference(one: str, other: str) -> str:
    import difflib

    lines = difflib.unified_diff(one.splitlines(), other.splitlines(), "expected", "seen", lineterm="", n=0)
    return "\n".join(line[:300] for line in list(lines)[:14])


def _plain_environment() -> dict[str, str]:
    """Return the environment without settings and keys of the person: commands here must find no model."""
    return {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH", "TMPDIR") if name in os.environ}

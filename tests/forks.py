"""Starts Python programs as forks of one process that has the libraries loaded, where the tests run in workers.

`Popen` and `run` are those of `subprocess`. A program of a fork has its own process, arguments, environment, streams,
signals and exit code; what it lacks is the second or two in which `kept` and the clients of models are imported.
A test of that import, of the locale or of the command line in the process table uses `subprocess`, and so does every
test of a run without workers (`make test-heavy`).
"""

import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

VARIABLE = "FORK_SERVER_OF_TESTS"
"""Names the socket of the server to the workers."""
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""Variables that take effect when an interpreter starts: a program that changes one is started as usual."""
LIBRARIES = (
    "openai",
    "anthropic",
    "mcp.server.mcpserver",
    "mcp.client.stdio",
    "uvicorn",
    "fastapi",
    "jinja2",
    "rich.markdown",
)
SKIPPED = ("wellkept.sessions.embedding", "wellkept.testing", "wellkept.llm.local")
"""Packages whose imports take seconds and that few programs use."""
CLONE_NEWNS, CLONE_NEWUSER = 0x2_0000, 0x1000_0000
KEPT = Path(sys.executable).with_name("kept")


class Task(NamedTuple):
    """What a fork is to become."""

    program: list[str]
    """The kind of program, its name or text, and its arguments."""
    env: dict[str, str]
    cwd: str
    is_leader: bool = False
    """Whether it starts a session of its own."""
    stands_for: int | None = None
    """The process whose place it takes: it joins its namespaces, and is killed when that process ends."""


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """A `subprocess.Popen` whose process is a fork of the server, if there is one."""

    def __init__(self, args: Any, **options: Any) -> None:
        self._line: socket.socket | None = None
        self._words = None if options.get("preexec_fn") else _find_program([str(word) for word in args])
        super().__init__(args, **options)

    def _execute_child(self, *args: Any) -> None:
        cwd, env, streams = args[5], args[6], args[10:16]
        path = os.environ.get(VARIABLE)
        if path is None or self._words is None or _starts_anew(env):
            super()._execute_child(*args)
            return
        reads, _, _, writes, _, complains = streams
        given = [own if own != -1 else usual for own, usual in zip((reads, writes, complains), (0, 1, 2), strict=True)]
        task = Task(self._words, dict(os.environ if env is None else env), str(cwd or Path.cwd()), is_leader=args[21])
        self._line, self.pid = _ask(path, given, task)
        self._child_created = True
        self._close_pipe_fds(*streams)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._line is None:
            return super()._try_wait(wait_flags)
        if wait_flags and not select.select([self._line], [], [], 0)[0]:
            return 0, 0
        status = _receive_number(self._line)
        self._line.close()
        return self.pid, status

    def _internal_poll(self, *args: Any, **options: Any) -> int | None:
        if self._line is None:
            return super()._internal_poll(*args, **options)
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode


def command(*program: str) -> list[str]:
    """Return the command line by which another program, such as a shell, starts a Python program as a fork.

    Its process passes signals and the exit code on, and the fork ends with it.
    """
    path = os.environ.get(VARIABLE)
    return [sys.executable, *program] if path is None else [sys.executable, "-I", "-S", __file__, path, *program]


def run(args, *, input=None, capture_output=False, timeout=None, check=False, **options):  # noqa: A002
    """Do what `subprocess.run` does."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Popen(args, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _find_program(command: list[str]) -> list[str] | None:
    """Return what a fork is to run: the kind of program, its name or text, and its arguments."""
    if command[0] == str(KEPT):
        return ["-m", "wellkept", *command[1:]]
    if command[0] != sys.executable or len(command) < 2:
        return None
    if command[1] in {"-m", "-c"}:
        return command[1:]
    return None if command[1].startswith("-") else ["file", *command[1:]]


def _starts_anew(env: dict[str, str] | None) -> bool:
    return any(name.startswith(READ_AT_START) and os.environ.get(name) != value for name, value in (env or {}).items())


def _ask(path: str, streams: list[int], task: Task) -> tuple[socket.socket, int]:
    """Return the line on which the exit status will come, and the process."""
    line, data = socket.socket(socket.AF_UNIX), json.dumps(task._asdict()).encode()
    line.connect(path)
    socket.send_fds(line, [struct.pack("=Q", len(data))], streams)
    line.sendall(data)
    return line, _receive_number(line)


def _receive_number(line: socket.socket) -> int:
    number: int = struct.unpack("=q", _receive(line, 8))[0]
    return number


def _receive(line: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = line.recv(length - len(data))
        if not piece:
            raise OSError("the server of the forks has ended")
        data += piece
    return data


class Server:
    """The process that forks, of the whole run; loads the libraries when it is first asked."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="forks-"))
        self.path = str(self._folder / "socket")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(64)
        command = [sys.executable, __file__, str(listener.fileno())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()], start_new_session=True
        )
        listener.close()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        shutil.rmtree(self._folder)


def stand_for(path: str, program: list[str]) -> NoReturn:
    """Be the process of a fork to those who started this one."""
    words = _find_program([sys.executable, *program])
    assert words is not None, program
    line, pid = _ask(path, [0, 1, 2], Task(words, dict(os.environ), str(Path.cwd()), stands_for=os.getpid()))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = os.waitstatus_to_exitcode(_receive_number(line))
    os._exit(code if code >= 0 else 128 - code)


class Forks:
    """The forks of this process, and the lines on which their exit status is told."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._lines: dict[int, socket.socket] = {}
        self._tied: dict[socket.socket, int] = {}
        self._asleep, self._awake = socket.socketpair()
        self._awake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._awake.fileno())

    def serve(self) -> None:
        """Fork for each request, and tell each asker the exit status; until standard input ends."""
        is_loaded = False
        while True:
            ready = select.select([self._listener, self._asleep, sys.stdin, *self._tied], [], [])[0]
            if sys.stdin in ready:
                return
            if self._asleep in ready:
                self._asleep.recv(4096)
                self._tell_ended()
            for line in self._tied.keys() & ready:  # who stands for the fork has ended
                os.kill(self._tied.pop(line), signal.SIGKILL)
            if self._listener in ready:
                if not is_loaded:
                    load_everything()
                    is_loaded = True
                self._fork()

    def _fork(self) -> None:
        line, _ = self._listener.accept()
        length, streams, _, _ = socket.recv_fds(line, 8, 3)
        task = Task(**json.loads(_receive(line, struct.unpack("=Q", length)[0])))
        pid = os.fork()
        if pid == 0:
            for own in (self._listener, self._asleep, self._awake, line, *self._lines.values()):
                own.detach()  # their numbers are closed below, and may soon be those of other files
            become_program(task, streams)
            leave(task.program)
        self._lines[pid] = line
        if task.stands_for is not None:
            self._tied[line] = pid
        for stream in streams:
            os.close(stream)
        line.sendall(struct.pack("=q", pid))

    def _tell_ended(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                with self._lines.pop(pid) as line, suppress(OSError):  # who asked may have ended
                    self._tied.pop(line, None)
                    line.sendall(struct.pack("=q", status))


AUDIT = runpy.run_path(str(Path(__file__).with_name("open_audit.py"))) if __name__ == "__main__" else {}
"""The module as a mapping: the program of the server has no package `tests`."""


def load_everything() -> None:
    """Import what the programs use, so that they find it loaded."""
    import wellkept

    names = [
        found.name
        for found in pkgutil.walk_packages(wellkept.__path__, "wellkept.")
        if not found.name.startswith(SKIPPED)
    ]
    for name in (*names, *LIBRARIES):
        if not name.endswith("__main__"):
            with suppress(ImportError):  # an optional extra that is not installed
                importlib.import_module(name)
    from wellkept.security.scan import scan

    scan("a text")  # compiles the rules
    assert threading.active_count() == 1, "a fork has no other threads"
    gc.freeze()  # otherwise the first collection of a fork copies every page of the server


def become_program(task: Task, streams: list[int]) -> None:
    """Turn this fork into the process of a program, as an interpreter that starts does."""
    AUDIT["install"]()
    if task.is_leader:
        os.setsid()
    if task.stands_for is not None:
        _join_namespaces(task.stands_for)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(task.env)
    time.tzset()
    os.chdir(task.cwd)
    is_unbuffered = bool(task.env.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = _open_stream(0, is_unbuffered=False)
    sys.stdout = sys.__stdout__ = _open_stream(1, is_unbuffered=is_unbuffered)
    sys.stderr = sys.__stderr__ = _open_stream(2, is_unbuffered=is_unbuffered)


def _join_namespaces(pid: int) -> None:
    """See the files that a process sees after `unshare -rm`."""
    own = Path("/proc/self/ns/mnt")
    if not own.exists() or own.samefile(f"/proc/{pid}/ns/mnt"):
        return
    descriptor = os.pidfd_open(pid)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWUSER | CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "cannot join the namespaces of a test")


def _open_stream(number: int, *, is_unbuffered: bool) -> io.TextIOWrapper:
    binary = open(number, "wb" if number else "rb", buffering=0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        binary,  # type: ignore[arg-type]
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "strict",
        line_buffering=number == 2 or os.isatty(number),
        write_through=is_unbuffered,
    )


def leave(program: list[str]) -> NoReturn:
    """Run the program and leave as the interpreter does, without taking every module apart, which takes 100 ms."""
    code = 0
    try:
        _run_program(*program)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if code and not isinstance(left.code, int):
            sys.stderr.write(f"{left.code}\n")
    except BaseException as error:
        traceback.print_exc()
        code = 1
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = 120  # the code of the interpreter for words that could not be written
    os._exit(code & 0xFF)


def _run_program(kind: str, name: str, *arguments: str) -> None:
    sys.argv = [{"-m": name, "-c": "-c"}.get(kind, name), *arguments]
    sys.path.insert(0, {"-m": str(Path.cwd()), "-c": ""}.get(kind, str(Path(name).resolve().parent)))
    if kind == "-m":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(name, "<string>", "exec"), module.__dict__)
    else:
        runpy.run_path(name, run_name="__main__")


if __name__ == "__main__":
    if sys.argv[2:]:
        stand_for(sys.argv[1], sys.argv[2:])
    del sys.path[0]
    Forks(socket.socket(fileno=int(sys.argv[1]))).serve()

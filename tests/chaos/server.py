"""Runs `kept` commands in forked children, each ended or failed by the shim at one numbered call.

Run as `LD_PRELOAD=shim.so python server.py SHIM`; reads one task per line from standard input and writes one answer per
line to standard output, both as JSON. Every module is imported once, before the first fork, so that a command takes
some 30 ms instead of 300.
"""

import atexit
import ctypes
import gc
import importlib
import json
import mmap
import os
import pkgutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

KIND_BYTES, NEED_BYTES, RECORD_BYTES, RECORDS = 11, 1, 160, 16_384
"""The layout of the records in shim.c."""
HEAVY = ("wellkept.sessions.embedding", "wellkept.testing", "wellkept.llm.local", "wellkept.agent.mcp_tools")
"""Packages whose imports take seconds and that no operation here uses."""


def load_everything() -> None:
    """Import every module of kept, so that children find them loaded."""
    import wellkept

    for found in pkgutil.walk_packages(wellkept.__path__, "wellkept."):
        if not found.name.startswith(HEAVY) and not found.name.endswith("__main__"):
            try:
                importlib.import_module(found.name)
            except ImportError:
                continue  # an optional extra that is not installed
    from wellkept.security.scan import scan

    scan("a text")  # compiles the rules


class Board:
    """The memory that the shim of a child shares with this process: the counter and the list of calls."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8 + RECORDS * RECORD_BYTES)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def clear(self) -> None:
        used = min(self.count, RECORDS)
        self._memory[: 8 + used * RECORD_BYTES] = bytes(8 + used * RECORD_BYTES)

    @property
    def count(self) -> int:
        return int.from_bytes(self._memory[:8], sys.byteorder)

    def calls(self) -> list[tuple[str, str, str]]:
        found = []
        for place in range(min(self.count, RECORDS)):
            record = self._memory[8 + place * RECORD_BYTES : 8 + (place + 1) * RECORD_BYTES]
            kind, need, path = record[:KIND_BYTES], record[KIND_BYTES:][:NEED_BYTES], record[KIND_BYTES + NEED_BYTES :]
            found.append((_text(kind), _text(need), _text(path)))
        return found


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("utf-8", "replace")


def become_command(task: dict, streams: dict[str, Path]) -> None:
    """Turn this child into the process of a command; the shim is armed last."""
    for number, (name, flags) in enumerate((("in", os.O_RDONLY), ("out", os.O_WRONLY), ("err", os.O_WRONLY))):
        descriptor = os.open(streams[name], flags)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in ((0, "r"), (1, "w"), (2, "w")))
    os.environ.update(task["env"])
    os.chdir(task["env"]["HOME"])
    sys.argv = ["kept", *task["argv"]]
    for name, value in task.get("constants", {}).items():
        module, _, attribute = name.rpartition(".")
        assert hasattr(sys.modules[module], attribute), name
        setattr(sys.modules[module], attribute, value)
    if "log" in task:
        shim.chaos_log(os.open(task["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600))
    shim.chaos_arm(board.address, task["root"].encode(), task.get("point", 0), task.get("mode", 0))


def leave(main: Callable[[], None]) -> NoReturn:
    """Run the command and leave as the interpreter does, without taking every module apart, which takes 100 ms."""
    code = 0
    try:
        main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def wait_for(pid: int, seconds: float) -> int:
    """Return the exit status; a child that hangs is killed and reported as 124."""
    deadline = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return 124
        time.sleep(0.002)


shim = ctypes.CDLL(sys.argv[1])
shim.chaos_arm.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_long, ctypes.c_int)
board = Board()


def serve() -> None:
    """Answer tasks until standard input ends."""
    import wellkept.cli.main  # noqa: F401 - loaded once, before the processes are forked
    from wellkept.cli.entry import main

    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    streams = {name: folder / name for name in ("in", "out", "err")}
    answers = os.fdopen(os.dup(1), "w")
    sys.stdout.flush()
    for line in iter(sys.stdin.readline, ""):
        task = json.loads(line)
        for name, file in streams.items():
            file.write_text(task.get("input", "") if name == "in" else "")
        board.clear()
        pid = os.fork()
        if pid == 0:
            become_command(task, streams)
            leave(main)
        code = wait_for(pid, task.get("seconds", 60))
        answer = {
            "code": code,
            "out": streams["out"].read_text(errors="replace"),
            "err": streams["err"].read_text(errors="replace"),
            "count": board.count,
            "calls": board.calls() if task.get("mode", 0) == 0 and task.get("with_calls") else [],
        }
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    load_everything()
    gc.freeze()  # otherwise the first collection of a child copies every page of the parent
    serve()

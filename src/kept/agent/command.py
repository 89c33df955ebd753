"""One command in the person's shell: bounded in time and output, and ended when nobody waits for it any more."""

import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kept.agent.offload import given_up

_LOOK_SECONDS = 0.2
_PIECE = 65_536


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; no exit code when it was ended."""

    output: str
    exit_code: int | None


def run(command: str, *, folder: Path, seconds: float, most_bytes: int) -> Ended:
    """Run `command` and return the end of what it printed; raises OSError where there is no shell.

    It gets a process group of its own, so that what it started ends with it.
    """
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    said = bytearray()
    deadline = time.monotonic() + seconds
    with process.stdout as pipe:
        while _goes_on(process, pipe.fileno(), said):
            del said[:-most_bytes]
            if time.monotonic() >= deadline or given_up():
                _end(process)
                return Ended(_text(said), None)
    return Ended(_text(said), process.wait())


def _goes_on(process: "subprocess.Popen[bytes]", pipe: int, said: bytearray) -> bool:
    """Take what was printed meanwhile; False at the end, also where something in the background keeps the pipe."""
    was_running = process.poll() is None
    if select.select([pipe], [], [], _LOOK_SECONDS)[0]:
        piece = os.read(pipe, _PIECE)
        said += piece
        return bool(piece)
    return was_running


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _text(said: bytearray) -> str:
    return bytes(said).decode("utf-8", "replace")

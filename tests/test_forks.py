"""A program that is forked behaves as one that is started: streams, arguments, environment, signals, exit codes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tests import forks

TELL = """
import json, os, sys
print(json.dumps({"arguments": sys.argv[1:], "heard": sys.stdin.read(), "pid": os.getpid(), "folder": os.getcwd(),
    "own": os.environ.get("OWN"), "other": os.environ.get("OTHER"), "files": len(os.listdir("/dev/fd")),
    "name": __name__}))
print("a complaint", file=sys.stderr)
"""
WAIT = "import time; print('begun', flush=True); time.sleep(60)"


@pytest.fixture(scope="module", params=["started", "forked"])
def path(request):
    """The socket of a server; none where the programs are started as usual."""
    if request.param == "started":
        yield None
    elif forks.VARIABLE in os.environ:
        yield os.environ[forks.VARIABLE]  # that of the workers
    else:
        server = forks.Server()
        yield server.path
        server.close()


@pytest.fixture(autouse=True)
def way(path, monkeypatch):
    monkeypatch.delenv(forks.VARIABLE, raising=False)
    if path is not None:
        monkeypatch.setenv(forks.VARIABLE, path)


@pytest.mark.parametrize("kind", ["-c", "file", "stood for"])
def test_a_program_has_what_it_was_given(kind, tmp_path, monkeypatch):
    """Its process, arguments, environment, folder and streams, and no other open files."""
    monkeypatch.setenv("OTHER", "of the tests")
    environment = {name: value for name, value in os.environ.items() if name != "OTHER"} | {"OWN": "ä"}
    (tmp_path / "tell.py").write_text(TELL)
    program = {"-c": ["-c", TELL], "file": ["tell.py"], "stood for": ["-c", TELL]}[kind]
    command = forks.command(*program) if kind == "stood for" else [sys.executable, *program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with forks.Popen([*command, "a", "b c"], env=environment, cwd=tmp_path, **pipes) as process:
        out, complaint = process.communicate("words ☃")
    told = json.loads(out)

    assert (process.returncode, complaint) == (0, "a complaint\n")
    assert (told["arguments"], told["heard"], told["folder"]) == (["a", "b c"], "words ☃", str(tmp_path))
    assert (told["own"], told["other"], told["name"]) == ("ä", None, "__main__")
    assert told["files"] == 4  # the streams, and the listing itself
    assert (told["pid"] == process.pid) or kind == "stood for"


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [(signal.SIGKILL, -9, b""), (signal.SIGTERM, -15, b""), (signal.SIGINT, -2, b"Keyboard")],
)
def test_a_signal_ends_it(number, code, words):
    """With the status that a process has which nobody catches the signal in."""
    with forks.Popen([sys.executable, "-c", WAIT], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n"
        assert process.poll() is None
        process.send_signal(number)

        assert process.wait(20) == code
        assert words in process.stderr.read()


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no\n"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("import os; os._exit(5)", 5, ""),
        ("import atexit, sys; atexit.register(sys.stderr.write, 'the end')", 0, "the end"),
        ("import threading, time, sys; threading.Timer(0.1, sys.stderr.write, ['later']).start()", 0, "later"),
    ],
)
def test_it_leaves_as_an_interpreter_does(code, status, words):
    """Exit codes, the last words of an error, exit functions and threads that are still at work."""
    for command in ([sys.executable, "-c", code], forks.command("-c", code)):
        done = forks.run(command, capture_output=True, text=True)

        assert done.returncode == status
        assert words in done.stderr


def test_who_is_stood_for_ends_with_the_process_that_stands_for_it():
    """A client that kills a server leaves nothing behind."""
    with forks.Popen(
        forks.command("-c", "import os; print(os.getpid(), flush=True)\n" + WAIT), stdout=subprocess.PIPE
    ) as process:
        pid = int(process.stdout.readline())
        process.kill()
        process.stdout.read()  # ends when the last process that could write to it is gone

    assert is_gone(pid)


def is_gone(pid):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_a_time_limit_and_a_failure_are_those_of_subprocess():
    """`run` raises what `subprocess.run` raises."""
    with pytest.raises(subprocess.TimeoutExpired):
        forks.run([sys.executable, "-c", WAIT], stdout=subprocess.DEVNULL, timeout=0.3)
    with pytest.raises(subprocess.CalledProcessError):
        forks.run([sys.executable, "-c", "raise SystemExit(3)"], check=True)

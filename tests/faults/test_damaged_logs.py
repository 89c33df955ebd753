"""A home whose process was killed, and whose write-ahead log was then damaged, lost or exchanged: every command copes.

Nothing that is whole is lost, the damaged file stays beside the new one, and nothing waits for a person.
"""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from tests import forks

KEPT = (sys.executable, "-m", "wellkept")
STEP = 24 + 2_048
LATE = 20
KILLED = """
import os, sys, time
from pathlib import Path
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.sessions.sqlite.store import SqliteSessionStore

home, count = Path(sys.argv[1]), int(sys.argv[2])
home.mkdir(exist_ok=True)
def append(first, last):
    for number in range(first, last):
        text = f"late{number:03} words"
        store.append(SessionId("s1"), [NewMessage(Message(Role.USER, text), time.time(), Origin.PERSON)])
store = SqliteSessionStore(home / "state.db")
store.create(Session(SessionId("s1"), "cli", 1.79e9))
append(0, count // 2)
if len(sys.argv) > 3:
    print("half", flush=True)
    sys.stdin.readline()
append(count // 2, count)
os.kill(os.getpid(), 9)
"""
LINES = "".join(
    f'{{"session_id":"old","role":"user","content":"early{number} words","timestamp":{1790000000 + number}}}\n'
    for number in range(5)
)


def run(home, *arguments, text=None, **variables):
    environment = {**os.environ, "KEPT_HOME": str(home), "HOME": str(home.parent), **variables}
    done = forks.run(
        [*KEPT, *arguments], input=text, capture_output=True, text=True, env=environment, cwd=home.parent, timeout=100
    )
    assert "this is a bug" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A home with five messages in the file and twenty in the log."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "lines.jsonl").write_text(LINES)
    assert run(folder / "home", "sessions", "import", str(folder / "lines.jsonl")).returncode == 0
    subprocess.run([sys.executable, "-c", KILLED, str(folder / "home"), str(LATE)], check=False, timeout=100)
    return folder / "home"


@pytest.fixture
def home(killed, tmp_path):
    """A copy of it as after a restart of the machine."""
    copy = shutil.copytree(killed, tmp_path / "home")
    (copy / "state.db-shm").unlink()
    return copy


def overwrite(home, start, size):
    with (home / "state.db-wal").open("r+b") as file:
        file.seek(start)
        file.write(bytes(size))


def exchange(home):
    (home / "state.db").rename(home / "x")
    (home / "state.db-wal").rename(home / "state.db")
    (home / "x").rename(home / "state.db-wal")


DAMAGES = {
    "header": lambda home: overwrite(home, 0, 32),
    "first block": lambda home: overwrite(home, 0, 4_096),
    "hole": lambda home: overwrite(home, 32 + 20 * STEP, STEP),
    "file missing": lambda home: (home / "state.db").unlink(),
    "file empty": lambda home: (home / "state.db").write_bytes(b""),
    "exchanged": exchange,
}
COMMANDS = {
    "list": (("sessions", "list"), None),
    "run": (("run", "hello there"), None),
    "search": (("sessions", "search", "late003"), None),
    "tool": (("tool", "session_search", '{"query": "late003"}'), None),
    "hook": (("hook", "claude-code"), json.dumps({"hook_event_name": "SessionStart", "session_id": "s", "cwd": "/"})),
    "repair": (("sessions", "repair"), None),
    "backup": (("backup", "copy.tar.gz"), None),
}


def count(home, word="late0"):
    return run(home, "sessions", "export").stdout.count(word)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", ["list", "run"])
def test_nothing_that_is_whole_is_lost(home, damage, command):
    """The doctor finds the damage, the next command ends it and says so once, and the old log stays."""
    DAMAGES[damage](home)
    before = {file.read_bytes() for file in home.glob("state.db*")}

    told = run(home, "doctor", "--offline")
    words, text = COMMANDS[command]
    done = run(home, *words, text=text)

    assert "kept sessions repair" in told.stdout + told.stderr or "state.db" in told.stderr, told
    assert done.returncode == 0, done
    assert (told.stderr + done.stderr).count("kept: ") == 1, (told.stderr, done.stderr)
    assert count(home) == LATE
    assert damage == "file missing" or damage == "file empty" or count(home, "early") == 5  # noqa: PLR1714
    kept = {file.read_bytes() for file in home.glob("state.db*")}
    assert damage == "exchanged" or before & kept
    assert run(home, "doctor", "--offline").returncode == 0
    assert "no problems found" in run(home, "sessions", "repair").stdout


@pytest.mark.parametrize("command", ["search", "tool", "hook", "repair", "backup"])
@pytest.mark.parametrize("damage", ["first block", "hole"])
def test_every_command_copes(home, damage, command):
    """Whichever is the first one."""
    DAMAGES[damage](home)
    words, text = COMMANDS[command]

    done = run(home, *words, text=text)

    assert done.returncode == 0, done
    assert count(home) == LATE


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_backup_holds_what_is_whole(home, damage):
    """The log is recovered before the database is copied, also where the database is missing beside it."""
    DAMAGES[damage](home)
    archive = home.with_name("copy.tar.gz")

    done = run(home, "backup", str(archive))

    assert (done.returncode, archive.exists()) == (0, True), done
    other = home.with_name("other")
    assert run(other, "restore", str(archive), "--yes").returncode == 0
    assert (count(other), count(other, "early")) == (LATE, 5)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_clone_of_a_profile_holds_what_is_whole(home, damage):
    """A damaged log is copied with its database, and the first use of the copy recovers it."""
    DAMAGES[damage](home)

    done = run(home, "profile", "clone", "default", "copy")

    assert done.returncode == 0, done
    assert not list(home.glob("*-wal-*"))
    assert run(home, "-p", "copy", "sessions", "export").stdout.count("late0") == LATE
    assert count(home) == LATE


@pytest.mark.parametrize("damage", ["header", "hole", "file missing"])
def test_of_several_processes_one_repairs(home, damage):
    """The others wait for it, and every conversation is stored."""
    DAMAGES[damage](home)
    environment = {**os.environ, "KEPT_HOME": str(home), "HOME": str(home.parent)}
    started = [
        forks.Popen([*KEPT, "run", f"I am number {number}"], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                    text=True, env=environment, cwd=home.parent)
        for number in range(4)
    ]  # fmt: skip
    told = [process.communicate(timeout=100)[1] for process in started]

    assert sum("repaired" in text or "recovered" in text for text in told) == 1, told
    assert not any("not being stored" in text for text in told), told
    assert (count(home), count(home, '"content": "I am number')) == (LATE, 4)
    assert len(list(home.glob("state.db.damaged-*-wal"))) == 1


@pytest.mark.parametrize("damage", ["header", "file missing"])
def test_the_log_of_a_process_that_lives_is_left_alone(tmp_path, damage):
    """Its rows are all there when it has ended."""
    home = tmp_path / "home"
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(home), str(LATE), "waits"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert writer.stdout.readline() == "half\n"
    DAMAGES[damage](home)

    meanwhile = run(home, "sessions", "list")
    assert not list(home.glob("*.damaged-*"))
    writer.communicate("\n", timeout=100)

    if damage == "file missing":
        assert meanwhile.returncode == 75
        assert "another process still uses its log" in meanwhile.stderr
    assert count(home) == LATE


@pytest.mark.parametrize("first", [("doctor", "--offline"), ("sessions", "list"), ("backup", "copy.tar.gz")])
def test_a_log_that_was_removed_is_noticed(killed, tmp_path, first):
    """The file of shared memory says how much of it was not in the database yet; the doctor tells it until it is removed."""
    home = shutil.copytree(killed, tmp_path / "home")
    (home / "state.db-wal").unlink()

    told = run(home, *first)
    again = [run(home, "doctor", "--offline").stdout for _ in range(2)]
    listed = run(home, "sessions", "list")

    assert "the log of state.db is gone, with" in told.stdout + told.stderr
    assert all("the log of state.db is gone, with" in text for text in again)
    assert first[0] == "doctor" or listed.stderr == ""
    (aside,) = home.glob("state.db.damaged-*-shm")
    aside.unlink()
    assert "is gone" not in run(home, "doctor", "--offline").stdout


def test_a_large_repair_outlives_the_hook_that_began_it(home, monkeypatch):
    """A hook ends at its deadline; what catches up with it completes the repair."""
    DAMAGES["hole"](home)
    journal = {"stage": "copying", "stamp": "20261119-000000", "pid": 2**22 + 1}  # of a process that is gone
    (home / "state.db.repair").write_text(json.dumps(journal))

    run(home, "hook", "--catch-up", "claude-code")

    deadline = time.monotonic() + 20
    while (home / "state.db.repair").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(home.glob("state.db.damaged-*-wal"))
    assert count(home) == LATE

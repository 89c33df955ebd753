"""File systems without shared memory or without locks, as some network disks are: everything works, or says why not."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

KEPT = (sys.executable, "-m", "wellkept")
LACKS = ("memory locks", "memory map", "memory file")
WARNING = "no write-ahead log at"
LINES = (
    '{"session_id":"a","role":"user","content":"the heron stands on the pier","timestamp":1790000000}\n'
    '{"session_id":"b","role":"user","content":"the otter sleeps","timestamp":1790000100}\n'
)


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The preloaded library."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler, or not Linux")
    built = tmp_path_factory.mktemp("shim") / "shim.so"
    source = Path(__file__).with_name("refusing_file_system.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(built), str(source), "-ldl"], check=True)
    return built


class Place:
    """A home on such a file system."""

    def __init__(self, home, shim, refused):
        self.home = home
        names = {"LD_PRELOAD": str(shim), "REFUSED": refused} if refused else {}
        self.environment = {**os.environ, "KEPT_HOME": str(home), "HOME": str(home.parent), **names}

    def run(self, *arguments, text=""):
        return subprocess.run(
            [*KEPT, *arguments], input=text, capture_output=True, text=True, env=self.environment,
            cwd=self.home.parent, timeout=60, check=False,
        )  # fmt: skip


@pytest.fixture
def place(tmp_path, shim):
    """Makes places; their homes are beside each other."""
    (tmp_path / "lines.jsonl").write_text(LINES)
    return lambda refused: Place(tmp_path / "home", shim, refused)


COMMANDS = (
    ("tool", "memory", '{"action": "add", "target": "memory", "content": "the pier is long"}'),
    ("sessions", "import", "lines.jsonl"),
    ("run", "remember that the heron is grey"),
    ("memory", "log"),
    ("sessions", "search", "heron"),
    ("tool", "session_search", '{"query": "otter"}'),
    ("doctor", "--offline"),
    ("backup", "copy.tar.gz"),
    ("forget", "--query", "otter", "--yes"),
    ("memory", "undo"),
    ("sessions", "export"),
    ("sessions", "repair"),
)


@pytest.mark.parametrize("lack", LACKS)
@pytest.mark.parametrize("is_old", [False, True], ids=["new", "with a log"])
def test_without_shared_memory_every_command_works(place, lack, is_old):
    """With a rollback journal and one warning; a home that came with a log keeps what is in it."""
    if is_old:
        place("").run("run", "the beaver builds a dam")
    strange = place(lack)

    done = {command: strange.run(*command) for command in COMMANDS}

    for command, one in done.items():
        assert one.returncode == 0, (command, one)
        assert one.stderr.count(WARNING) == 1, (command, one)
        assert one.stderr.count("kept: ") == 1, (command, one)
    assert "heron stands" in done["sessions", "search", "heron"].stdout
    assert "the pier is long" in done["memory", "log"].stdout
    assert "no shared memory" in done["doctor", "--offline"].stdout
    export = done["sessions", "export"].stdout
    assert ("otter" in export, "beaver" in export, "the heron is grey" in export) == (False, is_old, True)
    for name in ("state.db", "memories/ledger.db"):
        with closing(apsw.Connection(str(strange.home / name), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            assert connection.pragma("journal_mode") == "delete"


@pytest.mark.parametrize("lack", LACKS)
def test_several_processes_write_without_shared_memory(place, lack):
    """They wait for each other."""
    strange = place(lack)
    started = [
        subprocess.Popen([*KEPT, "run", f"I am number {number}"], env=strange.environment, cwd=strange.home.parent,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for number in range(4)
    ]  # fmt: skip
    told = [process.communicate(timeout=60)[1] for process in started]

    assert not any("not being stored" in text for text in told), told
    assert strange.run("sessions", "export").stdout.count('"content": "I am number') == 4


def test_a_hook_works_without_shared_memory(place):
    """It says nothing of the file system to its client; the log does."""
    strange = place("memory locks")
    strange.run("sessions", "import", "lines.jsonl")
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/", "prompt": "where is the heron?"}

    done = strange.run("hook", "claude-code", text=json.dumps(event))

    assert (done.returncode, done.stderr) == (0, "")
    assert WARNING in (strange.home / "logs" / "kept.log").read_text()


def test_an_mcp_server_works_without_shared_memory(place):
    """A memory written by a tool is in the ledger."""
    strange = place("memory map")
    first = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "memory", "arguments": {"action": "add", "target": "memory", "content": "the otter is brown"}}
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": first},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    with subprocess.Popen(
        [*KEPT, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=strange.environment, cwd=strange.home.parent,
    ) as server:  # fmt: skip
        for request in requests:
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(2)]
        server.stdin.close()

    assert not answers[1]["result"].get("isError"), answers
    assert "otter" in strange.run("memory", "log").stdout


@contextmanager
def serve(strange):
    """Run `kept serve` on a free port; yields its address."""
    with subprocess.Popen(
        [*KEPT, "serve", "--port", "0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=strange.environment, cwd=strange.home.parent,
    ) as server:  # fmt: skip
        try:
            line = next(line for line in server.stdout if "http://127.0.0.1" in line)
            yield line[line.index("http://") :].split()[0]
        finally:
            server.terminate()
            server.wait(30)


def test_a_server_works_without_shared_memory(place):
    """A chat over HTTP is stored."""
    strange = place("memory file")
    token = strange.run("serve", "token", "create").stdout.split()[-1]
    with serve(strange) as address:
        root = "/".join(address.split("/")[:3])
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        body = json.dumps({"message": "the gateway heron", "stream": False}).encode()
        request = urllib.request.Request(f"{root}/api/chat", body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200

    assert "gateway heron" in strange.run("sessions", "export").stdout


def test_without_locks_every_command_says_so_at_once(place):
    """SQLite takes it for another process that writes, and would wait for it."""
    place("").run("sessions", "import", "lines.jsonl")
    strange = place("locks")
    began = time.monotonic()

    listed = strange.run("sessions", "list")
    told = strange.run("doctor", "--offline")
    talked = strange.run("run", "hello")

    assert time.monotonic() - began < 9  # each alone would wait ten seconds for a lock
    assert listed.returncode == 74
    for text in (listed.stderr, told.stdout, talked.stderr):
        assert "cannot lock parts of a file" in text
        assert "another process" not in text
    assert talked.returncode == 0


def test_without_the_module_of_locks_pages_are_edited_with_a_warning(tmp_path):
    """As on systems that have no `fcntl`."""
    program = (
        "import sys; sys.modules['fcntl'] = None\n"
        "sys.argv = ['kept', 'memory', 'add', 'the heron is grey']\n"
        "from wellkept.cli.entry import main; main()"
    )
    environment = {**os.environ, "KEPT_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60, check=False
    )

    assert done.returncode == 0, done
    assert done.stderr.count("no file locks at") == 1
    assert (tmp_path / "home" / "memories" / "MEMORY.md").read_text() == "the heron is grey"

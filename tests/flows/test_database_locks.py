"""Whatever names the database, by a link or by its own path, is answered, and the database keeps its locks."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from tests import forks
from tests.gateway.conftest import serve

KEPT = (sys.executable, "-m", "wellkept")
LINKS = {"the file": lambda path, _: path, "symbolic link": Path.symlink_to, "hard link": Path.hardlink_to}
LINE = '{"session_id":"a","role":"user","content":"the heron is the staging server","timestamp":1790000000}'


def run(home, *arguments, text=None):
    environment = {**os.environ, "KEPT_HOME": str(home), "HOME": str(home.parent)}
    done = forks.run(
        [*KEPT, *arguments], input=text, capture_output=True, text=True, env=environment, cwd=home.parent, timeout=100
    )
    assert "is open as a database" not in done.stderr, done.stderr
    assert "this is a bug" not in done.stderr, done.stderr
    return done


@pytest.fixture
def filled(home):
    (home.parent / "lines.jsonl").write_text(LINE)
    assert run(home, "sessions", "import", str(home.parent / "lines.jsonl")).returncode == 0
    run(home, "memory", "add", "The heron is a bird")
    return home


@pytest.fixture(params=LINKS)
def name(request, filled, tmp_path):
    """A path that leads to the database."""
    folder = tmp_path / "named"
    folder.mkdir()
    database = filled / "state.db"
    if request.param == "the file":
        return database
    link = folder / "SKILL.md"
    LINKS[request.param](link, database)
    return link


def commands(home, name):
    """Return every command that takes a path."""
    yield "sessions", "import", str(name)
    for source in ("claude-code", "codex", "gemini", "chatgpt", "hermes", "opencode", "openclaw", "cursor"):
        yield "import", source, "--source", str(name), "--yes", "--no-backup"
    yield "memory", "import", str(name)
    yield "restore", str(name), "--verify"
    yield "skills", "install", str(name.parent), "--yes"
    yield "export", "--output", str(name)
    yield "sessions", "export", "--output", str(name)
    yield "backup", "--output", str(name)
    yield "backup", "--output", str(home.parent / f"{name.stem}.kept")
    yield "eval", str(name)
    yield "doctor", "--offline"
    yield "forget", "--query", "nothing-like-this", "--yes"
    yield "import", "hermes", "--source", str(home), "--yes", "--no-backup"
    yield "profile", "create", "copy", "--clone"
    yield "sessions", "repair", "--dry-run"


def test_no_command_opens_its_own_database_as_a_file(filled, name):
    """Named as an argument, by a link, or found while a command looks through the home."""
    before = (filled / "state.db").stat().st_ino
    for command in commands(filled, name):
        run(filled, *command)

    found = run(filled, "sessions", "search", "heron")
    assert "staging server" in found.stdout, found.stderr
    assert (filled / "state.db").stat().st_ino == before


def test_a_hook_with_the_database_as_its_transcript(filled, name):
    """What a client names is read with care."""
    event = {
        "session_id": "s", "transcript_path": str(name), "cwd": str(filled.parent), "hook_event_name": "UserPromptSubmit",
        "prompt": "where is the heron?",
    }  # fmt: skip
    run(filled, "hook", "claude-code", text=json.dumps(event))
    run(filled, "hook", "claude-code", text=json.dumps({**event, "hook_event_name": "Stop"}))

    assert "staging server" in run(filled, "sessions", "search", "heron").stdout


def test_the_tools_of_an_agent(filled, name, tmp_path):
    """A model that reads, lists and searches the database gets an answer."""
    calls = [
        {"tool": "read_file", "arguments": {"path": str(name)}},
        {"tool": "search_files", "arguments": {"pattern": "heron", "path": str(name.parent)}},
        {"tool": "write_file", "arguments": {"path": str(name), "content": "gone"}},
    ]
    script = tmp_path / "script.json"
    script.write_text(json.dumps([*calls, "done"]))
    run(filled, "run", "look", "-m", f"scripted/{script}")

    assert "staging server" in run(filled, "sessions", "search", "heron").stdout


def locks(path):
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    inode = path.stat().st_ino
    return [row[3:] for row in rows if row[4] == str(os.getpid()) and row[5].endswith(f":{inode}")]


def test_the_server_keeps_its_locks_over_every_route(filled):
    """Each route of the interface and each page, with a token, without one, and with a wrong one."""
    (filled / "outside.db").hardlink_to(filled / "state.db")
    with serve(filled) as served:
        owner = served.client(served.token())
        owner.post("/api/chat", json={"message": "the heron sleeps", "stream": False})
        held = locks(filled / "state.db")
        assert held
        document = owner.get("/api/openapi.json").json()
        routes = [path for path, methods in document["paths"].items() if "get" in methods]
        pages = [
            "/",
            "/search?q=heron",
            "/sessions",
            "/memory",
            "/skills",
            "/settings",
            "/agents",
            "/doctor",
            "/sign-in",
        ]
        for path in (*routes, *pages):
            for client in (
                owner,
                served.client(),
                served.client(""),
                served.client("kept_wrong"),
                served.client("sk-other"),
            ):
                client.get(path.replace("{", "").replace("}", ""))
                assert locks(filled / "state.db") == held, path
        lines = (filled.parent / "lines.jsonl").read_bytes()
        owner.post("/api/sessions/import", content=lines, headers={"Content-Type": "application/x-ndjson"})
        plan = owner.post("/api/forget", json={"query": "heron"}).json()
        owner.post("/api/forget", json={"query": "heron", "confirm": plan.get("confirm", "")})
        owner.post("/api/backup", json={})
        assert locks(filled / "state.db") == held


def test_a_copy_of_the_home_below_itself(filled):
    """A backup folder that is a link to the home does not make kept read its database twice."""
    shutil.rmtree(filled / "backups", ignore_errors=True)
    (filled / "backups").symlink_to(filled)
    run(filled, "backup")
    run(filled, "doctor", "--offline")

    assert "staging server" in run(filled, "sessions", "search", "heron").stdout

"""Foreign text of every kind, printed to a real terminal: no control character of it arrives."""

import json
import os
import pty
import select
import sqlite3
import subprocess
import sys
import time

import pytest
from tests import forks

EVIL = "owned\x1b]0;title\x07\x1b[2J\x9b31m\u202e\x08\x7f"
"""A word that must be shown, and controls that must not arrive: OSC, CSI, C1, a bidirectional override, backspace."""
UNMASKED = EVIL.replace("\u202e", "")
"""The scanner masks descriptions and entries with invisible characters."""
FORBIDDEN = {
    *map(chr, range(32)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
}
FORBIDDEN -= {"\t", "\n", "\r"}

DRIVER = """
import contextlib, json, sys
from wellkept.cli import main, terminal
for arguments in json.loads(sys.stdin.readline()):
    terminal.invocation = main.terminal.invocation = terminal.Invocation()
    sys.argv = ["kept", *arguments]
    print(f"\\n<{json.dumps(arguments)}>", flush=True)
    with contextlib.suppress(SystemExit):
        main.main()
print("\\n<end>", flush=True)
"""
"""One process for all commands: each start of Python takes a quarter of a second."""

SESSION = "evil-session"
SHOWING = (
    ["skills", "list"], ["skills", "show", "greet"], ["skills", "doctor"], ["skills", "browse", "PACKAGE"],
    ["skills", "search", "greet", "--source", "PACKAGE"], ["skills", "install", "PACKAGE"],
    ["memory", "show"], ["memory", "snapshot"], ["memory", "pending"], ["memory", "log"],
    ["sessions", "list"], ["sessions", "show", SESSION], ["sessions", "search", "owned"],
    ["sessions", "export", SESSION], ["sessions", "list", "--json"], ["sessions", "show", SESSION, "--json"],
    ["sessions", "search", "owned", "--json"], ["export"],
    ["run", "what do you know about owned?"], ["run", EVIL], ["tool", "session_search", '{"query": "owned"}'],
    ["config", "show"], ["doctor"], ["profile", "list"], ["forget", "--query", "owned", "--dry-run"],
    ["forget", "--session", EVIL], ["scan", EVIL], [EVIL], ["--" + EVIL], ["sessions", "show", EVIL], ["--debug", "memory", "show", EVIL],
    ["user", "list"], ["usage", "--by", "model"], ["curator", "status"],
)  # fmt: skip


@pytest.fixture
def hostile_home(home, tmp_path):
    """A home in which every foreign field holds `EVIL`; returns a skill package outside of it."""
    (home / "memories").mkdir(parents=True)
    (home / "memories" / "MEMORY.md").write_text(f"one {UNMASKED}\n§\ntwo {UNMASKED}", encoding="utf-8")
    (home / "memories" / "USER.md").write_text(f"user {UNMASKED}", encoding="utf-8")
    key = json.dumps(EVIL).replace("\x7f", "\\u007f")
    (home / "config.yaml").write_text(f"{key}: 1\n")
    (home / "profiles" / f"work{EVIL}").mkdir(parents=True)
    (home / "SOUL.md").write_text(EVIL, encoding="utf-8")
    for folder in (home / "skills" / "greet", tmp_path / "package" / "greet"):
        folder.mkdir(parents=True)
        fields = f"name: greet\ndescription: {json.dumps('Greet ' + UNMASKED)}".replace("\x7f", "\\u007f")
        (folder / "SKILL.md").write_text(f"---\n{fields}\n---\n\n# Greet {UNMASKED}\n", encoding="utf-8")
    (home / "skills" / "greet" / f"a{EVIL}.txt").touch()
    return str(tmp_path / "package" / "greet")


def fill_sessions(home, work):
    """Import a conversation of which every field is hostile, and write past the importer what it would reject."""
    lines = [
        {"type": "session", "id": SESSION, "title": EVIL, "source": EVIL, "model": EVIL, "started": 1_700_000_000},
        {"type": "message", "session_id": SESSION, "role": "user", "content": f"owned {EVIL}", "timestamp": 1_700_000_001},
        {"type": "message", "session_id": SESSION, "role": "assistant", "content": EVIL, "timestamp": 1_700_000_002},
    ]  # fmt: skip
    file = work / "evil.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    forks.run([sys.executable, "-m", "wellkept", "sessions", "import", str(file)], check=True, capture_output=True)
    with sqlite3.connect(home / "state.db") as database:
        database.execute("UPDATE sessions SET title = ?", (EVIL,))


def run_in_terminal(commands):
    """Return the output of each command in a pseudo terminal."""
    near, far = pty.openpty()
    variables = {**os.environ, "TERM": "dumb", "COLUMNS": "400", "LINES": "50"}
    process = forks.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=far, stderr=far, env=variables)
    os.close(far)
    process.stdin.write(json.dumps(commands).encode() + b"\n")
    process.stdin.close()
    seen, deadline = b"", time.monotonic() + 90
    while b"<end>" not in seen and time.monotonic() < deadline:
        if select.select([near], [], [], 0.2)[0]:
            try:
                seen += os.read(near, 65_536)
            except OSError:
                break
    process.kill()
    process.wait(10)
    os.close(near)
    text = seen.decode("utf-8")
    assert "<end>" in text, text[-2_000:]
    parts = text.split("\n<")[1:-1]
    assert len(parts) == len(commands)
    return parts


def test_no_control_character_of_foreign_text_reaches_a_terminal(hostile_home, home, tmp_path):
    """Whatever a command prints of stored text, file names, settings or arguments, it cannot control the terminal."""
    fill_sessions(home, tmp_path)
    commands = [[hostile_home if word == "PACKAGE" else word for word in each] for each in SHOWING]

    for command, output in zip(commands, run_in_terminal(commands), strict=True):
        shown = output.partition(">")[2]
        assert not FORBIDDEN & set(shown), (command, shown)
        # every command prints the warning about config.yaml, and most print more foreign text
        assert "owned" in shown, (command, shown)
        assert "this is a bug" not in shown, (command, shown)


def test_a_skill_with_control_characters_is_not_called_safe(hostile_home):
    """The consent screen shows a verdict that is not `safe`, and names the characters."""
    (shown,) = run_in_terminal([["skills", "install", hostile_home]])

    assert "verdict: caution" in shown
    assert "U+001B" in shown


def test_json_escapes_controls_and_stays_the_same_value(run, home):
    """`--json` prints every control character as an escape, so that programs get the exact text."""
    (home / "memories").mkdir(parents=True)
    (home / "memories" / "MEMORY.md").write_text(EVIL, encoding="utf-8")

    out = run("memory", "show", "--json").out

    assert not (FORBIDDEN | {"\u200f"}) & set(out)
    assert repr(EVIL)[1:-1] in repr(json.loads(out))


def test_a_snapshot_in_a_pipe_is_exact(run, home):
    """What is meant to be stored is not changed where no terminal reads it."""
    (home / "memories").mkdir(parents=True)
    (home / "memories" / "USER.md").write_text(UNMASKED, encoding="utf-8")

    assert UNMASKED in run("memory", "snapshot").out

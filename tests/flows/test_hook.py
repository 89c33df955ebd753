"""`kept hook CLIENT`: recorded events and broken ones, on sound stores and on broken ones; never in the way."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests import forks

from wellkept import connect
from wellkept.app import open_app
from wellkept.connect.events import parse_event

CORPUS = Path(__file__).parent.parent / "corpora" / "hooks"
THREAD = "01a1e79d-d3ae-7a62-8df5-39d2f3ab445e"
"""The thread of the recorded `notify` event."""
RECORDED = sorted(CORPUS.glob("*/*.json"))
KEPT = (sys.executable, "-m", "wellkept")
PROMPT = "The staging server of the billing team is called heron-42"


@pytest.fixture
def world(tmp_path, home, monkeypatch):
    """A project and a transcript of Claude Code; deadlines that a loaded machine keeps."""
    for name in ("START", "PROMPT", "STOP"):
        monkeypatch.setenv(f"KEPT_CONNECT__{name}_SECONDS", "30")
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path


def hook(client, event, *, words=(), **environment):
    """Run the hook as a client does; it must end with 0 and print nothing to stderr."""
    text = event if isinstance(event, bytes) else json.dumps(event).encode()
    done = forks.run(
        [*KEPT, "hook", client, *words], input=text, capture_output=True, env={**os.environ, **environment}, check=False
    )
    assert done.returncode == 0
    assert done.stderr == b""
    return json.loads(done.stdout) if done.stdout else None


def event(world, name, session="s1", **more):
    return {
        "session_id": session,
        "transcript_path": str(world / f"{session}.jsonl"),
        "cwd": str(world / "project"),
        "hook_event_name": name,
        **more,
    }


def row(session, number, role, text):
    content = text if role == "user" else [{"type": "text", "text": text}]
    message = {"role": role, "content": content, **({"id": f"m{number}", "model": "x"} if role == "assistant" else {})}
    return {
        "type": role,
        "uuid": f"{session}-{number}",
        "sessionId": session,
        "cwd": "/p",
        "timestamp": f"2026-11-17T03:00:{number:02d}.000Z",
        "message": message,
    }


def write_turn(world, session="s1", start=0, prompt=PROMPT, answer="I noted heron-42."):
    with (world / f"{session}.jsonl").open("a") as file:
        for number, (role, text) in enumerate((("user", prompt), ("assistant", answer)), start=start):
            file.write(json.dumps(row(session, number, role, text)) + "\n")


def log_of(home):
    path = home / "logs" / "kept.log"
    return path.read_text() if path.exists() else ""


def set_paused(*, paused):
    app = open_app()
    connect.connect.set_paused(app.caller(), paused=paused)
    app.close()


def stored(home):
    app = open_app()
    lines = [line for line in app.owner.sessions.transfer.export() if "role" in line]
    app.close()
    return [line["content"] for line in lines]


@pytest.fixture
def handle(world, home, monkeypatch):
    """Handle an event as the hook does, in this process: a process of its own takes half a second."""
    from wellkept.cli import hook as module

    printed = []
    watchdog = type(
        "Quiet", (), {"print": printed.append, "allow": lambda *_: None, "deadline": time.monotonic() + 60}
    )()

    def handle(client, event, *words, **environment):
        printed.clear()
        text = event if isinstance(event, bytes) else json.dumps(event).encode()
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(module, "_read_input", lambda: text)
        monkeypatch.setattr(module, "start_detached", lambda _command: None)
        monkeypatch.setattr(sys, "argv", ["kept", "hook", client])
        module._handle({}, [client, *words], watchdog)
        for name in environment:
            monkeypatch.delenv(name)
        return json.loads(printed[0]) if printed else None

    return handle


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_recorded_event_ends_well_on_an_empty_home(path, handle, home):
    """Nothing is known yet and no transcript is there: no output, and no error but the missing transcript."""
    words = (path.read_text(),) if path.parent.name == "codex-notify" else ()

    assert handle(path.parent.name, path.read_bytes(), *words) is None
    assert "Traceback" not in log_of(home)


def test_a_turn_is_stored_once_and_given_to_another_session(world, home, handle):
    """Stop prints nothing; the next session is given the passage once, and a repeated event stores nothing twice."""
    write_turn(world)
    for _ in range(2):
        assert handle("claude-code", event(world, "Stop", last_assistant_message="I noted heron-42.")) is None
    question = event(world, "UserPromptSubmit", "s2", prompt="How is the staging server of the billing team called?")
    first, second = handle("claude-code", question), handle("claude-code", question)

    assert stored(home) == [PROMPT, "I noted heron-42."]
    assert first["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    assert "heron-42" in first["hookSpecificOutput"]["additionalContext"]
    assert second is None or PROMPT not in second["hookSpecificOutput"]["additionalContext"]
    assert handle("claude-code", {**question, "session_id": "s3", "source": "system"}) is None
    assert handle("claude-code", {**question, "session_id": "s1"}) is None
    start = handle("claude-code", event(world, "SessionStart", "s4", source="startup"))
    assert "2 messages of 1 past sessions" in start["hookSpecificOutput"]["additionalContext"]
    assert start["systemMessage"] == "kept: 0 entries, 0 past sessions of this project"


UNNEEDED = {
    *(
        "wellkept.core.events",
        "wellkept.core.tools",
        "wellkept.operations.receipts",
        "wellkept.imports.conversations",
    ),
    *(
        "wellkept.sessions.tool",
        "wellkept.storage.texts",
        "base64",
        "calendar",
        "random",
        "dataclasses",
        "typer",
        "zipfile",
        "subprocess",
    ),
}


@pytest.mark.parametrize("name", ["UserPromptSubmit", "SessionStart"])
def test_a_hook_loads_only_what_it_needs(name, world, home):
    """The agent waits for it: two thirds of its time are imports."""
    write_turn(world)
    hook("claude-code", event(world, "Stop"))
    question = "How is the staging server of the billing team called?"
    sent = json.dumps(event(world, name, "s2", prompt=question, source="startup")).encode()
    run = [sys.executable, "-X", "importtime", "-m", "wellkept", "hook", "claude-code"]
    done = subprocess.run(run, input=sent, capture_output=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}

    assert done.stdout.startswith(b'{"hookSpecificOutput"')
    assert "wellkept.sessions.sqlite.store" in loaded
    assert loaded & UNNEEDED == set()


def test_a_resumed_session_is_given_the_same_block_once(world, home, handle):
    """Not again while the transcript holds it; again after a compaction, and after a clear."""
    write_turn(world)
    handle("claude-code", event(world, "Stop"))
    start = event(world, "SessionStart", "s2", source="startup")
    block = handle("claude-code", start)["hookSpecificOutput"]["additionalContext"]
    transcript = world / "s2.jsonl"
    transcript.write_text(json.dumps({"type": "attachment", "attachment": {"content": block}}) + "\n")

    assert handle("claude-code", {**start, "source": "resume"}) is None
    assert handle("claude-code", {**start, "source": "compact"}) is not None
    assert handle("claude-code", {**start, "source": "clear"}) is not None
    with transcript.open("a") as file:
        file.write(json.dumps({"type": "system", "subtype": "compact_boundary"}) + "\n")
    assert handle("claude-code", {**start, "source": "resume"}) is not None


def test_off_paused_and_excluded_leave_the_agent_alone(world, home, handle):
    """Nothing is given and nothing is stored."""
    write_turn(world)
    stop = event(world, "Stop")
    hook("claude-code", stop, KEPT_OFF="1")
    set_paused(paused=True)
    handle("claude-code", stop)
    set_paused(paused=False)
    handle("claude-code", stop, KEPT_CONNECT__EXCLUDE=json.dumps([str(world / "project")]))
    handle("claude-code", stop, KEPT_CONNECT__CAPTURE="false")

    assert stored(home) == []
    handle("claude-code", stop)
    assert stored(home) == [PROMPT, "I noted heron-42."]
    start = event(world, "SessionStart", "s2", source="startup")
    assert handle("claude-code", start, KEPT_CONNECT__RECALL="off") is None
    assert handle("claude-code", start, KEPT_CONNECT__EXCLUDE=json.dumps(["project"])) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe\x00",
        b'{"hook_event_name": 5}',
        b'{"session_id": "s"}',
        b"[" * 90_000,
    ],
)
def test_garbage_is_noted_and_nothing_else(text, world, home):
    """Exit 0, no output, a line in the log, and an error in the status."""
    assert hook("claude-code", text) is None
    assert "hook claude-code" in log_of(home)


def test_unknown_events_and_clients_do_nothing(world, home):
    """A later version of a client may send more than we know."""
    assert hook("claude-code", event(world, "Meteor")) is None
    assert hook("emacs", event(world, "Stop")) is None
    assert (
        hook("claude-code", {"hook_event_name": "Stop", "session_id": 5, "transcript_path": ["x"], "cwd": {}}) is None
    )


def test_a_turn_of_a_client_without_transcripts_is_stored_from_its_events(world, home):
    """The prompt waits for the answer; what is private is left out."""
    prompt = event(world, "UserPromptSubmit", "c1", turn_id="t1", prompt=f"{PROMPT} <private>pin 1234</private>")
    stop = event(world, "Stop", "c1", turn_id="t1", last_assistant_message="Noted.")
    for one in (prompt, stop, stop):
        hook("cursor", {**one, "transcript_path": None})

    assert [text.strip() for text in stored(home)] == [PROMPT, "Noted."]
    assert not list((home / "connect" / "prompts").iterdir())


@pytest.mark.parametrize("name", ["thread-title", "agent-turn-complete"])
def test_a_codex_thread_without_a_rollout_is_not_stored(world, home, handle, name):
    """Recorded from Codex: its request for a title has no rollout, as a conversation that was not to be recorded."""
    folder = world / ".codex" / "sessions" / "2026" / "11" / "19"
    folder.mkdir(parents=True)
    (folder / "rollout-2026-11-19T05-38-41-01a1f250-73bc-7133-8bab-a4b8c3d23c78.jsonl").write_text("")
    payload = (CORPUS / "codex-notify" / f"{name}.json").read_text()
    handle("codex-notify", b"", payload, CODEX_HOME=str(world / ".codex"))
    prompt = event(world, "UserPromptSubmit", "c1", turn_id="t1", prompt=PROMPT)
    stop = event(world, "Stop", "c1", turn_id="t1", last_assistant_message="Noted.")
    for one in (prompt, stop):
        handle("codex", {**one, "transcript_path": None})

    assert stored(home) == []
    assert not list((home / "spool").glob("*.json"))


def test_what_gemini_puts_into_a_prompt_is_not_searched_for(world, home, handle):
    """Recorded from Gemini CLI: the block of the session precedes the words of the person."""
    recorded = json.loads((CORPUS / "gemini" / "BeforeAgent.json").read_text())
    assert recorded["prompt"].startswith("<hook_context>")

    assert parse_event("gemini", json.dumps(recorded)).prompt == "How is the harbour light called?"
    write_turn(world, prompt="The harbour light is called petrel-3", answer="Noted.")
    handle("claude-code", event(world, "Stop"))
    answer = handle("gemini", recorded)
    assert "petrel-3" in answer["hookSpecificOutput"]["additionalContext"]


def test_the_old_notify_command_still_runs(world, home):
    """The command that was there before gets the same argument."""
    seen = world / "seen"
    script = world / "old.sh"
    script.write_text(f'#!/bin/sh\nprintf %s "$2" > {seen}.part && mv {seen}.part {seen}\n')
    script.chmod(0o700)
    payload = (CORPUS / "codex-notify" / "agent-turn-complete.json").read_text()
    rollout = [
        {"timestamp": "2026-11-19T05:38:41Z", "type": "session_meta", "payload": {"id": THREAD, "source": "exec"}},
        *(
            {"type": "response_item", "payload": {"type": "message", "role": role, "content": text}}
            for role, text in (("user", "my staging server is called heron"), ("assistant", "The answer is heron."))
        ),
    ]
    path = world / ".codex" / "sessions" / f"rollout-2026-11-19T05-38-41-{THREAD}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rollout))
    hook("codex-notify", b"", words=(str(script), "--flag", payload), CODEX_HOME=str(world / ".codex"))
    deadline = time.monotonic() + 20
    while not seen.exists() and time.monotonic() < deadline:
        time.sleep(0.05)

    assert seen.read_text() == payload
    assert len(stored(home)) == 2


def _lock(home):
    """Hold the write lock of the store in another process; return what ends it."""
    code = (
        "import sqlite3, sys, time\n"
        f"c = sqlite3.connect({str(home / 'state.db')!r}, isolation_level=None)\n"
        "c.execute('BEGIN EXCLUSIVE')\nprint('locked', flush=True)\ntime.sleep(60)\n"
    )
    process = forks.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"locked\n"
    return process


def break_newer(home):
    with sqlite3.connect(home / "state.db") as file:
        file.execute("PRAGMA user_version = 9999")

    def release():
        with sqlite3.connect(home / "state.db") as file:
            file.execute(f"PRAGMA user_version = {_version()}")

    return release


def _version():
    from wellkept.storage.connections import sql_migrations

    return sql_migrations("wellkept.storage")[-1].version


def break_locked(home):
    process = _lock(home)

    def release():
        process.kill()
        process.communicate()

    return release


def break_corrupt(home):
    path = home / "state.db"
    data = path.read_bytes()
    path.write_bytes(b"\0" * 4_096 + data[4_096:])
    return lambda: path.write_bytes(data)


def break_fifo(home):
    path = home / "state.db"
    path.rename(home / "aside.db")
    os.mkfifo(path)

    def release():
        path.unlink()
        (home / "aside.db").rename(path)

    return release


QUESTION = "Which falcons turn was earlier?"


def silenced_events(world):
    """Every event that uses the store, for a session that was never seen and one that has something to store."""
    return [
        event(world, "SessionStart", "s2", source="startup"),
        event(world, "UserPromptSubmit", "s2", prompt=QUESTION),
        event(world, "Stop"),
        event(world, "SubagentStop", agent_transcript_path=str(world / "s1.jsonl")),
        event(world, "PreCompact", trigger="auto"),
    ]


@pytest.mark.parametrize("damage", [break_newer, break_locked, break_corrupt, break_fifo])
def test_a_store_that_cannot_be_used_is_never_in_the_way(damage, world, home):
    """Exit 0 and no output within the deadline, a line in the log, and the turn is stored once it can be."""
    write_turn(world, "s0", prompt="an earlier turn about falcons", answer="Noted.")
    hook("claude-code", event(world, "Stop", "s0"))
    with sqlite3.connect(home / "state.db") as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert hook("claude-code", event(world, "UserPromptSubmit", "s9", prompt=QUESTION)) is not None
    release = damage(home)
    write_turn(world)
    limits = {f"KEPT_CONNECT__{name}_SECONDS": "2" for name in ("START", "PROMPT", "STOP")}
    begun = time.monotonic()
    logged = len(log_of(home))
    for one in silenced_events(world):
        assert hook("claude-code", one, **limits) is None
        assert one["hook_event_name"] in log_of(home)[logged:]
        logged = len(log_of(home))
    spent = time.monotonic() - begun
    release()

    assert spent < 60
    write_turn(world, start=2, prompt="one more thing", answer="Yes.")
    hook("claude-code", event(world, "Stop"))
    assert stored(home)[2:] == [PROMPT, "I noted heron-42.", "one more thing", "Yes."]
    assert hook("claude-code", event(world, "UserPromptSubmit", "s2", prompt=QUESTION)) is not None


def mounts_work():
    probe = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
    return (
        shutil.which("unshare") is not None and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.parametrize(
    ("refuse", "allow"),
    [
        ("head -c 100000000 /dev/zero > $KEPT_HOME/filler 2>/dev/null", "rm $KEPT_HOME/filler"),
        ("mount -o remount,ro $KEPT_HOME", "mount -o remount,rw $KEPT_HOME"),
    ],
    ids=["full", "read-only"],
)
@pytest.mark.skipif(not mounts_work(), reason="unshare -rm with a tmpfs is forbidden here")
def test_a_home_that_cannot_be_written_is_never_in_the_way(refuse, allow, world, home):
    """No output for any event; once there is room, the next event stores what was said meanwhile."""
    write_turn(world, "s0", prompt="an earlier turn about falcons", answer="Noted.")
    write_turn(world)
    events = [event(world, "Stop", "s0"), *silenced_events(world), event(world, "Stop")]
    for number, one in enumerate(events):
        (world / f"{number}.json").write_text(json.dumps(one))
    run = " ".join(forks.command("-m", "wellkept"))
    lines = ["mkdir -p $KEPT_HOME && mount -t tmpfs -o size=3m tmpfs $KEPT_HOME || exit 9"]
    for number, one in enumerate(events):
        lines += {1: [refuse], len(events) - 1: [allow]}.get(number, [])
        lines.append(f"{run} hook claude-code <{world}/{number}.json >>{world}/out.{one['hook_event_name']} || exit 8")
    lines.append(f"{run} sessions export >{world}/exported")
    done = subprocess.run(["unshare", "-rm", "sh", "-c", "\n".join(lines)], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")
    assert [path.name for path in world.glob("out.*") if path.stat().st_size] == []
    exported = [json.loads(line) for line in (world / "exported").read_text().splitlines()]
    assert [line["content"] for line in exported if "role" in line][2:] == [PROMPT, "I noted heron-42."]


def test_what_cannot_be_logged_goes_to_the_system_log(monkeypatch, tmp_path):
    """On a read-only home a hook prints nothing, so that its warning would be lost."""
    import logging

    from wellkept.observe import RotatingFile

    told = []
    monkeypatch.setattr("syslog.syslog", lambda _level, line: told.append(line))
    (tmp_path / "file").touch()
    handler = RotatingFile(tmp_path / "file" / "kept.log")
    for level in (logging.INFO, logging.WARNING):
        handler.emit(logging.LogRecord("wellkept", level, "", 0, "hook claude-code Stop: the disk is full", None, None))

    assert told == ["kept: hook claude-code Stop: the disk is full"]


def test_a_hook_that_is_killed_loses_nothing(world, home):
    """The next session start of the client finds the turn in its transcripts."""
    folder = world / "person" / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    forks.run([*KEPT, "connect", "claude-code", "--yes"], check=True, capture_output=True)
    write_turn(world)
    (world / "s1.jsonl").rename(folder / "s1.jsonl")
    process = forks.Popen([*KEPT, "hook", "claude-code"], stdin=subprocess.PIPE)
    process.kill()
    process.communicate()
    hook("claude-code", event(world, "SessionStart", "s2", source="startup"))
    deadline = time.monotonic() + 30
    while not (home / "state.db").exists() or not (found := stored(home)):
        assert time.monotonic() < deadline
        time.sleep(0.2)

    assert found == [PROMPT, "I noted heron-42."]


@pytest.mark.parametrize("kind", ["missing", "folder", "no permission", "sparse", "cut"])
def test_odd_transcripts_are_reported_in_the_log_and_the_status(kind, world, home):
    """Exit 0, no output; what is complete of a transcript that was cut in a character is stored."""
    path = world / "s1.jsonl"
    if kind == "folder":
        path.mkdir()
    elif kind == "no permission":
        write_turn(world)
        path.chmod(0)
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(500_000_000)
    elif kind == "cut":
        write_turn(world)
        with path.open("ab") as file:
            file.write('{"type": "user", "message": {"content": "ä'.encode()[:-1])
    answer = hook("claude-code", event(world, "Stop"), KEPT_CONNECT__STOP_SECONDS="5")

    assert answer is None
    if kind in {"missing", "folder"}:
        assert "s1.jsonl" in log_of(home)
        status = forks.run([*KEPT, "connect", "status", "--json"], capture_output=True, text=True, check=True).stdout
        assert "s1.jsonl" in json.loads(status)[0]["errors"][-1]
    if kind == "cut":
        assert stored(home) == [PROMPT, "I noted heron-42."]

"""What of opencode's history is stored, from its database and from its older files."""

import json
import sqlite3
import time

import pytest

from wellkept.connect.capture import Captured, capture_transcript
from wellkept.core.errors import Refused


@pytest.fixture
def rows(corpus):
    """The rows of a real database."""
    return json.loads((corpus / "opencode" / "rows.json").read_text())


@pytest.fixture
def history(tmp_path, rows):
    """A database with the rows of a real one, all of them only in its log."""
    path = tmp_path / "opencode" / "opencode.db"
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    for statement in rows["schema"]:
        connection.execute(statement)
    for table in ("session", "message", "part"):
        for row in rows["rows"][table]:
            insert(connection, table, row)
    connection.commit()
    yield path, connection
    connection.close()


def insert(connection, table, row):
    values = [json.dumps(value) if isinstance(value, dict | list) else value for value in row.values()]
    names = ", ".join(f'"{name}"' for name in row)
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(values))})", values)


def capture(caller, path):
    done = capture_transcript(caller, "opencode", path)
    assert isinstance(done, Captured), done
    return done


def texts(caller, source="opencode"):
    store = caller.space.sessions
    found = sorted(store.recent(limit=100, source=source), key=lambda session: session.started)
    return [message.message.text for session in found for message in store.messages(session.id)]


def test_a_real_database_gives_each_turn_once(caller, history):
    """Rows that are only in the log are read; a second capture adds nothing; the file is not changed."""
    path, _ = history
    before = path.read_bytes()
    capture(caller, path)
    again = capture(caller, path)

    assert again.added == 0
    assert [text for text in texts(caller) if "task_result" not in text] == [
        "Remember that the printer is called marmot.",
        'Understood: "Remember that the printer is called marmot."',
        "RUNTOOL please",
        "Let me look.",
        "hello-from-tool",
        "The tool answered. Done.",
        "RUNAGENT please",
        "Delegating.",
        "The tool answered. Done.",
    ]
    assert texts(caller, "subagent") == ["Say what you see.", "Understood: Say what you see."]
    assert path.read_bytes() == before


def test_facts_of_the_session_are_kept(caller, history):
    """Project, model, tokens; a sub-agent is linked to its parent."""
    path, _ = history
    capture(caller, path)
    (session,) = caller.space.sessions.recent(limit=5, source="opencode")
    (child,) = caller.space.sessions.recent(limit=5, source="subagent")

    assert (session.project, session.model) == ("/home/sam/project", "loopback-model")
    assert (child.parent_session_id, child.link.value) == (session.id, "delegate")
    assert caller.space.sessions.usage(session_id=session.id)[0].usage.output_tokens > 0


def test_an_answer_that_is_not_finished_waits(caller, history):
    """It is stored when it has ended, or when it was cut off long ago."""
    path, connection = history
    capture(caller, path)
    (session_id,) = connection.execute("SELECT id FROM session WHERE parent_id IS NULL").fetchone()
    now = int(time.time() * 1_000)
    for number, (role, done, text) in enumerate((("user", None, "Go on"), ("assistant", None, "Half an"))):
        data = {"role": role, "time": {"created": now + number, "completed": done}, "modelID": "m"}
        message = {"id": f"msg_z{number}", "session_id": session_id, "time_created": now + number, "time_updated": now}
        insert(connection, "message", message | {"data": data})
        part = {"id": f"prt_z{number}", "message_id": f"msg_z{number}", "session_id": session_id}
        part |= {"time_created": now, "time_updated": now, "data": {"type": "text", "text": text}}
        insert(connection, "part", part)
    connection.commit()
    first = capture(caller, path)
    data = json.dumps({"role": "assistant", "time": {"created": now + 1, "completed": now + 9}, "modelID": "m"})
    connection.execute("UPDATE message SET data = ?, time_updated = ? WHERE id = 'msg_z1'", (data, now + 9))
    connection.commit()
    second = capture(caller, path)

    assert (first.added, second.added) == (1, 1)
    assert texts(caller)[-2:] == ["Go on", "Half an"]


def test_an_excluded_project_does_not_hide_the_others(home, history):
    """One database holds the sessions of all projects."""
    from wellkept.app import open_app

    path, connection = history
    connection.execute("UPDATE session SET directory = '/home/sam/secret' WHERE parent_id IS NULL")
    connection.commit()
    home.mkdir()
    (home / "config.yaml").write_text("connect:\n  exclude: [secret]\n")
    app = open_app(str(home), None)
    done = capture(app.caller(), path)

    assert done.left == {"excluded project": 1}
    assert texts(app.caller()) == []
    assert texts(app.caller(), "subagent") == ["Say what you see.", "Understood: Say what you see."]
    app.close()


def test_the_older_files_are_read(caller, tmp_path, rows):
    """One file for each session, message and part."""
    storage = tmp_path / "storage"
    for row in rows["rows"]["session"]:
        info = {"parentID": row["parent_id"], "directory": row["directory"], "title": row["title"]}
        write(storage / "session" / "global" / f"{row['id']}.json", info)
    for row in rows["rows"]["message"]:
        write(storage / "message" / row["session_id"] / f"{row['id']}.json", row["data"])
    for row in rows["rows"]["part"]:
        write(storage / "part" / row["message_id"] / f"{row['id']}.json", row["data"])
    write(storage / "session" / "global" / "ses_broken.json", [1])
    first = capture(caller, storage)
    again = capture(caller, storage)

    assert (first.added, again.added) == (12, 0)
    assert texts(caller)[0] == "Remember that the printer is called marmot."


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def test_what_is_no_database_of_opencode_is_refused(caller, tmp_path):
    """Garbage, another program's tables, and a missing file."""
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"x" * 5_000)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE session (a)")

    for path in (garbage, other, tmp_path / "missing.db"):
        assert isinstance(capture_transcript(caller, "opencode", path), Refused), path


@pytest.mark.parametrize(
    ("parts", "stored"),
    [
        ([{"type": "text", "text": "Called the Read tool", "synthetic": True}], []),
        ([{"type": "text", "text": "not meant", "ignored": True}], []),
        ([{"type": "text", "text": "<system-reminder>a plan</system-reminder>"}], []),
        ([{"type": "text", "text": "<memory-context>\nthe person likes tea\n</memory-context>"}], []),
        ([{"type": "text", "text": "<private>my pin</private>"}], []),
        ([{"type": "compaction", "auto": True}], []),
        ([{"type": "text", "text": "Fix it"}, {"type": "text", "text": "file text", "synthetic": True}], ["Fix it"]),
        ([{"type": "subtask", "command": "review", "prompt": "the parser", "agent": "x"}], ["/review the parser"]),
    ],
)
def test_only_what_the_person_said_is_stored(caller, tmp_path, parts, stored):
    """Files that were read, reminders, injected memory and compactions come as user messages too."""
    storage = tmp_path / "storage"
    files = {
        "session/p/s.json": {"id": "s", "directory": "/home/sam/p", "time": {"created": 1, "updated": 2}},
        "message/s/m.json": {"id": "m", "role": "user", "sessionID": "s", "time": {"created": 1_780_000_000_000}},
        **{f"part/m/p{number}.json": {"id": f"p{number}", **part} for number, part in enumerate(parts)},
    }
    for name, value in files.items():
        path = storage / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    capture(caller, storage)

    assert texts(caller) == stored

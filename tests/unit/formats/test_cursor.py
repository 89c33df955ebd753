"""What of Cursor's history is stored: state databases of all generations, damaged ones, and transcripts of agents."""

import json
import sqlite3

import pytest

from wellkept.connect.capture import Captured, capture_transcript
from wellkept.core.errors import Refused
from wellkept.core.messages import Origin
from wellkept.formats.cursor import Cursor
from wellkept.formats.port import START as BEGINNING
from wellkept.formats.port import MemoryFile, Problem, Request

START = 1_780_000_000_000


def bubble(name, kind, text="", **fields):
    return name, {"bubbleId": name, "type": kind, "text": text, **fields}


def add_chat(connection, composer, *bubbles, changed=START, **fields):
    headers = [{"bubbleId": name, "type": value["type"]} for name, value in bubbles]
    data = {"composerId": composer, "name": "Marmots", "createdAt": START, "lastUpdatedAt": changed,
            "fullConversationHeadersOnly": headers, **fields}  # fmt: skip
    put(connection, "cursorDiskKV", f"composerData:{composer}", data)
    for name, value in bubbles:
        put(connection, "cursorDiskKV", f"bubbleId:{composer}:{name}", value)


def put(connection, table, key, value):
    text = value if isinstance(value, str) else json.dumps(value)
    connection.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (key, text))
    connection.commit()


def open_database(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    for table in ("ItemTable", "cursorDiskKV"):
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")
    return connection


@pytest.fixture
def user_folder(tmp_path):
    """The folder of the editor, with one workspace."""
    workspace = tmp_path / "home" / ".config" / "Cursor" / "User" / "workspaceStorage" / "0a1b"
    with open_database(workspace / "state.vscdb") as connection:
        put(connection, "ItemTable", "composer.composerData", {"allComposers": [{"composerId": "c1"}]})
    connection.close()
    (workspace / "workspace.json").write_text(json.dumps({"folder": "file:///home/sam/my%20project"}))
    return workspace.parents[1]


@pytest.fixture
def database(user_folder):
    """The database of all chats, with a writer that holds it open, and rows that are only in its log."""
    path = user_folder / "globalStorage" / "state.vscdb"
    connection = open_database(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    tool = {"toolCallId": "t1", "name": "run_terminal_cmd", "rawArgs": '{"command": "ls"}', "status": "completed",
            "result": json.dumps({"output": "marmot.txt"})}  # fmt: skip
    add_chat(
        connection, "c1",
        bubble("b1", 1, "List the files", images=[{"uuid": "x"}]),
        bubble("b2", 2, thinking={"text": "use ls"}),
        bubble("b3", 2, "Listing.", toolFormerData=tool, createdAt="2026-05-28T20:30:00.000Z"),
        bubble("b4", 2, "One file.", modelInfo={"modelName": "gpt-5"}, tokenCount={"inputTokens": 40, "outputTokens": 4}),
        bubble("b5", 9, "from the future"),
    )  # fmt: skip
    yield path, connection
    connection.close()


def capture(caller, path):
    done = capture_transcript(caller, "cursor", path)
    assert isinstance(done, Captured), done
    return done


def stored(caller, source="cursor"):
    store = caller.space.sessions
    found = sorted(store.recent(limit=100, source=source), key=lambda session: session.started)
    return [message for session in found for message in store.messages(session.id)]


def texts(caller, source="cursor"):
    return [one.message.text for one in stored(caller, source)]


def test_a_chat_of_today_is_stored_once(caller, database):
    """Rows that are only in the log are read while another process holds the file; the file is not changed."""
    path, connection = database
    connection.execute("BEGIN IMMEDIATE")
    before = path.read_bytes()
    first, again = capture(caller, path), capture(caller, path)
    (session,) = caller.space.sessions.recent(limit=5, source="cursor")
    prompt, listing, result, answer = stored(caller)

    assert (first.added, again.added, first.left) == (4, 0, {"empty": 1, "unknown row": 1})
    assert (session.title, session.project, session.model) == ("Marmots", "/home/sam/my project", "gpt-5")
    assert prompt.message.text == "List the files\n[image]"
    assert (listing.message.reasoning, listing.message.tool_calls[0].arguments) == ("use ls", '{"command": "ls"}')
    assert (result.message.text, result.message.tool_call_id) == ("marmot.txt", "t1")
    assert (answer.message.text, answer.timestamp) == ("One file.", 1_780_000_200.0)
    assert caller.space.sessions.usage(session_id=session.id)[0].usage.input_tokens == 40
    assert path.read_bytes() == before


def test_a_continued_chat_adds_what_is_new(caller, database):
    """Only chats that changed are read again."""
    path, connection = database
    capture(caller, path)
    add_chat(connection, "c1", bubble("b1", 1, "List the files"), bubble("b4", 2, "One file."), bubble("b6", 1, "And now?"),
             changed=START + 5_000)  # fmt: skip
    add_chat(connection, "c2", bubble("d1", 1, "Another chat"), changed=START + 6_000)
    done = capture(caller, path)

    assert done.added == 2
    assert texts(caller)[4:] == ["And now?", "Another chat"]


def test_older_generations_are_read(caller, user_folder):
    """Messages inside the chat, and the chats of 2023 in the database of a workspace."""
    path = user_folder / "workspaceStorage" / "0a1b" / "state.vscdb"
    with open_database(path) as connection:
        inline = [{"type": 1, "bubbleId": "i1", "text": "Inline?"}, {"type": 2, "bubbleId": "i2", "text": "Yes."}]
        chats = {"allComposers": [{"composerId": "old", "createdAt": START, "conversation": inline}, "?"]}
        put(connection, "ItemTable", "composer.composerData", chats)
        tab = {"tabId": "t", "chatTitle": "Old", "lastSendTime": START + 9_000, "bubbles": [
            {"type": "user", "id": "u", "text": "Ancient?"}, {"type": "ai", "id": "a", "rawText": "Very."}, {"type": "x"}]}  # fmt: skip
        put(connection, "ItemTable", "workbench.panel.aichat.view.aichat.chatdata", {"tabs": [tab, {}, 4]})
        put(connection, "ItemTable", "aiService.prompts", [{"text": "Ancient?"}])
    connection.close()
    capture(caller, path)

    assert texts(caller) == ["Inline?", "Yes.", "Ancient?", "Very."]
    assert {one.project for one in caller.space.sessions.recent(limit=5, source="cursor")} == {"/home/sam/my project"}


def test_sub_agents_are_linked_to_their_chat(caller, database):
    """Their prompts are written by a machine."""
    path, connection = database
    add_chat(
        connection, "c9", bubble("s1", 1, "Find it"), bubble("s2", 2, "Found"), subagentInfo={"parentComposerId": "c1"}
    )
    capture(caller, path)
    (child,) = caller.space.sessions.recent(limit=5, source="subagent")
    (session,) = caller.space.sessions.recent(limit=5, source="cursor")

    assert child.parent_session_id == session.id
    assert stored(caller, "subagent")[0].origin is Origin.SYNTHETIC


@pytest.mark.parametrize("make", [
    lambda path: path.write_bytes(b"no database" * 1_000),
    lambda path: path.write_bytes(b""),
    lambda path: sqlite3.connect(path).execute("CREATE TABLE other (x)").connection.close(),
], ids=["text", "empty", "newer"])  # fmt: skip
def test_what_is_no_database_of_cursor_is_refused(caller, tmp_path, make):
    """With the reason; nothing is stored."""
    path = tmp_path / "state.vscdb"
    make(path)
    done = capture_transcript(caller, "cursor", path)

    assert isinstance(done, Refused)
    assert done.remedy


def test_a_damaged_database_gives_what_can_be_read(caller, user_folder):
    """Chats on whole pages are stored; the report says that the file is damaged."""
    path = user_folder / "globalStorage" / "state.vscdb"
    with open_database(path) as connection:
        for number in range(300):
            add_chat(connection, f"c{number}", bubble(f"b{number}", 1, f"Question {number} " + "x" * 300))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 3 * 4096] = bytes(3 * 4096)
    path.write_bytes(data)
    reading = Cursor().open(path, BEGINNING)
    problems = [item.what for item in reading if isinstance(item, Problem)]
    reading.close()
    done = capture(caller, path)

    assert 100 < done.added < 300
    assert any("damaged" in problem for problem in problems)


def write_transcript(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for role, *blocks in rows:
            content = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
            file.write(json.dumps({"role": role, "message": {"content": content}}) + "\n")
    return path


def test_transcripts_of_agents(caller, tmp_path):
    """What the person typed, without what the editor added; the same words twice are two messages."""
    folder = tmp_path / "home" / ".cursor" / "projects" / "home-sam-my-project"
    path = folder / "agent-transcripts" / "a1" / "a1.jsonl"
    tool = {"type": "tool_use", "name": "Shell", "input": {"command": "ls"}}
    added = "<open_files>secret.txt</open_files>\n<user_query>\nGo on\n</user_query>"
    write_transcript(
        path, ("user", added), ("assistant", "Going.", tool), ("user", "<system_reminder>be nice</system_reminder>")
    )
    (folder / ".workspace-trusted").write_text(json.dumps({"workspacePath": "/home/sam/my-project"}))
    write_transcript(path.parent / "subagents" / "s1.jsonl", ("user", "Look there"), ("assistant", "Nothing."))
    first = capture(caller, path)
    write_transcript(path, ("user", added), ("assistant", "Going again."))
    second, third = capture(caller, path), capture(caller, path)
    (session,) = caller.space.sessions.recent(limit=5, source="cursor")

    assert texts(caller) == ["Go on", "Going.", "Go on", "Going again."]
    assert (first.added, second.added, third.added) == (4, 2, 0)
    assert session.project == "/home/sam/my-project"
    assert texts(caller, "subagent") == ["Look there", "Nothing."]


def test_a_transcript_of_a_chat_that_the_database_has_is_a_copy(caller, database):
    """The database has times and results, so it is the one that is taken."""
    path, _ = database
    transcript = path.parents[4] / ".cursor" / "projects" / "p" / "agent-transcripts" / "c1.jsonl"
    write_transcript(transcript, ("user", "<user_query>List the files</user_query>"), ("assistant", "Listing."))
    capture(caller, path)
    done = capture(caller, transcript)

    assert (done.added, done.left) == (0, {"copy": 2})


def test_rules_become_memory(database, tmp_path):
    """Those of the person, and those of the projects that were opened."""
    path, connection = database
    project = tmp_path / "project"
    (project / ".cursor" / "rules").mkdir(parents=True)
    (project / ".cursor" / "rules" / "style.mdc").write_text("---\nalwaysApply: true\n---\nUse tabs.")
    put(connection, "ItemTable", "aicontext.personalContext", "Answer in German.")
    workspace = path.parents[1] / "workspaceStorage" / "0a1b"
    (workspace / "workspace.json").write_text(json.dumps({"folder": project.as_uri()}))
    found = list(Cursor().list_assets(path.parents[1], Request({}, tmp_path)))

    assert [(one.name, one.folder) for one in found if isinstance(one, MemoryFile)] == [
        ("user rules", None), (str(project / ".cursor" / "rules" / "style.mdc"), str(project)),
    ]  # fmt: skip

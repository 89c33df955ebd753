"""What of Gemini CLI's history is stored: files of the real program, and the older form."""

import json
import shutil

import pytest

from wellkept.connect.capture import Captured, capture_transcript
from wellkept.formats.gemini import Gemini
from wellkept.formats.port import MemoryFile, Request
from wellkept.memory.page import Target


@pytest.fixture
def home_folder(corpus, tmp_path):
    """The folder of a real Gemini CLI 0.61, with a tool call, a resumed session and a prompt that was withdrawn."""
    return shutil.copytree(corpus / "gemini" / ".gemini", tmp_path / ".gemini")


def capture(caller, path):
    done = capture_transcript(caller, "gemini", path)
    assert isinstance(done, Captured), done
    return done


def capture_all(caller, root):
    return [capture(caller, path) for path in Gemini().list_transcripts(root)]


def texts(caller, source="gemini"):
    store = caller.space.sessions
    found = sorted(store.recent(limit=100, source=source), key=lambda session: session.started)
    return [message.message.text for session in found for message in store.context(session.id)]


def test_real_sessions_are_stored_once(caller, home_folder):
    """Context, copies of results, replayed history and the file of a resume add nothing; a rewind takes back."""
    first = capture_all(caller, home_folder)
    again = capture_all(caller, home_folder)

    assert texts(caller) == [
        "Remember that the printer is called marmot.",
        "Understood: session_context> Remember that the printer is called marmot.",
        "RUNTOOL please",
        "Let me look.",
        "Directory listing for /home/sam/project:\n\n\n(1 ignored)",
        "The tool answered. Done.",
        "And after the rewind",
        "Understood: And after the rewind",
    ]
    assert sum(one.added for one in first) > 0
    assert [one.added for one in again] == [0, 0, 0]
    assert len(caller.space.sessions.recent(limit=5, source="gemini")) == 2


def test_facts_of_the_session_are_kept(caller, home_folder):
    """Project, model, times, thoughts, and each call of the model once."""
    capture_all(caller, home_folder)
    session = min(caller.space.sessions.recent(limit=5, source="gemini"), key=lambda one: one.started)
    other = max(caller.space.sessions.recent(limit=5, source="gemini"), key=lambda one: one.started)
    look = next(one for one in caller.space.sessions.messages(other.id) if one.message.text == "Let me look.")

    assert (session.project, session.model) == ("/home/sam/project", "gemini-2.5-flash")
    assert session.started == pytest.approx(1_794_898_540.838)
    assert (look.message.reasoning, look.message.tool_calls[0].name) == ("Thinking about it", "list_directory")
    assert caller.space.sessions.usage(session_id=session.id)[0].usage.output_tokens == 7


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def message(name, kind, content, **fields):
    return {"id": name, "timestamp": "2026-10-01T10:00:00Z", "type": kind, "content": content, **fields}


def test_a_growing_answer_is_completed(caller, tmp_path):
    """The file is read while the agent works; the last form of a message is stored, results once."""
    path = tmp_path / "chats" / "session-2026-10-01T10-00-abcdabcd.jsonl"
    write(path, {"sessionId": "abcdabcd-1", "kind": "main"}, message("u", "user", "Go"), message("g", "gemini", "Look"))
    first = capture(caller, path)
    call = {"id": "t", "name": "ls", "args": {}, "status": "success",
            "result": [{"functionResponse": {"response": {"output": "files"}}}]}  # fmt: skip
    write(path, message("g", "gemini", "Looking now.", toolCalls=[call]), message("g2", "gemini", "Done."))
    second = capture(caller, path)
    third = capture(caller, path)

    assert texts(caller) == ["Go", "Looking now.", "files", "Done."]
    assert (first.added, second.added + second.replaced, third.added) == (2, 3, 0)


def test_the_older_form_is_read(caller, tmp_path):
    """One JSON object, commands and notes of the client left out, images as placeholders, a title."""
    path = tmp_path / "tmp" / "0a1b" / "chats" / "session-2025-10-01T10-00-feed0000.json"
    path.parent.mkdir(parents=True)
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    path.write_text(json.dumps({
        "sessionId": "feed0000-1", "projectHash": "0a1b", "summary": "About marmots", "directories": ["/home/sam/burrow"],
        "messages": [
            message("i", "info", "Update available"), message("s", "user", "/help"), message("q", "user", "?"),
            message("u", "user", [{"text": "What is this?"}, image]), message("g", "gemini", "A marmot."),
            message("d", "user", "expanded text of a file", displayContent=[{"text": "Read @notes.txt"}]),
            message("x", "plan", "from the future"), 7,
        ],
    }))  # fmt: skip
    done = capture(caller, path)
    again = capture(caller, path)
    (session,) = caller.space.sessions.recent(limit=5, source="gemini")

    assert texts(caller) == [
        "What is this?\n[image image/png [binary: 9 bytes, sha256 929e08d597feae56]]",
        "A marmot.",
        "Read @notes.txt",
    ]
    assert (session.title, session.project, again.added) == ("About marmots", "/home/sam/burrow", 0)
    assert done.left == {"client text": 1, "command": 2, "unknown row": 2}


def test_sub_agents_are_linked_to_their_session(caller, tmp_path):
    """Their prompts are written by a machine."""
    main = tmp_path / "chats" / "session-2026-10-01T10-00-abcdabcd.jsonl"
    write(
        main,
        {"sessionId": "abcdabcd-1", "kind": "main"},
        message("u", "user", "Delegate"),
        message("g", "gemini", "Yes"),
    )
    child = main.parent / "abcdabcd-1" / "sub1.jsonl"
    write(
        child,
        {"sessionId": "sub1", "kind": "subagent"},
        message("v", "user", "Find it"),
        message("h", "gemini", "Found"),
    )
    capture(caller, main)
    (session,) = caller.space.sessions.recent(limit=5, source="gemini")
    (found,) = caller.space.sessions.recent(limit=5, source="subagent")

    assert texts(caller, "subagent") == ["Find it", "Found"]
    assert found.parent_session_id == session.id
    assert caller.space.sessions.messages(found.id)[0].origin.value == "synthetic"


def test_pages_become_memory(home_folder, tmp_path):
    """The page of the person, and those of projects; nothing of what it stores besides."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "GEMINI.md").write_text("Use tabs.")
    (home_folder / "GEMINI.md").write_text("## Gemini Added Memories\n- The printer is called marmot.")
    (home_folder / "oauth_creds.json").write_text('{"token": "x"}')
    (home_folder / "tmp" / "project" / ".project_root").write_text(str(project))
    (home_folder / "tmp" / "project" / "memory").mkdir()
    (home_folder / "tmp" / "project" / "memory" / "MEMORY.md").write_text("- It digs.")
    found = list(Gemini().list_assets(home_folder, Request({}, tmp_path)))

    assert [(one.target, one.folder) for one in found if isinstance(one, MemoryFile)] == [
        (Target.MEMORY, None), (Target.PROJECT, str(project)), (Target.PROJECT, str(project)),
    ]  # fmt: skip
    assert [one.name for one in found][2] == "tmp/project/memory/MEMORY.md"

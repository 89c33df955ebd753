"""Our own JSONL as a source of imports."""

import json

import pytest

from wellkept import imports
from wellkept.app import open_app
from wellkept.connect.capture import Captured, capture_transcript
from wellkept.formats.kept_lines import KeptLines
from wellkept.formats.port import MemoryFile, Request
from wellkept.memory.page import Add, Target
from wellkept.operations.memory import edit_entry
from wellkept.operations.sessions import import_sessions
from wellkept.operations.users import export_user

LINES = [
    {"type": "session", "session_id": "s1", "source": "cli", "title": "Marmots", "model": "m", "started": 1_780_000_000},
    {"session_id": "s1", "role": "user", "content": "Where is the printer?", "timestamp": 1_780_000_001},
    {"session_id": "s1", "role": "assistant", "content": "In the cellar.", "timestamp": 1_780_000_002,
     "tool_calls": [{"id": "t", "name": "look", "arguments": "{}"}]},
    {"session_id": "s1", "role": "tool", "content": "seen", "tool_call_id": "t", "timestamp": 1_780_000_003},
]  # fmt: skip


@pytest.fixture
def write(tmp_path):
    def make(*lines, name="export.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return make


def capture(caller, path):
    done = capture_transcript(caller, "jsonl", path)
    assert isinstance(done, Captured), done
    return done


def test_sessions_keep_their_id_and_source(caller, write):
    """A second run adds nothing, a grown file what is new, a copy under another name nothing."""
    path = write(*LINES)
    first, again = capture(caller, path), capture(caller, path)
    more = {"session_id": "s1", "role": "user", "content": "Thanks", "timestamp": 1_780_000_009}
    grown = capture(caller, write(*LINES, more, name="newer.jsonl"))
    session = caller.space.sessions.session("s1")

    assert (first.added, again.added, grown.added) == (3, 0, 1)
    assert (session.source, session.title, session.model) == ("cli", "Marmots", "m")
    assert [one.message.role.value for one in caller.space.sessions.messages("s1")] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]


def test_what_was_imported_another_way_is_not_stored_again(caller, write):
    """`kept sessions import` and `kept import jsonl` know each other's sessions."""
    path = write(*LINES)
    with path.open("rb") as file:
        import_sessions(caller, file, source="import:jsonl")

    assert capture(caller, path).added == 0


def test_an_export_of_a_user_comes_back(home, caller, tmp_path, write):
    """Conversations and pages; edits and other lines are left out."""
    capture(caller, write(*LINES))
    edit_entry(caller, Add("The printer is called marmot."))
    path = write(*export_user(caller).lines, name="user.jsonl")
    other = open_app(str(tmp_path / "other"), None)
    done = capture(other.caller(), path)
    other.close()
    (page,) = [one for one in KeptLines().list_assets(path, Request({}, home)) if isinstance(one, MemoryFile)]

    assert done.added == 3
    assert set(done.left) <= {"no message"}
    assert (page.target, page.entries) == (Target.MEMORY, ("The printer is called marmot.",))


def test_shapes_of_apis_and_bad_lines(caller, write):
    """A conversation in one line, images as placeholders; what is broken is counted."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    chat = {
        "id": "s2",
        "created": 1_780_000_000,
        "messages": [{"role": "user", "content": [image, {"type": "text", "text": "Look"}]}],
    }
    done = capture(caller, write({"role": "user"}, {"x": 1}, chat))
    (message,) = caller.space.sessions.messages("s2")

    assert message.message.text.startswith("[image image/png [binary: 9 bytes, sha256")
    assert done.left == {"unknown row": 2}


def test_an_undo_leaves_what_was_there_before(caller, write):
    """Only the message that the import brought is removed, not the session that it was added to."""
    with write(*LINES).open("rb") as file:
        import_sessions(caller, file, source="import:jsonl")
    more = {"session_id": "s1", "role": "user", "content": "Thanks", "timestamp": 1_780_000_009}
    found = imports.sources.find_sources(caller, "jsonl", write(*LINES, more, name="newer.jsonl"))
    report = imports.run.run_import(caller, found.sources[0])
    undone = imports.undo.undo_import(caller, report.import_id)

    assert (report.messages["user"], undone.as_json()["messages"]) == (1, 1)
    assert len(caller.space.sessions.messages("s1")) == 3

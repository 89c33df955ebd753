"""What of Claude's data export is stored."""

import json
import zipfile

import pytest

from wellkept.connect.capture import Captured, capture_transcript
from wellkept.formats.claude_export import ClaudeExport
from wellkept.formats.port import Leftover, MemoryFile, Request


def said(name, sender, *blocks, minute=0, text=None, **fields):
    content = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
    flat = text if text is not None else "".join(one for one in blocks if isinstance(one, str))
    return {
        "uuid": name, "text": flat, "content": content, "sender": sender, "attachments": [], "files": [],
        "created_at": f"2026-03-01T10:{minute:02}:00.000000Z", **fields,
    }  # fmt: skip


def conversation(*messages, uuid="11111111-0000-4000-8000-000000000001", name="About marmots"):
    return {"uuid": uuid, "name": name, "created_at": "2026-03-01T09:59:00Z", "account": {"uuid": "me"},
            "chat_messages": list(messages)}  # fmt: skip


@pytest.fixture
def export(tmp_path):
    def write(*conversations, name="data-2026-03-02-batch-0000.zip", **files):
        path = tmp_path / name
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("conversations.json", json.dumps(list(conversations)))
            archive.writestr("users.json", json.dumps([{"full_name": "Sam", "email_address": "sam@example.com"}]))
            for inner, value in files.items():
                archive.writestr(f"{inner}.json", json.dumps(value))
        return path

    return write


def capture(caller, path):
    done = capture_transcript(caller, "claude", path)
    assert isinstance(done, Captured), done
    return done


def stored(caller):
    store = caller.space.sessions
    found = sorted(store.recent(limit=100, source="claude"), key=lambda one: one.started)
    return [message for session in found for message in store.messages(session.id)]


def test_a_list_of_messages_is_stored_once(caller, export):
    """Title, times with their zone and both sides; again nothing; empty conversations create no session."""
    path = export(
        conversation(said("a", "human", "What is a marmot?"), said("b", "assistant", "A rodent.", minute=1)),
        conversation(uuid="22222222", name=""),
    )
    first, again = capture(caller, path), capture(caller, path)
    (session,) = caller.space.sessions.recent(limit=5, source="claude")

    assert (first.added, again.added) == (2, 0)
    assert (session.title, session.started) == ("About marmots", 1_772_359_200.0)
    assert [one.message.text for one in stored(caller)] == ["What is a marmot?", "A rodent."]


def test_calls_results_thoughts_and_files(caller, export):
    """Results without an id find their call; what an answer says after a result is a message of its own."""
    call = {"type": "tool_use", "name": "web_search", "input": {"query": "marmot"}}
    result = {"type": "tool_result", "name": "web_search", "content": [{"type": "text", "text": "found"}]}
    attached = [{"file_name": "notes.txt", "file_size": 12, "file_type": "txt", "extracted_content": "marmots dig"}]
    path = export(
        conversation(
            said("a", "human", minute=1, attachments=attached, files=[{"file_name": "photo.png"}]),
            said("b", "assistant", {"type": "thinking", "thinking": "search"}, "Looking.", call, result, "It digs.",
                 {"type": "token_budget"}, minute=2),
            said("c", "human", "Thanks", minute=3),
            said("d", "assistant", minute=4, text="Flat copy only"),
        )
    )  # fmt: skip
    capture(caller, path)
    prompt, looking, found, digs, _, flat = stored(caller)

    assert prompt.message.text == "[file notes.txt 12 bytes]\nmarmots dig\n[file photo.png]"
    assert (looking.message.text, looking.message.reasoning) == ("Looking.", "search")
    assert (found.message.tool_call_id, found.message.text) == (looking.message.tool_calls[0].id, "found")
    assert (digs.message.text, flat.message.text) == ("It digs.", "Flat copy only")


def test_branches_by_parents(caller, export):
    """An edited first prompt is another root; the newest leaf is the conversation, edited prompts are branches."""
    nil = "00000000-0000-4000-8000-000000000000"
    path = export(
        conversation(
            said("a", "human", "First try", minute=1, parent_message_uuid=nil),
            said("b", "assistant", "Old answer", minute=2, parent_message_uuid="a"),
            said("c", "human", "Second try", minute=3, parent_message_uuid=nil),
            said("d", "assistant", "New answer", minute=4, parent_message_uuid="c"),
            said("e", "assistant", "Newest answer", minute=5, parent_message_uuid="c"),
        )
    )
    done = capture(caller, path)

    assert [one.message.text for one in stored(caller)] == ["First try", "Old answer", "Second try", "Newest answer"]
    assert len({one.session_id for one in stored(caller)}) == 2
    assert done.left == {"regenerated answer": 1}


def test_memories_become_entries_and_projects_leftovers(export, tmp_path):
    """The person's name and address are not read at all."""
    path = export(
        memories=[{"conversations_memory": "**Work**\n\nSam digs.", "project_memories": {"p1": "Uses Rust."}}],
        projects=[{"uuid": "p1", "name": "Bur/row", "prompt_template": "Be brief.",
                   "docs": [{"filename": "../plan.md", "content": "dig"}]}],
    )  # fmt: skip
    found = list(ClaudeExport().list_assets(path, Request({}, tmp_path)))

    assert [(one.name, one.text, one.is_archive) for one in found if isinstance(one, MemoryFile)] == [
        ("memories/conversations", "**Work**\n\nSam digs.", False),
        ("memories/p1", "Uses Rust.", True),
    ]
    assert [(one.name, one.content) for one in found if isinstance(one, Leftover)] == [
        ("projects/Bur_row/instructions.md", b"Be brief."),
        ("projects/Bur_row/_plan.md", b"dig"),
    ]
    assert "example.com" not in str(found)

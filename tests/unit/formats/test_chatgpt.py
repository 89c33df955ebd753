"""What of ChatGPT's data export is stored: branches, hidden messages, tools, images, times."""

import json
import zipfile

import pytest

from wellkept.connect.capture import Captured, capture_transcript
from wellkept.core.messages import Link

CONVERSATION = "c0ffee00-0000-4000-8000-000000000001"


def node(name, role, text, *, parent, second=None, content=None, **message):
    """A node of the mapping, as exports of all years have it."""
    made = {
        "id": name,
        "author": {"role": role, "name": message.pop("tool", None), "metadata": {}},
        "create_time": None if second is None else 1_780_000_000.0 + second,
        "content": content or {"content_type": "text", "parts": [text]},
        "metadata": {},
        "recipient": "all",
        **message,
    }
    return {"id": name, "message": made, "parent": parent, "children": []}


def conversation(*nodes, current=None, **fields):
    mapping = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    mapping |= {one["id"]: one for one in nodes}
    return {
        "title": "A trip", "create_time": 1_780_000_000.0, "update_time": 1_780_000_500.0, "mapping": mapping,
        "current_node": current or nodes[-1]["id"], "conversation_id": CONVERSATION, "id": CONVERSATION,
        "default_model_slug": "gpt-5", **fields,
    }  # fmt: skip


def simple(*, name="A", conversation_id=CONVERSATION):
    return conversation(
        node(f"{name}1", "user", "Where is the printer?", parent="root", second=1),
        node(f"{name}2", "assistant", "In the cellar.", parent=f"{name}1", second=2),
        conversation_id=conversation_id,
        id=conversation_id,
    )


@pytest.fixture
def export(tmp_path):
    """Writes an export as a folder or a zip archive, whole or split."""

    def write(*conversations, name="export.zip", split=False, files=(), indent=None):
        parts = [[one] for one in conversations] if split else [list(conversations)]
        named = [
            ("conversations.json" if not split else f"conversations-{number:03}.json", json.dumps(part, indent=indent))
            for number, part in enumerate(parts)
        ]
        whole = [*named, ("user.json", '{"email": "sam@example.com"}'), *files]
        path = tmp_path / name
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for inner, data in whole:
                    archive.writestr(inner, data)
            return path
        path.mkdir()
        for inner, data in whole:
            (path / inner).write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return write


def capture(caller, path):
    done = capture_transcript(caller, "chatgpt", path)
    assert isinstance(done, Captured), done
    return done


def sessions(caller):
    return sorted(caller.space.sessions.recent(limit=100, source="chatgpt"), key=lambda one: (one.started, one.id))


def texts(caller, session=None):
    store = caller.space.sessions
    return [
        one.message.text for found in ([session] if session else sessions(caller)) for one in store.messages(found.id)
    ]


@pytest.mark.parametrize(
    ("name", "split", "indent"), [("a.zip", False, None), ("b.zip", True, 2), ("folder", True, None)]
)
def test_every_form_of_export_is_read(caller, export, name, split, indent):
    """One file, many files, a zip archive or a folder; a second run adds nothing."""
    other = simple(name="B", conversation_id="c0ffee00-0000-4000-8000-000000000002")
    path = export(simple(), other, name=name, split=split, indent=indent)
    first = capture(caller, path)
    again = capture(caller, path)

    assert (first.added, again.added, len(sessions(caller))) == (4, 0, 2)
    assert {one.title for one in sessions(caller)} == {"A trip", "A trip #2"}
    assert (sessions(caller)[0].model, sessions(caller)[0].started) == ("gpt-5", 1_780_000_001.0)


def test_a_single_file_of_any_name_is_read(caller, tmp_path):
    """The file of an unpacked export, also one that other tools wrapped in an object."""
    path = tmp_path / "my chats.json"
    path.write_text(json.dumps({"conversations": [simple()]}))

    assert capture(caller, path).added == 2


def test_the_current_branch_is_the_conversation(caller, export):
    """An edited prompt is a branch that shares its beginning; a regenerated answer is left out and counted."""
    path = export(
        conversation(
            node("a", "user", "Plan a trip", parent="root", second=1),
            node("b", "assistant", "To where?", parent="a", second=2),
            node("c", "user", "To Rome", parent="b", second=3),
            node("d", "assistant", "Rome is hot.", parent="c", second=4),
            node("e", "user", "To Oslo", parent="b", second=5),
            node("f", "assistant", "Oslo is cold.", parent="e", second=6),
            node("g", "assistant", "Oslo is lovely.", parent="e", second=7),
            current="g",
        )
    )
    done = capture(caller, path)
    main, branch = sessions(caller)

    assert texts(caller, main) == ["Plan a trip", "To where?", "To Oslo", "Oslo is lovely."]
    assert (branch.parent_session_id, branch.link) == (main.id, Link.BRANCH)
    assert texts(caller, branch) == ["To Rome", "Rome is hot."]
    assert [one.message.text for one in caller.space.sessions.context(branch.id)] == [
        "Plan a trip", "To where?", "To Rome", "Rome is hot.",
    ]  # fmt: skip
    assert done.left == {"regenerated answer": 1}


def test_a_newer_export_adds_only_what_is_new(caller, export):
    """What was said since is appended; an answer that was regenerated since begins a branch, nothing is mixed."""
    start = [
        node("a", "user", "Plan a trip to the mountains, please, in June", parent="root", second=1),
        node("b", "assistant", "Gladly.", parent="a", second=2),
        node("c", "user", "Make it short", parent="b", second=3),
        node("d", "assistant", "Two days.", parent="c", second=4),
    ]
    capture(caller, export(conversation(*start), name="first.zip"))
    longer = [
        *start,
        node("e", "user", "Plan a trip to the mountains, please, in June", parent="d", second=5),
        node("f", "assistant", "Again?", parent="e", second=6),
    ]
    grown = capture(caller, export(conversation(*longer), name="second.zip"))
    retold = [*longer, node("x", "assistant", "Three days.", parent="c", second=9),
              node("y", "user", "Better", parent="x", second=10)]  # fmt: skip
    changed = capture(caller, export(conversation(*retold, current="y"), name="third.zip"))
    back = [*retold, node("z", "user", "And June?", parent="f", second=11)]
    returned = capture(caller, export(conversation(*back, current="z"), name="fourth.zip"))
    main, branch = sessions(caller)

    assert (grown.added, changed.added, returned.added) == (2, 2, 1)
    assert texts(caller, main) == [one["message"]["content"]["parts"][0] for one in longer] + ["And June?"]
    assert texts(caller, branch) == ["Three days.", "Better"]
    assert branch.parent_session_id == main.id


def test_what_nobody_said_is_left_out(caller, export):
    """System and hidden messages, context nodes and empty ones; null metadata is not a problem."""
    hidden = {"is_visually_hidden_from_conversation": True}
    path = export(
        conversation(
            node("s", "system", "You are ChatGPT", parent="root"),
            node("p", "user", "", parent="s", content={"content_type": "user_editable_context", "user_profile": "Sam"}),
            node("h", "user", "Original custom instructions", parent="p", metadata=hidden),
            node("w", "tool", "retrieved", parent="h", weight=0),
            node("a", "user", "Hello", parent="w", second=1, metadata=None),
            node("e", "assistant", "", parent="a", second=2),
            node("b", "assistant", "Hi \ue200cite\ue202turn0search1\ue201there【4†source】.", parent="e", second=3),
        )
    )
    done = capture(caller, path)

    assert texts(caller) == ["Hello", "Hi there."]
    assert done.left == {"hidden": 3, "empty": 1}


def test_tools_thoughts_images_and_files(caller, export):
    """A call has its result; thoughts go with the answer; an image has type, size and hash; spoken words are words."""
    image = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_abc", "size_bytes": 4}
    spoken = {"content_type": "audio_transcription", "text": "What is this?"}
    sound = {"content_type": "audio_asset_pointer", "asset_pointer": "sediment://file_x"}
    path = export(
        conversation(
            node("a", "user", "", parent="root", second=1,
                 content={"content_type": "multimodal_text", "parts": [image, spoken, sound]},
                 metadata={"attachments": [{"id": "file_abc", "name": "i.png"}, {"id": "file_pdf", "name": "x.pdf", "size": 9}]}),
            node("t", "assistant", "", parent="a", second=2,
                 content={"content_type": "thoughts", "thoughts": [{"summary": "Look", "content": "at it"}]}),
            node("c", "assistant", "", parent="t", second=3, recipient="python",
                 content={"content_type": "code", "language": "python", "text": "print(1)"}),
            node("r", "tool", "", parent="c", tool="python",
                 content={"content_type": "execution_output", "text": "1"}),
            node("b", "assistant", "A marmot.", parent="r", second=5),
            node("n", "user", "", parent="b", second=6, content={"content_type": "from_the_future", "x": 1}),
        ),
        files=[("file_abc-photo.png", b"\x89PNG")],
    )  # fmt: skip
    capture(caller, path)
    (session,) = sessions(caller)
    prompt, call, result, answer = caller.space.sessions.messages(session.id)

    assert prompt.message.text == (
        "[image image/png 4 bytes, sha256 0f4636c78f65d363]\nWhat is this?\n[file x.pdf 9 bytes]"
    )
    assert (call.message.tool_calls[0].name, call.message.tool_calls[0].arguments) == ("python", "print(1)")
    assert call.message.reasoning == "Look\nat it"
    assert (result.message.tool_call_id, result.message.text) == (call.message.tool_calls[0].id, "1")
    assert result.timestamp == 1_780_000_003.0
    assert answer.message.text == "A marmot."


def test_the_new_form_without_children_and_hidden_nodes_is_read(caller, export):
    """Nodes sorted by id, parents that were left out, no current node: parents and times decide."""
    nodes = {
        "z": {"id": "z", "message": node("z", "user", "First", parent=None, second=1)["message"], "parent": "gone"},
        "b": {"id": "b", "message": node("b", "assistant", "Second", parent=None, second=2)["message"], "parent": "z"},
        "a": {"id": "a", "message": node("a", "user", "Third", parent=None, second=3)["message"], "parent": "lost"},
    }
    record = {"conversation_id": "n", "title": None, "mapping": nodes, "current_node": "nowhere"}
    capture(caller, export(record))

    assert texts(caller) == ["First", "Second", "Third"]


def test_records_of_other_shapes_are_counted(caller, export):
    """Broken records, circles and unknown roles cost themselves only."""
    circle = conversation(
        node("a", "user", "Round", parent="b", second=1), node("b", "assistant", "Trip", parent="a", second=2)
    )
    strange = [{"conversation_id": "m", "mapping": []}, {"id": "x", "mapping": {"q": 7}}, {}, 5, None, {"mapping": {}}]
    odd = conversation(node("o", "critic", "?", parent="root", second=1), conversation_id="odd", id="odd")
    path = export(circle, *strange, odd)
    done = capture(caller, path)

    assert texts(caller) == ["Round", "Trip"]
    assert done.left == {"unknown row": 5, "broken record": 2}


def test_private_spans_are_left_out(caller, export):
    """What a person marked as private is not stored, nor is its answer."""
    path = export(
        conversation(
            node("a", "user", "<private>secret</private>", parent="root", second=1),
            node("b", "assistant", "About the secret", parent="a", second=2),
            node("c", "user", "Open <private>hidden</private> words", parent="b", second=3),
        )
    )
    capture(caller, path)

    assert texts(caller) == ["Open  words"]

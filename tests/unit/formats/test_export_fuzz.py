"""Damaged exports: whatever a byte or a record becomes, reading ends, nothing is stored twice, nothing is made up."""

import json
import random

import pytest

from wellkept.connect.capture import capture_transcript
from wellkept.core.errors import Refused


def chatgpt():
    """Two conversations, one with a branch, a tool and an image."""
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-a", "size_bytes": 3}
    listed = [
        ("a", None, "user", {"content_type": "multimodal_text", "parts": ["Said one", image]}),
        ("b", "a", "assistant", {"content_type": "code", "text": "look()"}),
        ("c", "b", "tool", {"content_type": "execution_output", "text": "Said two"}),
        ("d", "c", "assistant", {"content_type": "text", "parts": ["Said three"]}),
        ("e", "a", "user", {"content_type": "text", "parts": ["Said four"]}),
    ]
    made = []
    for number in range(2):
        mapping = {
            f"{name}{number}": {
                "id": f"{name}{number}", "parent": f"{parent}{number}" if parent else None,
                "message": {"id": name, "author": {"role": role}, "create_time": 1.78e9 + place, "content": content,
                            "recipient": "python" if name == "b" else "all", "metadata": {}},
            }
            for place, (name, parent, role, content) in enumerate(listed)
        }  # fmt: skip
        made.append(
            {"conversation_id": f"conv{number}", "title": "T", "mapping": mapping, "current_node": f"d{number}"}
        )
    return "conversations.json", json.dumps(made)


def claude():
    """A conversation with a call, a result and a thought."""
    blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Said two"},
              {"type": "tool_use", "name": "look", "input": {}}, {"type": "tool_result", "name": "look", "content": "Said three"}]  # fmt: skip
    messages = [
        {"uuid": "a", "sender": "human", "text": "Said one", "created_at": "2026-01-01T00:00:00Z"},
        {"uuid": "b", "sender": "assistant", "content": blocks, "created_at": "2026-01-01T00:00:01Z"},
    ]
    return "conversations.json", json.dumps(
        [{"uuid": f"c{number}", "name": "T", "chat_messages": messages} for number in range(2)]
    )


def gemini():
    """A session with a call, a replay and a rewind."""
    call = {
        "id": "t",
        "name": "ls",
        "args": {},
        "result": [{"functionResponse": {"response": {"output": "Said three"}}}],
    }
    said = [{"id": "u", "type": "user", "content": [{"text": "Said one"}]},
            {"id": "g", "type": "gemini", "content": "Said two", "model": "m", "tokens": {"input": 1, "output": 2}}]  # fmt: skip
    rows = [{"sessionId": "s", "kind": "main"}, *said, {**said[1], "toolCalls": [call]}, {"$set": {"messages": said}},
            {"id": "v", "type": "user", "content": "Said four"}, {"$rewindTo": "v"}]  # fmt: skip
    return "session-1-abcdabcd.jsonl", "".join(json.dumps(row) + "\n" for row in rows)


def cursor():
    """The transcript of an agent."""
    rows = [
        ("user", "<user_query>Said one</user_query>"),
        ("assistant", "Said two"),
        ("user", "<user_query>Said one</user_query>"),
    ]
    lines = [{"role": role, "message": {"content": [{"type": "text", "text": text}]}} for role, text in rows]
    return "a1.jsonl", "".join(json.dumps(line) + "\n" for line in lines)


def jsonl():
    """Lines of ours, and one in the shape of an API."""
    lines = [{"session_id": "s", "role": "user", "content": "Said one", "timestamp": 1.78e9},
             {"id": "t", "messages": [{"role": "assistant", "content": "Said two"}], "created": 1.78e9}]  # fmt: skip
    return "own.jsonl", "".join(json.dumps(line) + "\n" for line in lines)


MAKERS = {"chatgpt": chatgpt, "claude": claude, "gemini": gemini, "cursor": cursor, "jsonl": jsonl}


def damage(text, chance):
    """Return a text with one kind of damage."""
    place = chance.randrange(len(text))
    lines = text.splitlines(keepends=True)
    number = chance.randrange(len(lines))
    return chance.choice(
        (
            text[:place],
            text[:place] + chance.choice('{}[]",:\\x0\n') + text[place + 1 :],
            text[:place] + text[place + chance.randrange(40) :],
            "".join(lines[number:] + lines[:number]),
            text + text,
            text.replace('"Said two"', chance.choice(("null", "7", "[]", '{"text": null}', '"\\ud800"'))),
            text.replace('"user"', chance.choice(('"future"', "null", "[]"))),
        )
    )


@pytest.mark.parametrize("client", MAKERS)
def test_damaged_files_never_fail(caller, tmp_path, client):
    """Cut, changed, reordered and doubled: each is read or refused, and a second run adds nothing."""
    name, text = MAKERS[client]()
    chance = random.Random(client)
    for number in range(60):
        path = tmp_path / str(number) / "chats" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(damage(text, chance).encode("utf-8", "surrogatepass"))
        first = capture_transcript(caller, client, path)
        again = capture_transcript(caller, client, path)

        assert isinstance(first, Refused) or not isinstance(again, Refused), (number, first, again)
        assert isinstance(again, Refused) or again.added == 0, (number, path.read_text(errors="replace"))

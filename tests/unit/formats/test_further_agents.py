"""Sessions of pi, Copilot CLI and Droid, and exports of opencode; recorded from the programs where that was possible."""

import json
from pathlib import Path

import pytest

from wellkept import imports
from wellkept.core.messages import Origin
from wellkept.formats.port import START, Conversation, Kind, Left, Said, Spent, find_source
from wellkept.imports.sources import ImportChoices

CORPUS = Path(__file__).parents[2] / "corpora" / "transcripts"


def read(name, root):
    source = find_source(name)
    items = []
    for path in source.list_transcripts(root):
        reading = source.open(path, START)
        items += list(reading)
        reading.close()
    return items


def said(items):
    return [(item.message.role.value, item.message.text) for item in items if isinstance(item, Said)]


def unknown(items):
    return [item.kind for item in items if isinstance(item, Left) and item.kind]


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("name", "folder", "session"),
    [
        ("pi", "pi/sessions", "01a1f255-91a7-74a3-bc43-cfceb9d20072"),
        ("copilot", "copilot", "32c8fd3b-f843-4b18-8b3c-ff6f788717f8"),
        ("opencode", "opencode-export", "ses_e0da9bcf3ffeWhMKZlQJOQc024"),
    ],
)
def test_a_real_session_is_imported_once(caller, name, folder, session):
    """Two turns with a call and its result, in the folder where they happened; nothing is unknown."""

    def run():
        found = imports.sources.find_sources(caller, name, CORPUS / folder)
        return imports.run.run_import(caller, found.sources[0], ImportChoices(with_backup=False))

    first, second = run(), run()
    (stored,) = caller.space.sessions.recent(limit=5)
    messages = [message.message for message in caller.space.sessions.messages(stored.id)]
    call, result = messages[1].tool_calls[0], messages[2]

    assert [message.role.value for message in messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert (messages[0].text, messages[4].text) == (
        "please list the files here", "the harbour light is called petrel-3",
    ) or messages[4].text == "and the harbour light is called petrel-3"  # fmt: skip
    assert (call.name, call.id) == ("bash", result.tool_call_id)
    assert ".git" in result.text
    assert (stored.project, stored.metadata["external_id"]) == ("/home/person/proj", session)
    assert (first.is_complete, first.unknown, second.import_id) == (True, {}, None)
    assert caller.space.sessions.totals()[0] == 1


def test_a_branch_of_pi_and_a_command_of_the_person(tmp_path):
    """A fork names its origin; what the person ran is theirs, what an extension added is not."""
    fork = "/x/--p--/2026-11-19T05-44-16-551Z_01a1f255-91a7-74a3-bc43-cfceb9d20072.jsonl"
    write(
        tmp_path / "2026-11-20T05-44-16-551Z_01a1f255-91a7-74a3-bc43-cfceb9d20073.jsonl",
        {"type": "session", "version": 3, "id": "01a1f255-91a7-74a3-bc43-cfceb9d20073", "cwd": "/p", "parentSession": fork},
        {"type": "message", "id": "a1", "parentId": None, "timestamp": "2026-11-20T05:44:17Z",
         "message": {"role": "bashExecution", "command": "make lights", "output": "ok"}},
        {"type": "custom_message", "id": "a2", "parentId": "a1", "timestamp": "2026-11-20T05:44:18Z", "content": "x"},
        {"type": "message", "id": "a3", "parentId": "a2", "timestamp": "2026-11-20T05:44:19Z",
         "message": {"role": "assistant", "content": [{"type": "text", "text": "Lit."}], "model": "m"}},
        {"type": "of_tomorrow", "id": "a4", "parentId": "a3"},
    )  # fmt: skip
    items = read("pi", tmp_path)
    facts = next(item for item in items if isinstance(item, Conversation))

    assert said(items) == [("user", "! make lights"), ("assistant", "Lit.")]
    assert facts.parent == "01a1f255-91a7-74a3-bc43-cfceb9d20072"
    assert unknown(items) == ["row 'of_tomorrow'"]


def event(kind, number, agent=None, **data):
    more = {"agentId": agent} if agent else {}
    return {"type": kind, "id": f"e{number}", "timestamp": f"2026-11-19T05:44:{number:02}Z", "data": data, **more}


def test_sub_agents_of_copilot_are_conversations_of_their_own(tmp_path):
    """Their prompts are of a machine; what the client injected is left out; an event of a new type is named."""
    write(
        tmp_path / "session-state" / "s-1" / "events.jsonl",
        event("session.start", 1, sessionId="s-1", context={"cwd": "/p", "branch": "main"}),
        event("user.message", 2, content="Ask the explorer"),
        event("user.message", 3, content="Continue", source="autopilot"),
        event("assistant.message", 4, content="", toolRequests=[{"toolCallId": "t1", "name": "task", "arguments": {}}]),
        event("subagent.started", 5, toolCallId="t1", agentDisplayName="Explorer"),
        event("user.message", 6, "t1", content="Explore the lights"),
        event("assistant.message", 7, "t1", content="Found petrel-3"),
        event("tool.execution_complete", 8, toolCallId="t1", success=False, error={"message": "stopped"}),
        event("assistant.hologram", 9),
        event("session.usage_record", 10, usage={"model": "m", "inputTokens": 10, "cacheReadTokens": 4}),
    )
    items = read("copilot", tmp_path)
    child = next(item for item in items if isinstance(item, Conversation) and item.kind is Kind.SUBAGENT)
    spoken = [item for item in items if isinstance(item, Said)]

    assert said(items) == [
        ("user", "Ask the explorer"), ("assistant", ""), ("user", "Explore the lights"),
        ("assistant", "Found petrel-3"), ("tool", "stopped"),
    ]  # fmt: skip
    assert (child.external_id, child.parent, child.title) == ("s-1/t1", "s-1", "Explorer")
    assert [item.origin for item in spoken[:3:2]] == [Origin.PERSON, Origin.SYNTHETIC]
    assert unknown(items) == ["row 'assistant.hologram'"]
    assert [item.usage.input_tokens for item in items if isinstance(item, Spent)] == [6]


def test_sessions_of_copilot_of_2025(tmp_path):
    """One object with the messages of an API."""
    call = {"id": "t1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    messages = [
        {"role": "system", "content": "You are"},
        {"role": "user", "content": "List the files"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t1", "content": "a.txt"},
    ]
    path = tmp_path / "history-session-state" / "session_h.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"sessionId": "h", "startTime": "2025-10-08T21:10:16Z", "chatMessages": messages}))
    items = read("copilot", tmp_path)

    assert said(items) == [("user", "List the files"), ("assistant", ""), ("tool", "a.txt")]


def message(number, role, *blocks, **more):
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    stamp = f"2026-11-19T05:44:{number:02}Z"
    return {
        "type": "message",
        "id": f"m{number}",
        "timestamp": stamp,
        "message": {"role": role, "content": content},
        **more,
    }


def test_a_session_of_droid(tmp_path):
    """Calls, results, thoughts, the model beside the file; automation and reminders are not the person's words."""
    call = {"type": "tool_use", "id": "t1", "name": "Execute", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a.txt"}]}
    write(
        tmp_path / "-home-sam-p" / "d-1.jsonl",
        {"type": "session_start", "id": "d-1", "title": "Files", "cwd": "/home/sam/p", "version": 2},
        message(1, "user", "<system-reminder>Today is Monday</system-reminder>", "List the files"),
        message(2, "assistant", {"type": "thinking", "thinking": "Simple"}, "Let me look.", call),
        message(3, "user", result),
        message(4, "user", "Go on", userMessageSource="automation"),
        {"type": "todo_state", "id": "x", "todos": []},
        {"type": "of_tomorrow"},
    )
    (tmp_path / "-home-sam-p" / "d-1.settings.json").write_text('{"model": "claude-opus-4-8"}')
    items = read("droid", tmp_path)
    (facts,) = (item for item in items if isinstance(item, Conversation))
    spoken = [item.message for item in items if isinstance(item, Said)]

    assert said(items) == [("user", "List the files"), ("assistant", "Let me look."), ("tool", "a.txt")]
    assert (facts.folder, facts.model, facts.title) == ("/home/sam/p", "claude-opus-4-8", "Files")
    assert (spoken[1].reasoning, spoken[1].tool_calls[0].name, spoken[2].tool_call_id) == ("Simple", "Execute", "t1")
    assert unknown(items) == ["row 'of_tomorrow'"]


def test_a_delegated_session_of_droid_belongs_to_its_caller(tmp_path):
    """Its prompt is of a machine."""
    write(
        tmp_path / "d-2.jsonl",
        {"type": "session_start", "id": "d-2", "cwd": "/p", "callingSessionId": "d-1", "callingToolUseId": "t1"},
        message(1, "user", "Explore the lights"),
    )
    items = read("droid", tmp_path)
    facts, spoken = items

    assert (facts.kind, facts.parent, spoken.origin) == (Kind.SUBAGENT, "d-1", Origin.SYNTHETIC)

"""What of Cline's history is stored: tasks of the extension, and a session recorded from the command line."""

import json
from pathlib import Path

from wellkept import imports
from wellkept.core.messages import Origin
from wellkept.formats.cline import Cline
from wellkept.formats.port import START, Conversation, Kind, Left, Said, Spent
from wellkept.imports.sources import ImportChoices

REAL = Path(__file__).parents[2] / "corpora" / "transcripts" / "cline"


def read(root):
    source = Cline()
    (path,) = source.list_transcripts(root)
    reading = source.open(path, START)
    try:
        return list(reading)
    finally:
        reading.close()


def said(items):
    return [(item.message.role.value, item.message.text) for item in items if isinstance(item, Said)]


def write_task(folder, messages, events=(), task="1790000000000", **about):
    path = folder / "tasks" / task
    path.mkdir(parents=True)
    (path / "api_conversation_history.json").write_text(json.dumps(messages))
    (path / "ui_messages.json").write_text(json.dumps(list(events)))
    (folder / "state").mkdir()
    (folder / "state" / "taskHistory.json").write_text(json.dumps([{"id": task, **about}]))


def user(*texts):
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def answer(text):
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def test_a_real_session_of_the_command_line():
    """Text, call, result, times, tokens, folder, and who led it."""
    items = read(REAL)
    (facts,) = (item for item in items if isinstance(item, Conversation))
    first = next(item for item in items if isinstance(item, Said))

    assert said(items) == [
        ("user", "please list the files here"), ("assistant", "Let me look."), ("tool", ".\n..\n.git"),
        ("assistant", "answer 8 noted"),
    ]  # fmt: skip
    assert (facts.external_id, facts.kind, facts.folder) == ("1795067098754_47ck8", Kind.HEADLESS, "/home/person/proj")
    assert (first.timestamp, first.origin) == (1_795_067_099.008, Origin.PERSON)
    assert sum(item.usage.input_tokens for item in items if isinstance(item, Spent)) == 20
    assert not [item for item in items if isinstance(item, Left)]


def test_a_task_whose_calls_are_markup(tmp_path):
    """Calls find their results; the words of the person are told from what the extension wrote around them."""
    environment = "<environment_details>\n# VSCode Visible Files\n</environment_details>"
    messages = [
        user("<task>\nName the harbour light\n</task>", environment),
        answer("I look it up.\n<read_file>\n<path>docs/lights.md</path>\n</read_file>"),
        user("[read_file for 'docs/lights.md'] Result:", "The light is petrel-3", environment),
        answer("<attempt_completion>\n<result>\nIt is petrel-3.\n</result>\n</attempt_completion>"),
        user(
            "[attempt_completion] Result: The user has feedback.\n<feedback>\nAnd its keeper?\n</feedback>", environment
        ),
        user("[ERROR] You did not use a tool in your previous response!"),
    ]
    events = [{"ts": 1_790_000_005_000, "type": "say", "say": "text", "conversationHistoryIndex": 0}]
    write_task(tmp_path, messages, events, task_text="x", cwdOnTaskInitialization="/home/sam/p", task="1790000000000")
    items = read(tmp_path)
    spoken = [item for item in items if isinstance(item, Said)]
    (call,) = spoken[1].message.tool_calls

    assert said(items) == [
        ("user", "Name the harbour light"), ("assistant", "I look it up."), ("tool", "The light is petrel-3"),
        ("assistant", "It is petrel-3."), ("user", "And its keeper?"),
    ]  # fmt: skip
    assert (call.name, json.loads(call.arguments)) == ("read_file", {"path": "docs/lights.md"})
    assert spoken[2].message.tool_call_id == call.id
    assert [item.timestamp for item in spoken[:2]] == [1_790_000_000.0, 1_790_000_005.0]
    assert next(item for item in items if isinstance(item, Conversation)).folder == "/home/sam/p"


def test_a_task_with_calls_of_the_api(tmp_path):
    """Results are blocks; a block of a new type is named."""
    call = {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "petrel-3"}
    messages = [
        user("<task>\nRead a\n</task>"),
        {"role": "assistant", "content": [{"type": "hologram"}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "<environment_details>x</environment_details>"}]},
    ]
    write_task(tmp_path, messages)
    items = read(tmp_path)

    assert said(items) == [("user", "Read a"), ("assistant", ""), ("tool", "petrel-3")]
    assert [item.kind for item in items if isinstance(item, Left) and item.kind] == ["block 'hologram'"]


def test_a_task_that_grows_and_is_taken_back_is_stored_once(caller, tmp_path):
    """New messages are added; after a checkpoint was restored, what was said before it is shared with a branch."""
    question, reply = user("<task>\nName the harbour light\n</task>"), answer("The harbour light is called petrel-3.")

    def run(*messages):
        path = tmp_path / "tasks" / "1790000000000" / "api_conversation_history.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(messages))
        found = imports.sources.find_sources(caller, "cline", tmp_path)
        return imports.run.run_import(caller, found.sources[0], ImportChoices(with_backup=False))

    store = caller.space.sessions
    run(question, reply)
    grown = run(
        question, reply, user("<feedback>And its keeper?</feedback>"), answer("Marten keeps the harbour light.")
    )
    (session,) = store.recent(limit=5)
    texts = [message.message.text for message in store.messages(session.id)]
    taken_back = run(
        question, reply, user("<feedback>And its colour?</feedback>"), answer("The harbour light is green.")
    )

    assert (grown.sessions["updated"], grown.conflicts) == (1, ())
    assert texts == [
        "Name the harbour light", "The harbour light is called petrel-3.", "And its keeper?",
        "Marten keeps the harbour light.",
    ]  # fmt: skip
    assert (taken_back.sessions["new"], taken_back.conflicts) == (1, ())
    assert len(store.recent(limit=5)) == 2
    assert sum(taken_back.messages.values()) == 2

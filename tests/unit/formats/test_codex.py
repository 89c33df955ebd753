"""What of Codex's rollouts is stored, in every generation."""

import json
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.connect.capture import Captured, capture_transcript, capture_turn
from wellkept.core.errors import Refused
from wellkept.core.messages import Origin
from wellkept.formats.codex import Codex
from wellkept.formats.port import START, Conversation, Kind, Said, Spent, Unusable, Withdrawn

REAL = Path(__file__).parents[2] / "corpora" / "transcripts" / "codex"


def read(path, position=START):
    reading = Codex().open(path, position)
    try:
        return list(reading)
    finally:
        reading.close()


def said(path):
    return [(item.message.role.value, item.message.text) for item in read(path) if isinstance(item, Said)]


def capture(caller, path):
    done = capture_transcript(caller, "codex", path)
    assert isinstance(done, Captured), done
    return done


def texts(caller, source="codex"):
    store = caller.space.sessions
    found = sorted(store.recent(limit=100, source=source), key=lambda session: session.started)
    return [message.message.text for session in found for message in store.messages(session.id) if message.message.text]


class Rollout:
    """Writes a rollout in the second generation."""

    def __init__(self, path, thread="t-1", **meta):
        self.path = path
        self.second = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self.row("session_meta", id=thread, cwd="/home/sam/project", source="cli", originator="codex_cli_rs", **meta)
        self.row("turn_context", cwd="/home/sam/project", model="gpt-5.1-codex")

    def row(self, kind, **payload):
        self.second += 1
        row = {"timestamp": f"2026-11-01T10:00:{self.second:02}.000Z", "type": kind, "payload": payload}
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def user(self, text, **payload):
        content = [{"type": "input_text", "text": text}]
        self.row("response_item", type="message", role="user", content=content, **payload)
        self.row("event_msg", type="user_message", message=text)

    def answer(self, text):
        self.row("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": text}])
        self.row("event_msg", type="agent_message", message=text)


@pytest.fixture
def rollout(tmp_path):
    return Rollout(tmp_path / "codex" / "sessions" / "rollout-2026-11-01T10-00-00-t-1.jsonl")


def test_a_real_rollout_gives_each_turn_once():
    """Items of the model are taken, their mirrors in events are not; the environment is nobody's words."""
    (path,) = REAL.rglob("*.jsonl")
    items = read(path)
    conversation = next(item for item in items if isinstance(item, Conversation))
    prompts = [item for item in items if isinstance(item, Said) and item.origin is Origin.PERSON]

    assert [text for role, text in said(path) if role != "tool" and text] == [
        "Remember that the cluster is called heron.",
        "Understood: Remember that the cluster is called heron.",
        "RUNTOOL please",
        "Let me look.",
        "The tool answered. Done.",
    ]
    assert (conversation.kind, conversation.folder, conversation.model) == (
        Kind.HEADLESS,
        "/home/sam/project",
        "gpt-5.1-codex",
    )
    assert all(prompt.turn for prompt in prompts)
    assert [item.usage.output_tokens for item in items if isinstance(item, Spent)] == [21, 21, 21]
    assert {item.usage.cache_read_tokens for item in items if isinstance(item, Spent)} == {40}


def test_a_real_rollout_is_captured_in_steps(caller, tmp_path):
    """Cut anywhere, the rest is added later, and nothing twice."""
    (path,) = REAL.rglob("*.jsonl")
    whole = path.read_bytes()
    copy = tmp_path / "rollout-x.jsonl"
    for share in (0.4, 0.55, 0.7, 0.85, 1.0):
        copy.write_bytes(whole[: int(len(whole) * share)])
        capture(caller, copy)

    assert texts(caller)[0] == "Remember that the cluster is called heron."
    assert len(texts(caller)) == len([text for _, text in said(path) if text])


def test_a_real_compaction_and_fork_are_stored_once(caller, corpus):
    """The answer to a compaction is not stored; a fork without copied history is a branch of its thread."""
    first, fork = sorted((corpus / "codex-interactive").glob("*.jsonl"))
    parent = capture(caller, first)
    branch = capture(caller, fork)
    session = caller.space.sessions.session(branch.session_id)

    assert [text for text in texts(caller) if "Chunk ID" not in text] == [
        "My lamp is blue.RUNTOOL now",
        "Let me look.",
        "The tool answered. Done.",
        "My chair is red.",
        "Understood: My chair is red.",
        "In the fork my desk is green.",
        "Understood: In the fork my desk is green.",
    ]
    assert (session.parent_session_id, session.link.value) == (parent.session_id, "branch")
    assert "headless" not in session.metadata


@pytest.mark.parametrize(
    "text",
    [
        "<environment_context>\n<cwd>/x</cwd>\n</environment_context>",
        "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>be brief</INSTRUCTIONS>",
        "<user_instructions>be brief</user_instructions>",
        "<turn_aborted>\nthe turn was aborted\n</turn_aborted>",
        "<permissions instructions>ask</permissions instructions>",
        "<skill><name>x</name></skill>",
        "<hook_prompt id='1'>run the tests</hook_prompt>",
        "<codex_internal_context source='memory'>the person likes tea</codex_internal_context>",
        "<recommended_plugins>x</recommended_plugins>",
        "<subagent_notification>done</subagent_notification>",
        "<user_shell_command>ls</user_shell_command>",
        "<user_action>reviewed</user_action>",
        "<collaboration_mode>plan</collaboration_mode>",
        "<memory-context>\nthe person likes tea\n</memory-context>",
    ],
)
def test_wrappers_are_not_the_persons_words(rollout, text):
    """What Codex sends as user is left out."""
    rollout.user(text)

    assert said(rollout.path) == []


def test_the_request_inside_an_ide_message_is_kept(rollout):
    """The context that the extension adds is left out."""
    rollout.user("# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nFix the test")

    assert said(rollout.path) == [("user", "Fix the test")]


def test_withdrawn_turns_are_not_shown(caller, rollout):
    """An edited prompt takes the place of the one before; reading the file again changes nothing."""
    rollout.user("Write it in Rust")
    rollout.answer("Fine")
    rollout.row("event_msg", type="thread_rolled_back", num_turns=1)
    rollout.user("Write it in Go")
    rollout.answer("Sure")
    capture(caller, rollout.path)
    moved = rollout.path.with_name("rollout-moved.jsonl")
    moved.write_bytes(rollout.path.read_bytes())
    capture(caller, moved)

    assert texts(caller) == ["Write it in Go", "Sure"]
    assert any(isinstance(item, Withdrawn) for item in read(rollout.path))


def test_a_compaction_replays_nothing(rollout):
    """The replacement history holds messages that are in the file already."""
    rollout.user("One")
    history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "One"}]}]
    rollout.row("compacted", message="summary", replacement_history=history)
    rollout.user("Two")

    assert [text for _, text in said(rollout.path)] == ["One", "Two"]


def test_a_fork_with_copied_history_is_stored_once(caller, rollout):
    """Rows without ids are known by their place in the history."""
    rollout.user("One")
    rollout.answer("First")
    capture(caller, rollout.path)
    fork = Rollout(rollout.path.with_name("rollout-fork.jsonl"), thread="t-2", forked_from_id="t-1")
    fork.row("session_meta", id="t-1", cwd="/home/sam/project", source="cli")
    fork.user("One")
    fork.answer("First")
    fork.user("Two")
    done = capture(caller, fork.path)
    session = caller.space.sessions.session(done.session_id)

    assert done.added == 1
    assert texts(caller) == ["One", "First", "Two"]
    assert session.link.value == "branch"


def test_sub_agents_are_linked_to_their_parent_without_its_history(caller, rollout):
    """An object as source is a sub-agent; the history that it was started with is the parent's."""
    rollout.user("One")
    parent = capture(caller, rollout.path)
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "t-1", "depth": 1, "agent_nickname": "scout"}}}
    path = rollout.path.with_name("rollout-child.jsonl")
    rows = [
        {"type": "session_meta", "payload": {"id": "t-3", "source": source, "timestamp": "2026-11-01T10:00:20Z"}},
        {"type": "session_meta", "payload": {"id": "t-1", "source": "cli"}},
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": "One"}},
        {"type": "event_msg", "payload": {"type": "task_started", "started_at": 1_793_527_230, "turn_id": "x"}},
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": "Look around"}},
    ]
    path.write_text("".join(json.dumps({"timestamp": "2026-11-01T10:00:30Z", **row}) + "\n" for row in rows))
    done = capture(caller, path)
    session = caller.space.sessions.session(done.session_id)

    assert (session.source, session.parent_session_id, session.title) == ("subagent", parent.session_id, "scout")
    assert texts(caller, "subagent") == ["Look around"]


def test_the_first_generation_is_read(tmp_path):
    """Flat rows without times, and state rows between them."""
    path = tmp_path / "rollout-old.jsonl"
    rows = [
        {"id": "t-0", "timestamp": "2025-06-01T10:00:00Z", "instructions": None, "git": {"branch": "main"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": '{"output": "a.py"}'},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One file"}]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert said(path) == [
        ("user", "Hello"),
        ("assistant", ""),
        ("tool", '{"output": "a.py"}'),
        ("assistant", "One file"),
    ]


def test_rollouts_of_early_2025_are_read(caller, tmp_path):
    """One JSON object per session; a later state of the file adds what is new, a half written one waits."""
    path = tmp_path / "sessions" / "rollout-2025-04-17-t-00.json"
    path.parent.mkdir()
    session = {"id": "t-00", "timestamp": "2025-04-17T10:00:00Z", "instructions": "Be kind"}
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Where is the parser?"}]},
        {"type": "local_shell_call", "id": "i", "call_id": "c", "action": {"command": ["ls"]}},
        {"type": "function_call_output", "call_id": "c", "output": "parser.py"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "In parser.py"}]},
    ]
    path.write_text(json.dumps({"session": session, "items": items[:2]})[:-9])
    half = capture(caller, path)
    path.write_text(json.dumps({"session": session, "items": items[:2]}))
    first = capture(caller, path)
    path.write_text(json.dumps({"session": session, "items": items}))
    second, third = capture(caller, path), capture(caller, path)

    assert (half.added, first.added, second.added, third.added) == (0, 2, 2, 0)
    assert texts(caller) == ["Where is the parser?", "parser.py", "In parser.py"]
    assert str(first.session_id).startswith("20250417_100000_")
    assert path in Codex().list_transcripts(tmp_path)


def test_compressed_rollouts_are_read_once(caller, rollout):
    """A cold rollout is compressed under another name; its turns are known, and those that were not read are read."""
    from backports import zstd

    rollout.user("Hello")
    rollout.answer("Hi")
    capture(caller, rollout.path)
    rollout.user("More")
    packed = rollout.path.with_suffix(".jsonl.zst")
    packed.write_bytes(zstd.compress(rollout.path.read_bytes()))
    rollout.path.unlink()
    done = capture(caller, packed)

    assert texts(caller) == ["Hello", "Hi", "More"]
    assert done.added == 1
    assert Codex().list_transcripts(rollout.path.parents[1]) == [packed]


def test_an_event_with_the_turn_of_a_rollout_is_replaced(caller):
    """`notify` and the rollout use the same turn id."""
    (path,) = REAL.rglob("*.jsonl")
    prompt = next(item for item in read(path) if isinstance(item, Said))
    options = {"session": prompt.conversation, "turn": prompt.turn, "project": "/home/sam/project"}
    capture_turn(caller, "codex", **options, prompt=prompt.message.text, answer="Understood")
    done = capture(caller, path)
    again = capture_turn(caller, "codex", **options, prompt=prompt.message.text, answer="Understood")

    assert (done.replaced, again.added) == (2, 0)
    assert texts(caller).count(prompt.message.text) == 1


def test_titles_come_from_the_index(rollout):
    """Rollouts do not hold the name of their thread; the last one wins."""
    rollout.user("One")
    index = rollout.path.parents[1] / "session_index.jsonl"
    index.write_text('{"id":"t-1","thread_name":"Old"}\n{"id":"t-1","thread_name":"New"}\nbroken\n')

    assert next(item.title for item in read(rollout.path) if isinstance(item, Conversation)) == "New"


@pytest.fixture
def database(tmp_path):
    """The tables of a real home, with two threads."""
    home = tmp_path / "codex"
    (home / "sessions").mkdir(parents=True)
    path = home / "thread_history_1.sqlite"
    items = sqlite3.connect(path)
    items.execute(
        "CREATE TABLE thread_items (thread_id TEXT NOT NULL, turn_id TEXT NOT NULL, item_id TEXT NOT NULL, "
        "rollout_ordinal INTEGER NOT NULL, created_at_ms INTEGER NOT NULL, item_json TEXT NOT NULL, "
        "PRIMARY KEY (thread_id, turn_id, item_id))"
    )
    for thread in (GONE, THERE):
        rows = (
            {"type": "userMessage", "content": [{"type": "text", "text": "My lamp is blue."}]},
            {"type": "commandExecution", "command": "echo hi", "aggregatedOutput": "hi"},
            {"type": "agentMessage", "text": "Noted."},
            {"type": "somethingNew"},
        )
        for number, row in enumerate(rows):
            values = (thread, "turn", f"i{number}", number, 1_794_885_968_000 + number, json.dumps(row))
            items.execute("INSERT INTO thread_items VALUES (?, ?, ?, ?, ?, ?)", values)
    items.commit()
    items.close()
    state = sqlite3.connect(home / "state_5.sqlite")
    state.execute("CREATE TABLE threads (id TEXT, cwd TEXT, model TEXT, source TEXT)")
    state.execute("INSERT INTO threads VALUES (?, '/home/sam/project', 'gpt-5.1-codex', 'cli')", (GONE,))
    state.commit()
    state.close()
    (home / "sessions" / f"rollout-2026-{THERE}.jsonl").write_text("")
    return path


GONE, THERE = "01a1e78a-6030-76c2-a214-df127aa6e125", "01a1e7c2-828a-71d0-82d0-065f9b7ab11a"


def test_threads_without_a_rollout_come_from_the_database(caller, database):
    """Threads that have one are read from it; a second capture adds nothing."""
    done = capture(caller, database)
    again = capture(caller, database)
    session = caller.space.sessions.session(done.session_id)

    assert texts(caller) == ["My lamp is blue.", "hi", "Noted."]
    assert (session.project, session.model) == ("/home/sam/project", "gpt-5.1-codex")
    assert again.added == 0
    assert Codex().list_transcripts(database.parent)[-1] == database


def test_another_database_is_refused(caller, tmp_path):
    """A file without the tables of Codex, and garbage."""
    path = tmp_path / "thread_history_1.sqlite"
    path.write_bytes(b"garbage" * 1_000)

    assert isinstance(capture_transcript(caller, "codex", path), Refused)


@given(st.data())
def test_no_damage_raises(data):
    """Cut, doubled and corrupted rows are read without an error."""
    import tempfile

    (path,) = REAL.rglob("*.jsonl")
    lines = path.read_bytes().split(b"\n")
    content = b"\n".join(data.draw(st.lists(st.sampled_from(lines), max_size=40)))
    place = data.draw(st.integers(0, len(content)))
    with tempfile.TemporaryDirectory() as where:
        copy = Path(where) / "rollout-x.jsonl"
        copy.write_bytes(content[:place] + data.draw(st.binary(max_size=9)) + content[place + 3 :])
        with suppress(Unusable):  # what begins like a compressed file
            read(copy)


def test_a_thread_of_codex_itself_is_no_conversation(tmp_path):
    """Its request for a title, in versions that write a rollout for it."""
    made = Rollout(tmp_path / "sessions" / "rollout-2026-11-01T10-00-00-t-9.jsonl", "t-9", thread_source="thread_title")
    made.user("Generate a title")
    made.answer("Name the gate")

    assert said(made.path) == []

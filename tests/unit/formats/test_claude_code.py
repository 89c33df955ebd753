"""What of Claude Code's transcripts is stored, and as whose words."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.messages import Origin, Role
from wellkept.formats.claude_code import ClaudeCode
from wellkept.formats.port import START, Conversation, Kind, Left, Said, Spent, Unusable, find_source


def read(path):
    reading = ClaudeCode().open(path, START)
    try:
        return list(reading)
    finally:
        reading.close()


def said(path):
    return [(item.message.role.value, item.message.text) for item in read(path) if isinstance(item, Said)]


def test_a_real_transcript_gives_the_turns_and_nothing_else(corpus):
    """Rows of one message are one message; attachments, queue rows and the last prompt are left out."""
    (path,) = corpus.glob("claude-code/projects/*/5d380dff*.jsonl")

    assert said(path) == [
        ("user", "Remember that the deploy key lives in vault seven."),
        ("assistant", "Understood: Remember that the deploy key lives in vault seven."),
        ("user", "RUNTOOL please"),
        ("assistant", "Let me look."),
        ("tool", "hello-from-tool"),
        ("tool", "second"),
        ("assistant", "The tool answered. Done."),
    ]


def test_a_real_compaction_is_not_said_by_anybody(corpus):
    """The summary, the command and its output are left out; what follows is there."""
    (path,) = corpus.glob("claude-code/projects/*/f7492b84*.jsonl")
    texts = [text for _, text in said(path)]

    assert "After the compaction I like green tea." in texts
    assert not any("being continued" in text or ("compact" in text and "After" not in text) for text in texts)
    assert not any("No response requested" in text or "Continue from where" in text for text in texts)


def test_a_real_sub_agent_is_linked_to_its_parent(corpus):
    """Its id is the agent's, its parent the session's, and its prompt is nobody's words."""
    (path,) = corpus.glob("claude-code/projects/*/*/subagents/*.jsonl")
    items = read(path)
    conversation = next(item for item in items if isinstance(item, Conversation))
    prompt = next(item for item in items if isinstance(item, Said))

    assert conversation.kind is Kind.SUBAGENT
    assert conversation.external_id == f"{conversation.parent}/a2e280c8dafaaff7c"
    assert conversation.title == "Look around"
    assert prompt.origin is Origin.SYNTHETIC


def test_a_real_interactive_session_keeps_what_was_typed(corpus):
    """Prompts, a shell command, a prompt sent while the agent worked, after an interruption; and the given name."""
    (path,) = (corpus / "claude-code-interactive").glob("*.jsonl")
    items = read(path)
    facts = [item for item in items if isinstance(item, Conversation)]

    assert [text for role, text in said(path) if role == "user"] == [
        "My cat is called Biscuit.",
        "RUNTOOL now",
        "! echo hi",
        "And the parrot is called Quill.",
        "RUNSLOW please",
        "Use tabs instead of spaces.",
        "RUNSLOW again",
        "Thanks, that is all.",
    ]
    assert (facts[-1].title, facts[-1].kind) == ("holiday plan", Kind.PERSON)


def test_headless_sessions_are_marked(corpus):
    """The prompts of `claude -p` come from a program."""
    (path,) = corpus.glob("claude-code/projects/*/5d380dff*.jsonl")

    assert {item.kind for item in read(path) if isinstance(item, Conversation)} == {Kind.HEADLESS}


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ("Caveat: The messages below were generated", {}),
        ("<local-command-stdout>ok</local-command-stdout>", {}),
        ("<system-reminder>remember the todo list</system-reminder>", {}),
        ("<task-notification>done</task-notification>", {}),
        ("<command-name>/clear</command-name><command-args></command-args>", {}),
        ("[Request interrupted by user for tool use]", {}),
        ("Implement the following plan: …", {"planContent": "…"}),
        ("anything", {"isMeta": True}),
        ("anything", {"isCompactSummary": True}),
        ("anything", {"origin": {"kind": "task-notification"}}),
        ("anything", {"promptSource": "loop_wakeup"}),
        ("<memory-context>\nthe person likes tea\n</memory-context>", {}),
        ("<user-prompt-submit-hook>the person likes tea</user-prompt-submit-hook>", {}),
        ("Stop hook feedback:\nrun the tests", {}),
        ("<ide_opened_file>The user opened a.py</ide_opened_file>", {}),
        ("<teammate-message from='a'>go on</teammate-message>", {}),
        ("<bash-stdout>a.py</bash-stdout><bash-stderr></bash-stderr>", {}),
        ("This session is being continued from a previous conversation that ran out of context.", {}),
    ],
)
def test_what_machines_write_as_user_is_not_stored(rows, content, fields):
    """Reminders, hooks, commands, summaries and recalled memory are not what the person said."""
    rows.user(content, **fields)

    assert said(rows.path) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            [{"type": "text", "text": "<ide_selection>x = 1</ide_selection>"}, {"type": "text", "text": "Fix it"}],
            "Fix it",
        ),
        ("<system-reminder>a</system-reminder>Hello<system-reminder>b</system-reminder>", "Hello"),
        ("<command-name>/review</command-name><command-args>the parser</command-args>", "/review the parser"),
        ("<bash-input>git status</bash-input>", "! git status"),
        ("what does <system-reminder> mean?", "what does <system-reminder> mean?"),
        ("Hello\n<memory-context>\nthe person likes tea\n</memory-context>", "Hello"),
    ],
)
def test_what_the_person_typed_is_kept(rows, content, words):
    """Blocks that a client put around it are removed."""
    rows.user(content)

    assert said(rows.path) == [("user", words)]


def test_prompts_sent_while_the_agent_worked_are_kept(rows):
    """A queued command is the person's, a queued notification is not."""
    rows.row("attachment", attachment={"type": "queued_command", "prompt": "Use tabs", "commandMode": "prompt"})
    rows.row("attachment", attachment={"type": "queued_command", "prompt": "x", "commandMode": "task-notification"})
    rows.row("attachment", attachment={"type": "hook_additional_context", "content": ["the person likes tea"]})

    assert said(rows.path) == [("user", "Use tabs")]


def test_rows_of_one_message_are_one_message(rows):
    """Text, thinking and calls of one id are joined, and tokens are counted once."""
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    rows.answer({"type": "thinking", "thinking": "hm"}, id="m1")
    rows.answer("One", id="m1")
    rows.answer(call, id="m1")
    rows.answer(call, id="m1")
    items = read(rows.path)
    (message,) = [item for item in items if isinstance(item, Said)]

    assert (message.message.text, message.message.reasoning) == ("One", "hm")
    assert [(one.name, json.loads(one.arguments)) for one in message.message.tool_calls] == [
        ("Bash", {"command": "ls"})
    ]
    assert [item.usage.output_tokens for item in items if isinstance(item, Spent)] == [7]


def test_private_text_is_left_out_over_messages_and_blocks(rows):
    """A span may begin in one message and end in another; everything between is private."""
    rows.user("Hello <private>my pin")
    rows.answer("Your pin is 1234")
    rows.user("is 1234</private> and the weather?")
    rows.answer("Sunny")
    rows.user([{"type": "text", "text": "a <private>b"}, {"type": "text", "text": "c</private> d"}])
    texts = [text for _, text in said(rows.path)]

    assert texts == ["Hello", "and the weather?", "Sunny", "a  d"]


def test_the_answer_to_a_private_prompt_is_private(rows):
    """If nothing of a prompt may be stored, its answer would reveal it."""
    rows.user("<private>my salary is 5</private>")
    rows.answer("A salary of 5 is fine")
    rows.user("Thanks")
    rows.answer("Welcome")

    assert [text for _, text in said(rows.path)] == ["Thanks", "Welcome"]


def test_answers_of_kept_are_not_stored_again(rows):
    """The result of kept's own search is memory, and would be found as if it were new."""
    for name in ("mcp__plugin_kept_kept__session_search", "mcp__kept__memory_read", "Bash"):
        rows.answer({"type": "tool_use", "id": name, "name": name, "input": {}})
        rows.user([{"type": "tool_result", "tool_use_id": name, "content": "the person likes tea"}])
    results = [text for role, text in said(rows.path) if role == "tool"]

    assert results == ["[an answer of kept; not stored again]"] * 2 + ["the person likes tea"]


def test_images_are_named_by_their_hash(rows):
    """The bytes of an image are not stored."""
    source = {"type": "base64", "media_type": "image/png", "data": "QUJD" * 100}
    rows.user([{"type": "text", "text": "See [Image #1]"}, {"type": "image", "source": source}])
    ((_, text),) = said(rows.path)

    assert text.startswith("See [Image #1]\n[image image/png [binary: 300 bytes, sha256 ")
    assert "QUJD" not in text


def test_long_values_are_shortened(rows):
    """A tool's output of a megabyte is stored with its beginning and its end."""
    rows.user([{"type": "tool_result", "tool_use_id": "t", "content": f"first {'x' * 1_000_000} last"}])
    ((_, text),) = said(rows.path)

    assert len(text) < 25_000
    assert text.startswith("first")
    assert text.endswith("last")


def test_the_title_a_person_gave_wins(rows):
    """A custom title beats a generated one, the last wins."""
    rows.user("Hello")
    rows.row("ai-title", aiTitle="Generated")
    rows.row("custom-title", customTitle="Mine")
    rows.row("ai-title", aiTitle="Generated again")

    assert [item.title for item in read(rows.path) if isinstance(item, Conversation)][-1] == "Mine"


def test_unknown_rows_and_garbage_are_counted(rows):
    """Neither a new type nor a broken line ends the reading."""
    rows.row("brand-new-type", content={"deep": [1]})
    with rows.path.open("ab") as file:
        file.write(b"{not json\n\xff\xfe\n[1, 2]\n\n" + b"[" * 100_000 + b"\n")
    rows.user("Still here")
    items = read(rows.path)

    assert [item.message.text for item in items if isinstance(item, Said)] == ["Still here"]
    assert sum(isinstance(item, Left) for item in items) == 5
    assert [item.kind for item in items if isinstance(item, Left) and item.kind] == ["row 'brand-new-type'"]


def test_a_block_of_a_new_type_is_named_and_the_rest_is_read(rows):
    """The text beside it is stored."""
    rows.answer("Here it is", {"type": "hologram", "data": [1]})
    items = read(rows.path)

    assert [item.message.text for item in items if isinstance(item, Said)] == ["Here it is"]
    assert [item.kind for item in items if isinstance(item, Left)] == ["block 'hologram'"]


@given(st.data())
def test_no_damage_raises(data):
    """Cut, reordered, doubled and corrupted rows are read without an error."""
    folder = Path(__file__).parents[2] / "corpora" / "transcripts" / "claude-code"
    (path,) = folder.glob("projects/*/f7492b84*.jsonl")
    lines = path.read_bytes().split(b"\n")
    order = data.draw(st.permutations(range(len(lines)))) if data.draw(st.booleans()) else range(len(lines))
    content = b"\n".join(lines[place] for place in order)
    place = data.draw(st.integers(0, len(content)))
    broken = content[:place] + data.draw(st.binary(max_size=20)) + content[place + data.draw(st.integers(0, 50)) :]
    import tempfile

    with tempfile.TemporaryDirectory() as where:
        copy = Path(where) / "x.jsonl"
        copy.write_bytes(broken[: data.draw(st.integers(0, len(broken)))])
        for item in read(copy):
            assert not isinstance(item, Said) or item.message.role in Role


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_no_shape_of_a_field_raises(data):
    """A field of another type than expected costs its row, not the file."""
    import tempfile

    folder = Path(__file__).parents[2] / "corpora" / "transcripts"
    for client, pattern in (("claude-code", "projects/*/f7492b84*.jsonl"), ("codex", "sessions/**/*.jsonl")):
        (path,) = (folder / client).glob(pattern)
        rows = [json.loads(line) for line in path.open()]
        row = data.draw(st.sampled_from(rows))
        place = row.get("payload") if isinstance(row.get("payload"), dict) and data.draw(st.booleans()) else row
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON_VALUES)
        with tempfile.TemporaryDirectory() as where:
            copy = Path(where) / "x.jsonl"
            copy.write_text("".join(json.dumps(one) + "\n" for one in rows))
            reading = find_source(client).open(copy, START)
            assert sum(isinstance(item, Said) for item in reading) > 0
            assert reading.position().offset > 0
            reading.close()


def test_a_purpose_that_cannot_be_read_for_now_stops_the_transcript(tmp_path):
    """A disk error or too many open files: the next import reads the conversation with its purpose."""
    transcript = tmp_path / "agent-1.jsonl"
    transcript.write_text("")
    transcript.with_suffix(".meta.json").symlink_to("agent-1.meta.json")  # a loop: neither missing nor forbidden

    with pytest.raises(Unusable, match=r"agent-1.meta.json"):
        read(transcript)

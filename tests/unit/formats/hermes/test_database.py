"""What of Hermes' database is stored: every version, each message once, and as the person's words only theirs."""

import json

import pytest

from wellkept.core.errors import Refused
from wellkept.core.messages import Link

CALL = [{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}]


@pytest.mark.parametrize("version", [9, 17, 22, 99])
def test_every_version_of_the_schema_is_read(make_hermes, run, sessions, version):
    """Only columns that exist are asked for, and unknown ones do not matter."""
    home = make_hermes(version=version)
    home.session(title="Trip to Rome", ended_at=home.now + 99)
    home.say("user", "Book a train to Rome.")
    home.say("assistant", "I look.", tool_calls=CALL, reasoning="trains first", token_count=7)
    home.say("tool", "9:40 from platform 3", tool_call_id="c1", tool_name="terminal")
    home.say("assistant", "There is one at 9:40.")
    report = run(home.path)
    ((session, messages),) = sessions()

    assert report.messages == {"user": 1, "assistant": 2, "tool_calls": 1, "tool_results": 1}
    assert (session.title, session.model) == ("Trip to Rome", "loop-model")
    assert [one.message.text for one in messages] == [
        "Book a train to Rome.", "I look.", "9:40 from platform 3", "There is one at 9:40.",
    ]  # fmt: skip
    assert messages[1].message.reasoning == "trains first"
    assert json.loads(messages[1].message.tool_calls[0].arguments) == {"command": "ls"}
    assert (messages[2].message.tool_name, messages[1].token_count) == ("terminal", 7)
    assert messages[0].timestamp == 1_790_000_010.0
    assert report.problems == ()


def test_a_second_import_adds_nothing_and_a_grown_one_only_what_is_new(hermes, run, spoken):
    """The position is the last message, and ids decide."""
    hermes.session()
    hermes.say("user", "First question")
    hermes.say("assistant", "First answer")
    first, second = run(hermes.path), run(hermes.path)
    hermes.say("user", "Second question")
    hermes.session("s2")
    hermes.say("user", "Elsewhere", "s2")
    third = run(hermes.path)

    assert (first.sessions["new"], second.sessions["new"], second.messages["user"]) == (1, 0, 0)
    assert (third.sessions["new"], third.sessions["updated"], third.messages["user"]) == (1, 1, 2)
    assert [text for _, text in spoken()] == ["First question", "First answer", "Second question", "Elsewhere"]


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        ("[ASYNC DELEGATION BATCH COMPLETE — deleg_1]\nA background fan-out has finished.", None),
        ("[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted.", None),
        ("[CONTEXT SUMMARY]: they talked about tea", None),
        ("[CONTEXT COMPACTION] old\n--- END OF CONTEXT SUMMARY — respond below ---\nAnd now?", "And now?"),
        ("[System note: the model was switched to x]\n\nGo on with the tea", "Go on with the tea"),
        ("[SYSTEM: Background process proc_1 finished with exit code 0]", None),
        ("<memory-context>\nThe user likes tea.\n</memory-context>\nWhat do I like?", "What do I like?"),
        (
            '[IMPORTANT: The user has invoked the "tea-making" skill, which they want.]\n\n# Tea\n\nThe user has the following instruction alongside the skill invocation: green tea',
            "/tea-making green tea",
        ),
        ('[SYSTEM: The user has invoked the "tea-making" skill, loaded below.]\n\n# Tea', None),
        ("[1] is a footnote", "[1] is a footnote"),
        ("IMPORTANT: buy milk", "IMPORTANT: buy milk"),
        ("my <private>pin is 1234</private> is safe", "my  is safe"),
    ],
)
def test_only_what_a_person_typed_is_the_persons(hermes, run, spoken, content, stored):
    """Notes, results of sub-agents, summaries and skills arrive as user messages, and are nobody's words."""
    hermes.session()
    hermes.say("user", "Hello there")
    hermes.say("assistant", "Hi")
    hermes.say("user", content)
    run(hermes.path)

    assert [text for who, text in spoken() if who == "person"] == ["Hello there", *([stored] if stored else [])]


def test_a_steering_message_is_taken_out_of_the_result_of_a_tool(hermes, run, spoken):
    """Hermes appends what the person writes meanwhile to the output of the running tool."""
    steering = (
        "\n\n[OUT-OF-BAND USER MESSAGE — direct, mid-turn; not tool output]\nthe blue one\n[/OUT-OF-BAND USER MESSAGE]"
    )
    hermes.session()
    hermes.say("user", "Buy a car")
    hermes.say("assistant", "Looking.", tool_calls=CALL)
    hermes.say("tool", "42 cars" + steering, tool_call_id="c1", tool_name="terminal")
    run(hermes.path)

    assert spoken() == [("person", "Buy a car"), ("model", "Looking."), ("tool", "42 cars"), ("person", "the blue one")]


def test_prompts_of_machines_are_not_the_persons(hermes, run, sessions):
    """Cron jobs are headless, their prompts nobody's; a sub-agent is linked to its parent."""
    hermes.session("job", source="cron")
    hermes.say("user", "[IMPORTANT: You are running as a scheduled cron job. Deliver.]\n\nTell the news", "job")
    hermes.say("assistant", "No news", "job")
    hermes.session("main")
    hermes.say("user", "Delegate it", "main")
    hermes.session("sub", source="subagent", model_config={"_delegate_from": "main"}, parent_session_id="main")
    hermes.say("user", "Say what you see.", "sub")
    run(hermes.path)
    (job, said), (main, _), (sub, told) = sessions()

    assert (job.metadata["headless"], [one.origin.value for one in said]) == (True, ["synthetic", "model"])
    assert said[0].message.text == "Tell the news"
    assert (sub.parent_session_id, sub.link, sub.source) == (main.id, Link.DELEGATE, "subagent")
    assert told[0].origin.value == "synthetic"


def test_withdrawn_and_overheard_messages_are_left_out(hermes, run, spoken):
    """Undone turns are inactive and were not compacted; what others said in a group was not addressed to the agent."""
    hermes.session()
    hermes.say("user", "Undone", active=0, compacted=0)
    hermes.say("user", "Summarised away but real", active=0, compacted=1)
    hermes.say("user", "Chatter", observed=1)
    hermes.say("user", "Still here")
    report = run(hermes.path)

    assert [text for _, text in spoken()] == ["Summarised away but real", "Still here"]
    assert report.left == {"withdrawn": 1, "not addressed": 1}


def test_a_turn_that_is_undone_after_an_import_is_withdrawn_here(hermes, run, caller, sessions):
    """The next import rewinds it, and keeps what came before."""
    hermes.session()
    hermes.say("user", "Keep this")
    undone = hermes.say("user", "Undo this")
    run(hermes.path)
    hermes.change("UPDATE messages SET active = 0 WHERE id = ?", undone)
    hermes.say("user", "Instead this")
    run(hermes.path)
    ((session, _),) = sessions()

    context = [one.message.text for one in caller.space.sessions.context(session.id)]
    assert context == ["Keep this", "Instead this"]


def test_messages_that_a_compaction_wrote_again_are_stored_once(hermes, run, spoken):
    """Compacted rows stay, the context is written again behind them, twice when it is compacted twice."""
    hermes.session()
    texts = ["Plant a tree", "Done", "continue", "Watered", "continue", "Grown"]
    for place, text in enumerate(texts):
        hermes.say("assistant" if place % 2 else "user", text, active=0, compacted=1)
    for state in ({"active": 0, "compacted": 1}, {"active": 1}):
        hermes.say("user", "Plant a tree", **state)
        hermes.say("assistant", "[CONTEXT COMPACTION] summary", after=0.000001, **state)
        hermes.say("user", "continue", after=0.000001, **state)
        hermes.say("assistant", "Grown", after=0.000001, **state)
    hermes.say("user", "continue")
    hermes.say("assistant", "Fruit")
    run(hermes.path)

    assert [text for _, text in spoken()] == [*texts, "continue", "Fruit"]


def test_a_compressed_session_continues_in_its_child(hermes, run, sessions):
    """Lineage is kept; the summary and the copied messages are left out."""
    hermes.session("old", end_reason="compression", cwd="/home/sam/garden")
    for text in ("Plant a tree", "Water it"):
        hermes.say("user", text, "old")
        hermes.say("assistant", f"{text}: done", "old")
    hermes.session("new", parent_session_id="old")
    hermes.say("user", "Plant a tree", "new")
    hermes.say("user", "[CONTEXT COMPACTION] they planted", "new", after=0.01)
    hermes.say("assistant", "Water it: done", "new", after=0.01)
    hermes.say("user", "And harvest", "new")
    run(hermes.path)
    (old, _), (new, messages) = sessions()

    assert (new.parent_session_id, new.link, new.project) == (old.id, Link.COMPRESSION, "/home/sam/garden")
    assert [one.message.text for one in messages] == ["And harvest"]


def test_a_branch_shares_the_copied_messages_with_its_parent(hermes, run, caller, sessions):
    """Copies have new ids, and prompts that were not answered separately are joined in them."""
    hermes.session("main", end_reason="branched")
    hermes.say("user", "My dog is called Rex.", "main")
    hermes.say("user", "And he barks.", "main", after=0.3)
    hermes.say("assistant", "Noted", "main")
    hermes.session("side", model_config={"_branched_from": "main"}, parent_session_id="main")
    hermes.say("user", "My dog is called Rex.\n\nAnd he barks.", "side")
    hermes.say("assistant", "Noted", "side", after=0.01)
    hermes.say("user", "On the branch", "side")
    hermes.say("user", "After the branch", "main")
    run(hermes.path)
    (main, said), (side, _) = sessions()

    assert (side.parent_session_id, side.link) == (main.id, Link.BRANCH)
    assert [one.message.text for one in caller.space.sessions.context(side.id)] == [
        "My dog is called Rex.", "And he barks.", "Noted", "On the branch",
    ]  # fmt: skip
    assert len(said) == 4


def test_tokens_are_counted_once(hermes, run, caller, sessions):
    """Counts are sums per session and model: what was counted is subtracted when the session continues."""
    hermes.session(input_tokens=900, output_tokens=90)
    hermes.say("user", "Question")
    hermes.insert(
        "session_model_usage", session_id="s1", model="big", input_tokens=100, output_tokens=10, cache_read_tokens=5
    )
    hermes.insert("session_model_usage", session_id="s1", model="big", task="title", input_tokens=20, output_tokens=2)
    hermes.insert("session_model_usage", session_id="s1", model="small", input_tokens=7, output_tokens=1)
    run(hermes.path)
    run(hermes.path)
    hermes.change("UPDATE session_model_usage SET input_tokens = 150 WHERE model = 'big' AND task = ''")
    hermes.say("user", "Another")
    run(hermes.path)
    ((session, _),) = sessions()

    counted = [row.usage for row in caller.space.sessions.usage(session_id=session.id)]
    assert sum(one.input_tokens for one in counted) == 177
    assert sum(one.cache_read_tokens for one in counted) == 5


def test_tokens_of_older_versions_are_those_of_the_session(make_hermes, run, caller, sessions):
    """Before there were counts per model, the session had them."""
    home = make_hermes(version=17)
    home.session(input_tokens=30, output_tokens=3)
    home.say("user", "Question")
    run(home.path)
    ((session, _),) = sessions()

    (row,) = caller.space.sessions.usage(session_id=session.id)
    assert (row.usage.input_tokens, row.usage.output_tokens) == (30, 3)


def test_profiles_are_read_each_with_its_own_sessions(make_hermes, run, sessions):
    """The same id in two profiles is two sessions."""
    for name in ("hermes", "hermes/profiles/work"):
        home = make_hermes(name)
        home.session("same")
        home.say("user", f"Said in {name}", "same")
    run(home.path.parent.parent)

    assert sorted(one.message.text for _, messages in sessions() for one in messages) == [
        "Said in hermes", "Said in hermes/profiles/work",
    ]  # fmt: skip


def test_images_are_placeholders(hermes, run, spoken):
    """Multimodal content is JSON behind a prefix."""
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    hermes.session()
    hermes.say("user", "\x00json:" + json.dumps(parts))
    run(hermes.path)

    ((who, text),) = spoken()
    assert (who, text.splitlines()[0], text.splitlines()[1][:17]) == ("person", "What is this?", "[image image/png ")


def test_the_source_is_not_changed(hermes, run):
    """The database, locked by its writer, is read from a copy."""
    hermes.session()
    hermes.say("user", "Hello")
    before = {path: path.read_bytes() for path in hermes.path.iterdir() if path.suffix != ".db-shm"}
    hermes.connection.execute("BEGIN EXCLUSIVE")
    report = run(hermes.path)

    assert report.messages["user"] == 1
    assert {path: path.read_bytes() for path in before} == before


def test_a_damaged_database_gives_what_can_be_read(hermes, run, spoken):
    """The rest is a problem in the report; a database that was repaired meanwhile gives the rest."""
    hermes.session()
    for number in range(300):
        hermes.say("user", f"message {number} " * 30)
    hermes.change("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = hermes.database.read_bytes()
    at = len(whole) // 2 // 4096 * 4096
    hermes.database.write_bytes(whole[:at] + b"\xa5" * 4096 + whole[at + 4096 :])
    report = run(hermes.path)
    saved = len(spoken())
    hermes.database.write_bytes(whole)

    assert 250 < saved < 300
    assert "damaged" in report.problems[0][1]
    run(hermes.path)
    assert len(spoken()) == 300


def test_what_is_no_database_of_hermes_is_a_problem(tmp_path, caller, run):
    """Garbage and the tables of another program."""
    from wellkept.connect.capture import capture_transcript

    garbage = tmp_path / "hermes" / "state.db"
    garbage.parent.mkdir()
    garbage.write_bytes(b"x" * 5_000)

    assert isinstance(capture_transcript(caller, "hermes", garbage), Refused)
    assert len(run(garbage.parent).problems) == 1

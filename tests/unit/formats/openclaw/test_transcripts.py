"""What of OpenClaw's sessions is stored: files and databases of all eras, and as the person's words only theirs."""

import json

import pytest

from wellkept.core.messages import Link

CALL = {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "ls"}}


def talk(entries, session=None):
    made = entries(session)
    made.user("Book a train to Rome.")
    made.answer({"type": "thinking", "thinking": "trains"}, "I look.", CALL)
    made.result("9:40")
    made.answer("There is one at 9:40.")
    return made


UNTRUSTED = '(untrusted metadata):\n```json\n{"name": "Ada"}\n```'
SPOKEN = [
    ("person", "Book a train to Rome."),
    ("model", "I look."),
    ("tool", "9:40"),
    ("model", "There is one at 9:40."),
]


@pytest.mark.parametrize("era", ["file", "reset", "topic", "packed", "flat", 7, 23, "packed rows"])
def test_every_era_is_read(openclaw, entries, run, spoken, sessions, pack, era):
    """Files, former sessions, topics, compressed files, the oldest layout, and the databases."""
    made = talk(entries)
    path = openclaw.file(made)
    match era:
        case "reset":
            path.rename(f"{path}.reset.2026-06-26T01-02-03.456Z")
        case "topic":
            path.rename(path.with_name(f"{made.session}-topic-4.jsonl"))
        case "packed":
            openclaw.write(f"agents/main/sessions/{made.session}.jsonl.reset.2026.zst", pack(made.lines.encode()))
            path.unlink()
        case "flat":
            openclaw.write(f"sessions/{made.session}.jsonl", made.lines)
            path.unlink()
        case 7 | 23:
            path.unlink()
            openclaw.database(made, version=era).close()
        case "packed rows":
            path.unlink()
            openclaw.database(made, pack=pack).close()
    first, second = run(), run()
    ((session, messages),) = sessions()

    assert spoken() == SPOKEN
    assert (first.sessions["new"], second.messages["user"], first.problems) == (1, 0, ())
    assert (session.model, session.project) == ("claude-opus-4-5", "/home/sam/.openclaw/workspace")
    assert messages[0].timestamp == 1_782_432_120.0
    assert messages[1].message.reasoning == "trains"
    assert json.loads(messages[1].message.tool_calls[0].arguments) == {"command": "ls"}


def test_files_and_the_database_that_they_were_moved_to_are_stored_once(openclaw, entries, run, spoken):
    """Entries have the same ids in both."""
    made = talk(entries)
    openclaw.file(made)
    run()
    made.user("And back?")
    openclaw.database(made).close()
    report = run()

    assert report.messages["user"] == 1
    assert spoken() == [*SPOKEN, ("person", "And back?")]


def test_copies_traces_and_deleted_sessions_are_not_read(openclaw, entries, run, spoken):
    """Checkpoints and backups are copies; what a person deleted stays deleted."""
    for suffix in (".deleted.2026-06-26", ".bak.2026", ".bak-77-1782", ".lock"):
        openclaw.file(talk(entries), suffix)
    made = talk(entries)
    for name in (f"{made.session}.checkpoint.abc.jsonl", f"{made.session}.trajectory.jsonl"):
        openclaw.write(f"agents/main/sessions/{name}", made.lines)
    openclaw.database(version=1).close()
    report = run()

    assert (spoken(), report.problems) == ([], ())


def test_archived_sessions_of_the_database_are_read(openclaw, entries, run, spoken, add, pack):
    """Those that were reset or put aside, compressed or not; not those that were deleted."""
    kept, cold, aside, gone = (talk(entries) for _ in range(4))
    connection = openclaw.database()
    table = "session_transcript_archives"
    for made, reason, blob in ((kept, "reset", kept.lines.encode()), (gone, "deleted", gone.lines.encode())):
        add(
            connection,
            table,
            session_id=made.session,
            reason=reason,
            encoding="identity",
            archive_blob=blob,
            archive_name=made.session,
            created_at=1,
        )
    table = "session_transcript_cold_archives"
    add(
        connection,
        table,
        session_id=cold.session,
        archive_name="a.zst",
        archived_at=2,
        storage="sqlite",
        archive_blob=pack(cold.lines.encode()),
    )
    add(connection, table, session_id=aside.session, archive_name="b.jsonl.zst", archived_at=2, storage="file")
    add(connection, table, session_id="lost", archive_name="c.zst", archived_at=2, storage="file")
    openclaw.write("agents/main/sessions/cold/b.jsonl.zst", pack(aside.lines.encode()))
    report = run()
    connection.close()

    assert spoken() == SPOKEN * 3
    assert [("c.zst" in where, "cannot be read" in what) for where, what in report.problems] == [(True, True)]


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        ("[Fri 2026-06-26 19:40 UTC] Feed the cat", "Feed the cat"),
        ("[Telegram Ada id:123 +5m 2026-01-05 10:00 UTC] Feed the cat\n[message_id: 77]", "Feed the cat"),
        (f"Conversation info {UNTRUSTED}\n\nSender {UNTRUSTED}\n\nFeed the cat", "Feed the cat"),
        ("System: [2026-06-26 19:40:00 UTC] Feishu[main] DM from ou_1: Feed the cat\n\nFeed the cat", "Feed the cat"),
        ("[Queued messages while agent was busy]\n\n---\nQueued #1\nFeed the cat\n\n---\nQueued #2\nand the dog",
         "Feed the cat\nand the dog"),
        ("<relevant-memories>\nThe cat is Miezi\n</relevant-memories>\nFeed the cat", "Feed the cat"),
        ("[OpenClaw heartbeat poll]", None),
        ("Read HEARTBEAT.md if it exists. Follow it strictly.", None),
        ("[Subagent Context] You are running as a subagent", None),
        ("[System Message] [sessionId: 1] A subagent task just completed", None),
        ("[Inter-session message] sourceSession=agent:main:main\nhello", None),
        ("[cron:123 news] Tell the news", None),
        ("[Bootstrap pending] Read BOOTSTRAP.md", None),
        ("A new session was started via /new or /reset. Greet the user.", None),
        ("Pre-compaction memory flush. Store durable memories now.", None),
        ("[2] is a footnote, see 2026-01-01", "[2] is a footnote, see 2026-01-01"),
    ],
)  # fmt: skip
def test_only_what_a_person_typed_is_the_persons(openclaw, entries, run, spoken, content, stored):
    """Time, sender and channel are wrapped around it; heartbeats, cron and other sessions write as the user."""
    made = entries()
    made.user("Hello")
    made.user(content)
    openclaw.file(made)
    run()

    assert spoken() == [("person", "Hello"), *([("person", stored)] if stored else [])]


def test_messages_that_say_that_a_machine_sent_them_are_left_out(openclaw, entries, run, spoken):
    """Newer versions say where a message comes from."""
    made = entries()
    made.user("Hello")
    made.user("Check the oven", provenance={"kind": "internal_system", "sourceTool": "heartbeat"})
    made.user("From another session", provenance={"kind": "inter_session"})
    made.user("Mine", provenance={"kind": "external_user"})
    openclaw.file(made)
    run()

    assert spoken() == [("person", "Hello"), ("person", "Mine")]


def test_silence_errors_and_mirrors_are_left_out(openclaw, entries, run, spoken):
    """The words for silence, empty answers with an error, and rows that repeat what a channel was sent."""
    made = entries()
    made.user("Hello")
    made.answer("[[reply_to_current]] Hi")
    made.answer("Hi", provider="openclaw", model="delivery-mirror", usage={})
    for text in ("HEARTBEAT_OK", "NO_REPLY", "**HEARTBEAT_OK**"):
        made.answer(text)
    made.answer(stopReason="error", errorMessage="overloaded")
    made.add("compaction", summary="They said hello", firstKeptEntryId="x")
    made.add("custom_message", customType="openclaw.runtime-context", content="ctx")
    made.add("a_type_of_tomorrow", payload=[1])
    openclaw.file(made)
    report = run()

    assert spoken() == [("person", "Hello"), ("model", "Hi")]
    assert report.left == {"copy": 1, "silence": 3, "error": 1, "no message": 2, "unknown row": 1}
    assert report.unknown == {"row 'a_type_of_tomorrow'": 1}


def test_keys_say_who_led_a_session(openclaw, entries, run, sessions):
    """Sub-agents are linked to their parent, cron is headless; labels are titles; channels are kept."""
    main, sub, cron, group = (entries() for _ in range(4))
    main.user("Please delegate")
    sub.user("[Subagent Context] You are running as a subagent\n\nCount the trees")
    cron.user("[cron:1 news] Tell the news")
    cron.answer("No news")
    group.user('Sender (untrusted metadata):\n```json\n{"name": "Ada"}\n```\n\nLunch?')
    for made in (main, sub, cron, group):
        openclaw.file(made)
    openclaw.index(
        {
            "agent:main:main": {"sessionId": main.session, "label": "Trees", "updatedAt": 1},
            "agent:main:subagent:9": {"sessionId": sub.session, "spawnedBy": "agent:main:main"},
            "agent:main:cron:1": {"sessionId": cron.session},
            "agent:main:discord:channel:5": {"sessionId": group.session, "displayName": "#lunch"},
        }
    )
    run()
    found = {session.metadata["route"]: (session, messages) for session, messages in sessions()}
    parent, child = found["agent:main:main"][0], found["agent:main:subagent:9"][0]

    assert parent.title == "Trees"
    assert (child.parent_session_id, child.link, child.source) == (parent.id, Link.DELEGATE, "subagent")
    assert [one.origin.value for one in found["agent:main:subagent:9"][1]] == ["synthetic"]
    assert found["agent:main:cron:1"][0].metadata["headless"] is True
    assert [one.origin.value for one in found["agent:main:cron:1"][1]] == ["synthetic", "model"]
    assert found["agent:main:discord:channel:5"][0].metadata["channel"] == "discord"
    assert [one.message.text for one in found["agent:main:discord:channel:5"][1]] == ["Ada: Lunch?"]


def test_sessions_of_the_database_have_titles_and_parents(openclaw, entries, run, sessions, add):
    """The lists are tables there."""
    main, sub, fork = talk(entries), entries(), entries()
    sub.user("Count the trees")
    fork.rows[1:] = main.rows[1:3]
    fork.minute = 30
    fork.user("On the fork", after=main.rows[2]["id"])
    connection = openclaw.database(main, sub, fork)
    for key, made, more in (
        ("agent:main:main", main, {"label": "Rome"}),
        ("agent:main:subagent:9", sub, {"spawned_by": "agent:main:main"}),
        ("agent:main:fork", fork, {}),
    ):
        add(connection, "session_nodes", session_key=key, current_session_id=made.session, entry_json="{}", **more)
        reason = {"reason": "fork", "previous_session_id": main.session} if made is fork else {}
        add(connection, "session_windows", session_id=made.session, session_key=key, **reason)
    run()
    connection.close()
    found = {session.metadata["route"]: (session, messages) for session, messages in sessions()}
    parent = found["agent:main:main"][0]

    assert parent.title == "Rome"
    assert found["agent:main:subagent:9"][0].parent_session_id == parent.id
    forked, messages = found["agent:main:fork"]
    assert (forked.parent_session_id, forked.link) == (parent.id, Link.BRANCH)
    assert [one.message.text for one in messages] == ["On the fork"]


def test_all_agents_are_read(openclaw, entries, run, sessions):
    """An id that somebody chose can be the same in two agents."""
    for agent in ("main", "work"):
        made = entries("notes")
        made.user(f"Said to {agent}")
        openclaw.file(made, agent=agent)
    run()

    assert sorted((one.metadata["agent"], messages[0].message.text) for one, messages in sessions()) == [
        ("main", "Said to main"), ("work", "Said to work"),
    ]  # fmt: skip


@pytest.mark.parametrize("is_database", [False, True])
def test_a_reset_inside_a_session_begins_a_new_conversation(openclaw, entries, run, sessions, is_database):
    """Newer versions keep the session and write a reset."""
    made = entries()
    made.user("Old talk")
    made.add("reset", reason="new")
    made.user("New talk")
    openclaw.database(made).close() if is_database else openclaw.file(made)
    run()
    made.user("More of the new talk")
    openclaw.database(made).close() if is_database else openclaw.file(made)
    run()

    assert [[one.message.text for one in messages] for _, messages in sessions()] == [
        ["Old talk"], ["New talk", "More of the new talk"],
    ]  # fmt: skip


@pytest.mark.parametrize("in_steps", [False, True])
def test_turns_of_an_abandoned_branch_are_withdrawn(openclaw, entries, run, caller, sessions, in_steps):
    """The branch that the last entry belongs to counts, whenever it is read."""
    made = entries()
    start = made.user("First")
    made.user("Wrong turn")
    made.answer("Wrong answer")
    openclaw.file(made)
    if in_steps:
        run()
    made.user("Right turn", after=start)
    made.answer("Right answer")
    openclaw.file(made)
    run()
    ((session, _),) = sessions()

    context = [one.message.text for one in caller.space.sessions.context(session.id)]
    assert context == ["First", "Right turn", "Right answer"]


def test_tokens_are_counted_once_per_call(openclaw, entries, run, caller, sessions):
    """Again after a second import, after the file became a former session, and in a fork."""
    made = talk(entries)
    path = openclaw.file(made)
    run()
    fork = entries(parentSession=f"/somewhere/{made.session}.jsonl")
    fork.rows[1:] = made.rows[1:]
    fork.minute = 50
    fork.answer("Third", after=made.last)
    openclaw.file(fork)
    path.rename(f"{path}.reset.2026")
    run()

    counted = [row.usage for session, _ in sessions() for row in caller.space.sessions.usage(session_id=session.id)]
    assert sum(one.output_tokens for one in counted) == 30
    assert sum(one.cache_read_tokens for one in counted) == 9


def test_broken_lines_are_counted_and_a_cut_one_waits(openclaw, entries, run, spoken):
    """A header that is missing, garbage in the middle, and the last line half written."""
    made = talk(entries)
    lines = made.lines.splitlines()[1:]
    lines[1:1] = ["{broken", "[]", '{"type": 5}', '{"type": "message", "message": {"role": "user", "content": 7}}', ""]
    whole = "\n".join(lines)
    path = openclaw.write(f"agents/main/sessions/{made.session}.jsonl", whole[:-40])
    first = run()
    path.write_text(whole + "\n")
    run()

    assert spoken() == SPOKEN
    assert first.left["broken line"] == 2


def test_a_damaged_database_gives_what_can_be_read(openclaw, entries, run, spoken):
    """The rest is a problem in the report."""
    made = entries()
    for number in range(300):
        made.user(f"message {number} " * 30)
    connection = openclaw.database(made)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    path = openclaw.path / "agents/main/agent/openclaw-agent.sqlite"
    whole = path.read_bytes()
    at = len(whole) // 2 // 4096 * 4096
    path.write_bytes(whole[:at] + b"\xa5" * 4096 + whole[at + 4096 :])
    report = run()

    assert 250 < len(spoken()) < 300
    assert "damaged" in report.problems[0][1]
    path.write_bytes(whole)
    run()
    assert len(spoken()) == 300


def test_a_database_is_followed_while_it_grows(openclaw, entries, caller, spoken):
    """As a file is."""
    from wellkept import imports

    made = talk(entries)
    openclaw.database(made).close()
    watch = imports.run.Watch(caller, ["openclaw"], openclaw.path)
    first, idle = watch.step(), watch.step()
    made.user("And back?")
    openclaw.database(made).close()

    assert [added for _, _, added in (*first, *idle, *watch.step())] == [4, 1]
    assert spoken()[-1] == ("person", "And back?")


def test_a_sub_agent_is_linked_to_the_session_that_started_it(openclaw, entries, run, sessions):
    """After a reset the key of its parent leads to a newer session, which is not its parent."""
    sub, newer = entries(), entries()
    sub.user("[Subagent Context] Count the trees")
    newer.user("Something else")
    for made in (sub, newer):
        openclaw.file(made)
    openclaw.index(
        {
            "agent:main:main": {"sessionId": newer.session, "sessionStartedAt": 2_000},
            "agent:main:subagent:9": {
                "sessionId": sub.session,
                "spawnedBy": "agent:main:main",
                "sessionStartedAt": 1_000,
            },
        }
    )
    run()

    assert [one.parent_session_id for one, _ in sessions() if one.source == "subagent"] == [None]

"""Capture: each turn once, from the stored position, whatever happens to file and process."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from wellkept import imports, operations
from wellkept.app import open_app
from wellkept.connect.capture import (
    Captured,
    capture_transcript,
    capture_turn,
    drain_spool,
    find_session,
    prune_captures,
    report_captures,
)
from wellkept.connect.status import read_status
from wellkept.core.errors import Refused
from wellkept.core.ids import SessionId, UserId
from wellkept.core.messages import Session
from wellkept.core.search import SearchRequest

KEY = "sk-ant-" + "a1B2c3D4" * 4


def capture(caller, path, **options):
    done = capture_transcript(caller, "claude-code", Path(path), **options)
    assert isinstance(done, Captured), done
    return done


def texts(caller, source="claude-code"):
    store = caller.space.sessions
    found = sorted(store.recent(limit=100, source=source), key=lambda session: session.started)
    return [message.message.text for session in found for message in store.messages(session.id)]


def test_a_transcript_is_stored_once(caller, rows):
    """A second capture adds nothing, a grown file only what is new."""
    rows.user("One")
    rows.answer("First")
    first = capture(caller, rows.path)
    again = capture(caller, rows.path)
    rows.user("Two")
    rows.answer("Second")
    grown = capture(caller, rows.path)

    assert (first.added, again.added, grown.added) == (2, 0, 2)
    assert texts(caller) == ["One", "First", "Two", "Second"]
    assert first.session_id == grown.session_id == find_session(caller, "claude-code", rows.session)


def test_facts_of_the_conversation_are_kept(caller, rows):
    """Project, model, title, dates and tokens are those of the source."""
    rows.user("One")
    rows.answer("First")
    rows.row("ai-title", aiTitle="About one")
    done = capture(caller, rows.path)
    session = caller.space.sessions.session(done.session_id)

    assert (session.source, session.project, session.model) == ("claude-code", "/home/sam/project", "claude-opus-4-8")
    assert session.title == "About one"
    assert session.id.startswith("20261101_100001_")
    (usage,) = caller.space.sessions.usage(session_id=session.id)
    assert (usage.day, usage.task, usage.usage.output_tokens) == ("2026-11-01", "claude-code", 7)


def test_the_facts_of_a_salvaged_session_come_back(caller, rows):
    """A repair knows a session whose row was lost only by its messages; reading its transcript again tells the rest."""
    rows.user("One")
    rows.answer("First")
    rows.row("ai-title", aiTitle="About one")
    store, session_id = caller.space.sessions, capture(caller, rows.path).session_id
    before = store.session(session_id)
    with caller.database.writing() as unit:
        unit.execute("UPDATE sessions SET source = 'salvaged', project = NULL, title = NULL, metadata = '{}'", ())
    rows.user("Two")

    capture(caller, rows.path)

    after = store.session(session_id)
    assert (after.source, after.project, after.metadata) == (before.source, before.project, before.metadata)


def test_a_title_that_a_person_chose_stays(caller, rows):
    """The source may rename its conversation until a person does."""
    rows.user("One")
    rows.row("ai-title", aiTitle="First title")
    done = capture(caller, rows.path)
    rows.row("ai-title", aiTitle="Better title")
    capture(caller, rows.path)
    better = caller.space.sessions.session(done.session_id).title
    caller.space.sessions.rename(done.session_id, "Mine")
    rows.row("ai-title", aiTitle="Best title")
    capture(caller, rows.path)

    assert better == "Better title"
    assert caller.space.sessions.session(done.session_id).title == "Mine"


def test_a_message_that_grew_takes_the_place_of_its_first_form(caller, rows):
    """Rows of one message that come after a capture belong to the same message."""
    rows.user("One")
    rows.answer({"type": "thinking", "thinking": "hm"}, "Let me", id="m1")
    capture(caller, rows.path)
    rows.answer(" look.", id="m1")
    done = capture(caller, rows.path)

    assert (done.added, done.replaced) == (0, 1)
    assert texts(caller) == ["One", "Let me\n look."]
    assert caller.space.sessions.session(done.session_id).message_count == 2


def test_a_line_that_is_still_written_waits(caller, rows):
    """Cut in the middle of a character, the line is read when it is whole."""
    rows.user("One")
    rows.user("Zwölf Bäume")
    whole = rows.path.read_bytes()
    cut = whole.index("ö".encode()) + 1
    rows.path.write_bytes(whole[:cut])
    first = capture(caller, rows.path)
    rows.path.write_bytes(whole)
    second = capture(caller, rows.path)

    assert (first.added, second.added) == (1, 1)
    assert first.waiting_bytes > 0 == second.waiting_bytes
    assert texts(caller) == ["One", "Zwölf Bäume"]


def test_a_rewritten_or_moved_file_is_read_again_without_duplicates(caller, rows):
    """The position is checked; ids decide what is new."""
    for number in range(5):
        rows.user(f"Prompt {number}")
    capture(caller, rows.path)
    lines = rows.path.read_text().splitlines()
    rows.path.write_text("\n".join([json.dumps({"type": "mode"}), *lines]) + "\n")
    rewritten = capture(caller, rows.path)
    moved = rows.path.with_name("moved.jsonl")
    shutil.move(rows.path, moved)
    elsewhere = capture(caller, moved)
    moved.write_text(lines[0] + "\n")
    shorter = capture(caller, moved)

    assert [done.added for done in (rewritten, elsewhere, shorter)] == [0, 0, 0]
    assert len(texts(caller)) == 5


def test_a_file_converted_to_other_ids_adds_nothing(caller, rows):
    """The same words at the same moment in the same conversation are the same message."""
    rows.user("One")
    rows.user(f"The key is {KEY}")
    capture(caller, rows.path)
    converted = [json.loads(line) | {"uuid": f"new-{place}"} for place, line in enumerate(rows.path.open())]
    rows.path.write_text("".join(json.dumps(row) + "\n" for row in converted))
    done = capture(caller, rows.path)

    assert done.added == 0
    assert len(texts(caller)) == 2


def test_a_fork_is_stored_once_and_linked(caller, rows, make_rows):
    """Copied rows stay where they are; what is new is a branch."""
    rows.user("One")
    rows.answer("First")
    parent = capture(caller, rows.path)
    fork = make_rows("22222222-bbbb.jsonl", session="22222222-bbbb")
    for line in rows.path.open():
        with fork.path.open("a") as file:
            file.write(json.dumps(json.loads(line) | {"sessionId": fork.session}) + "\n")
    copied = capture(caller, fork.path)
    fork.second = 30
    fork.user("Another way")
    branched = capture(caller, fork.path)
    session = caller.space.sessions.session(branched.session_id)

    assert (copied.added, branched.added) == (0, 1)
    assert (session.parent_session_id, session.link.value) == (parent.session_id, "branch")
    assert texts(caller) == ["One", "First", "Another way"]


def test_sub_agents_are_linked_to_their_parent_in_either_order(caller, rows, make_rows):
    """A sub-agent that is captured first is linked when its parent appears; search hides it."""
    agent = make_rows(f"{rows.session}/subagents/agent-7.jsonl", session=rows.session, isSidechain=True, agentId="7")
    agent.user("Look around")
    agent.answer("I see files")
    child = capture(caller, agent.path)
    rows.user("Delegate")
    parent = capture(caller, rows.path)
    session = caller.space.sessions.session(child.session_id)

    assert (session.source, session.parent_session_id, session.link.value) == (
        "subagent",
        parent.session_id,
        "delegate",
    )
    assert texts(caller) == ["Delegate"]


def test_sub_agents_are_captured_with_their_parent(caller, rows, make_rows):
    """One event of the parent is enough."""
    rows.user("Delegate")
    agent = make_rows(f"{rows.session}/subagents/agent-7.jsonl", session=rows.session, isSidechain=True, agentId="7")
    agent.user("Look around")
    done = capture(caller, rows.path)

    assert len(done.sessions) == 2
    assert caller.space.sessions.session(done.session_id).source == "claude-code"
    assert texts(caller, "subagent") == ["Look around"]


def test_real_transcripts_are_stored_once_in_any_order(caller, corpus):
    """Session, fork and sub-agent of a real client, each row once."""
    paths = sorted(corpus.glob("claude-code/projects/*/*.jsonl"), reverse=True)
    for path in [*paths, *paths]:
        capture(caller, path)
    said = texts(caller)

    assert len(said) == 15
    assert said.count("Remember that the deploy key lives in vault seven.") == 1
    assert said.count("After the compaction I like green tea.") == 1


def test_secrets_are_redacted(caller, rows):
    """Credentials do not reach the store."""
    rows.user(f"The key is {KEY}")
    capture(caller, rows.path)

    assert texts(caller) == ["The key is [redacted:anthropic_key]"]


def test_a_file_of_another_user_is_refused(caller, rows, monkeypatch):
    """Nobody's conversations are read but one's own."""
    rows.user("One")
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    done = capture_transcript(caller, "claude-code", rows.path)

    assert isinstance(done, Refused)
    assert "another user" in done.error


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "client"])
def test_what_is_no_transcript_is_refused(caller, tmp_path, kind):
    """The reason is reported, and nothing waits forever."""
    place = tmp_path / "x.jsonl"
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    done = capture_transcript(caller, "nobody" if kind == "client" else "claude-code", place)

    assert isinstance(done, Refused)
    assert done.remedy


def test_an_excluded_project_is_not_captured(home, rows):
    """Neither transcripts nor events of it, until it is excluded no more."""
    home.mkdir()
    (home / "config.yaml").write_text("connect:\n  exclude: [/home/sam/project]\n")
    rows.user("One")
    app = open_app(str(home), None)
    refused = capture(app.caller(), rows.path)
    event = capture_turn(
        app.caller(), "codex", session="s", turn="1", project="/home/sam/project/sub", prompt="Hi", answer="Ho"
    )
    app.close()
    (home / "config.yaml").unlink()
    app = open_app(str(home), None)
    later = capture(app.caller(), rows.path)
    app.close()

    assert (refused.added, event.added, later.added) == (0, 0, 1)
    assert refused.left == {"excluded project": 1}


def test_what_was_deleted_here_does_not_return(caller, rows):
    """A conversation in the trash stays there; restored, it is brought up to date."""
    rows.user("One")
    done = capture(caller, rows.path)
    caller.space.sessions.upkeep.delete([done.session_id])
    rows.user("Two")
    trashed = capture(caller, rows.path)
    caller.space.sessions.upkeep.restore(done.session_id)
    restored = capture(caller, rows.path)

    assert (trashed.added, restored.added) == (0, 1)
    assert texts(caller) == ["One", "Two"]


def test_what_was_forgotten_does_not_return(caller, rows):
    """Also when the transcript is read from its beginning."""
    rows.user("One")
    rows.user("Something else entirely")
    done = capture(caller, rows.path)
    forgetting = caller.space.sessions.forgetting
    forgetting.carry_out(forgetting.plan_query("Something else entirely"))
    moved = rows.path.with_name("moved.jsonl")
    shutil.move(rows.path, moved)
    again = capture(caller, moved)
    forgetting.carry_out(forgetting.plan_sessions([done.session_id]))
    shutil.move(moved, rows.path)
    rows.user("Three")
    capture(caller, rows.path)

    assert again.added == 0
    assert texts(caller) == []


def test_an_exported_conversation_is_recognised(caller, rows, tmp_path):
    """A home that was restored from an export continues the same sessions."""
    rows.user("One")
    done = capture(caller, rows.path)
    lines = [json.dumps(line).encode() for line in operations.sessions.export_sessions(caller)]
    app = open_app(str(tmp_path / "other"), None)
    other = app.caller()
    operations.sessions.import_sessions(other, lines, source="import:jsonl")
    rows.user("Two")
    continued = capture(other, rows.path)

    assert continued.session_id == done.session_id
    assert [one.message.text for one in other.space.sessions.messages(done.session_id)] == ["One", "Two"]
    app.close()


def test_another_user_has_their_own(caller, rows):
    """The same transcript can be captured for two users, and neither sees the other's."""
    rows.user("One")
    capture(caller, rows.path)
    other = caller.app.caller(UserId("kim"))
    done = capture(other, rows.path)

    assert done.added == 1
    assert caller.space.sessions.session(done.session_id) is None


def test_the_status_tells_how_much_of_a_large_transcript_waits(caller, rows):
    """Since when, how much, and what stores it now; a later event that is no more complete changes nothing of that."""
    for number in range(400):
        rows.user(f"Question {number} " + "with a long text " * 1_000)
    capture_transcript(caller, "claude-code", rows.path, deadline=time.monotonic())
    (waiting,) = caller.space.home.spool.iterdir()
    since = json.loads(waiting.read_text())["since"]
    waiting.write_text(json.dumps({**json.loads(waiting.read_text()), "since": since - 100}))
    capture_transcript(caller, "claude-code", rows.path, deadline=time.monotonic())
    (told,) = (one for one in read_status(caller).clients if one.client == "claude-code")
    capture_transcript(caller, "claude-code", rows.path)
    drain_spool(caller)
    (done,) = (one for one in read_status(caller).clients if one.client == "claude-code")

    assert told.lag_seconds >= 100
    assert [text for text in told.errors if "MB of its transcripts are not stored yet" in text]
    assert "import claude-code" in told.next_step
    assert (done.lag_seconds, done.errors) == (0.0, ())


def test_a_deadline_leaves_the_rest_in_the_spool(caller, rows):
    """What did not fit is captured by the next process that has the time."""
    for number in range(1_000):
        rows.user(f"Prompt {number}")
    first = capture(caller, rows.path, deadline=time.monotonic())
    drained = drain_spool(caller)

    assert 0 < first.added < 1_000
    assert first.waiting_bytes > 0
    assert first.added + drained.added == 1_000
    assert list(caller.space.home.spool.iterdir()) == []


def test_a_capture_does_not_divide_a_turn_of_an_agent(caller, rows):
    """While an agent answers in the conversation, what is captured waits in the spool."""
    rows.user("One")
    session = capture(caller, rows.path).session_id
    rows.user("Two")
    lease = caller.space.open_lease(f"session:{session}")
    assert lease.take()

    refused = capture_transcript(caller, "claude-code", Path(rows.path))
    lease.release()
    drained = drain_spool(caller)

    assert isinstance(refused, Refused)
    assert drained.added == 1
    assert texts(caller) == ["One", "Two"]


def test_two_captures_at_the_same_moment_store_each_message_once(home, rows):
    """Two hooks of two clients may run at once."""
    for number in range(300):
        rows.user(f"Prompt {number}")
    apps = [open_app(str(home), None) for _ in range(4)]
    apps[0].caller().space.sessions.recent(limit=1)
    threads = [threading.Thread(target=capture, args=(app.caller(), rows.path)) for app in apps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert texts(apps[0].caller()) == [f"Prompt {number}" for number in range(300)]
    for app in apps:
        app.close()


def test_a_turn_of_an_event_is_replaced_by_the_transcript(caller, rows):
    """Prompt and answer of an event stay until the transcript has the turn, also when it names it otherwise."""
    event = capture_turn(
        caller, "claude-code", session=rows.session, turn="t1", project="/p", prompt="One", answer="First"
    )
    twice = capture_turn(
        caller, "claude-code", session=rows.session, turn="t1", project="/p", prompt="One", answer="First"
    )
    rows.user("One")
    rows.answer("Let me look.")
    rows.answer("First")
    done = capture(caller, rows.path)

    assert (event.added, twice.added) == (2, 0)
    assert done.replaced == 2
    assert texts(caller) == ["One", "Let me look.", "First"]


def test_an_event_after_the_transcript_adds_nothing(caller, make_rows):
    """The transcript is the better source, whichever comes first."""
    rows = make_rows("now.jsonl")
    row = rows.user("One")
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
    rows.path.write_text(json.dumps(row | {"timestamp": now}) + "\n")
    capture(caller, rows.path)
    event = capture_turn(
        caller, "claude-code", session=rows.session, turn="t1", project="/p", prompt="One", answer="First"
    )

    assert event.added == 0


def test_a_store_that_cannot_be_used_loses_nothing(home, rows):
    """The transcript and the texts of an event wait in the spool."""
    rows.user("One")
    app = open_app(str(home), None)
    assert capture_turn(app.caller(), "codex", session="s", turn="0", project=None, prompt="Hi", answer="Ho").added == 2
    app.close()
    holder = open_app(str(home), None)
    with holder.database.writing():
        app = open_app(str(home), None)
        locked = capture_transcript(app.caller(), "claude-code", rows.path, deadline=time.monotonic() + 0.1)
        app.close()
    drained = drain_spool(holder.caller())

    assert isinstance(locked, Refused)
    assert locked.detail["spooled"] is True
    assert drained.added == 1
    holder.close()


def limited(home, **limits):
    home.mkdir(exist_ok=True)
    lines = "".join(f"  {name}: {value}\n" for name, value in limits.items())
    (home / "config.yaml").write_text(f"sessions:\n{lines}")
    return open_app(str(home), None)


def test_old_captured_conversations_are_pruned(home, make_rows):
    """Idle for longer than the limit, they go to the trash; one that continues is captured again."""
    old, new = make_rows("old.jsonl", session="old"), make_rows("new.jsonl", session="new")
    old.user("Long ago")
    new.path.write_text(json.dumps(new.user("Now") | {"timestamp": time.time()}) + "\n")
    app = limited(home, capture_days=3)
    caller = app.caller()
    caller.space.sessions.create(Session(SessionId("mine"), "cli", 5.0))
    capture(caller, old.path)
    capture(caller, new.path)
    gone = prune_captures(caller, is_due=False)
    again = prune_captures(caller)
    old.user("And on it goes")
    continued = capture(caller, old.path)
    status = report_captures(caller)

    assert (len(gone), again, continued.added) == (1, (), 1)
    assert texts(caller) == ["And on it goes", "Now"]
    assert caller.space.sessions.session(SessionId("mine")) is not None
    assert status.pruned_sessions == 1
    assert "moved to the trash" in status.note
    assert status.as_json()["clients"][0]["client"] == "claude-code"
    app.close()


def test_captured_text_stays_within_its_bytes(home, make_rows):
    """The oldest go first, the newest stays even where it is too large alone."""
    app = limited(home, capture_bytes=1_000_000)
    caller = app.caller()
    for number in range(4):
        rows = make_rows(f"{number}.jsonl", session=f"s{number}")
        rows.second = number * 60
        for part in range(6):
            rows.user(f"{number} {part} " + "x" * 90_000)
        capture(caller, rows.path)
    prune_captures(caller, is_due=False)
    left = {text[0] for text in texts(caller)}

    assert left == {"3"}
    app.close()


def test_sub_agents_are_forgotten_with_their_parent(caller, rows, make_rows):
    """`kept forget --source` removes all that came from a client."""
    rows.user("Delegate")
    agent = make_rows(f"{rows.session}/subagents/agent-7.jsonl", session=rows.session, isSidechain=True, agentId="7")
    agent.user("Look around")
    done = capture(caller, rows.path)
    plan = caller.space.sessions.forgetting.plan_source("claude-code", project="/home/sam/project")

    assert set(plan.sessions) == set(done.sessions)
    assert len(done.sessions) == 2


def test_people_rank_before_programs(caller, make_rows):
    """Of two conversations with the same words, the one that a person led comes first."""
    person = make_rows("a.jsonl", session="a")
    program = make_rows("b.jsonl", session="b", entrypoint="sdk-cli")
    for rows in (person, program):
        rows.user("The heron cluster has seven nodes")
        capture(caller, rows.path)
    found = caller.space.sessions.search(SearchRequest("how many nodes has the heron cluster", limit=5))
    first = caller.space.sessions.session(found.sessions[0].session_id)

    assert first.metadata["external_id"] == "a"
    assert found.sessions[0].score > found.sessions[1].score


def test_a_private_span_stays_open_between_captures(caller, rows):
    """The state of the reader is stored with the position."""
    rows.user("Hello <private>my pin")
    capture(caller, rows.path)
    rows.answer("Your pin is 1234")
    capture(caller, rows.path)
    rows.user("is 1234</private> and the weather?")
    capture(caller, rows.path)
    rows.user("<private>all of it</private>")
    capture(caller, rows.path)
    rows.answer("All of it, then")
    capture(caller, rows.path)

    assert texts(caller) == ["Hello", "and the weather?"]


def write_history(folder, sessions, turns):
    """Write transcripts of four messages a turn: prompt, call, result, answer."""
    for number in range(sessions):
        lines = []
        for turn in range(turns):
            common = {"sessionId": f"s{number}", "cwd": "/p", "timestamp": 1_790_000_000 + number * 10_000 + turn}
            words = f"turn {turn} of session {number} about rivers, caches and the deployment of tables"
            call = {"type": "tool_use", "id": f"t{turn}", "name": "Bash", "input": {"command": words}}
            result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": words * 5}
            for place, (kind, content) in enumerate(
                (("user", words), ("assistant", [call]), ("user", [result]), ("assistant", words))
            ):
                message = {"id": f"m{number}-{turn}-{place}", "model": "m", "content": content}
                row = {"type": kind, "uuid": f"{number}-{turn}-{place}", "message": message}
                lines.append(json.dumps(common | row))
        folder.mkdir(exist_ok=True)
        (folder / f"s{number}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.mark.speed
def test_a_hundred_thousand_messages_take_a_minute(caller, tmp_path):
    """The target of the specification."""
    write_history(tmp_path / "history", sessions=100, turns=250)
    found = imports.sources.find_sources(caller, "claude-code", tmp_path / "history").sources[0]
    start = time.monotonic()
    report = imports.run.run_import(caller, found)
    seconds = time.monotonic() - start

    assert sum(report.messages.values()) - report.messages["tool_calls"] == 100_000
    assert seconds <= 60


LARGE = """
import resource, sys
from pathlib import Path
from wellkept.app import open_app
from wellkept.connect.capture import capture_transcript
app = open_app(sys.argv[1], None)
print(capture_transcript(app.caller(), "claude-code", Path(sys.argv[2])).added)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.heavy
def test_a_large_file_needs_little_memory(tmp_path):
    """200 MB with lines of 12 MB and one of 80 MB: less than 300 MB of memory."""
    path = tmp_path / "large.jsonl"
    source = {"type": "base64", "media_type": "image/png", "data": "aB3x" * 3_000_000}
    with path.open("w") as file:
        for number in range(17):
            content = [{"type": "text", "text": f"Picture {number}"}, {"type": "image", "source": source}]
            row = {"type": "user", "uuid": f"u{number}", "sessionId": "s", "message": {"content": content}}
            file.write(json.dumps(row) + "\n")
        file.write('{"type": "user", "message": {"content": "' + "x" * 80_000_000 + '"}}\n')
    command = [sys.executable, "-c", LARGE, str(tmp_path / "home"), str(path)]
    added, kilobytes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert int(added) == 17
    assert int(kilobytes) < 300_000

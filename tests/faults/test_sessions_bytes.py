"""Bytes on the disk: what was forgotten or is a secret is in no file, no log and no index."""

import json

import pytest

from wellkept.core.clock import SystemClock
from wellkept.core.ids import SessionId
from wellkept.core.messages import ImagePart, Message, NewMessage, Origin, Role, Session, TextPart, ToolCall
from wellkept.core.search import SearchRequest
from wellkept.core.tools import ToolContext
from wellkept.sessions.sqlite import index_check
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.sessions.tool import session_search
from wellkept.storage.sqlite import open_state

SECRETS = {
    "anthropic": "sk-ant-" + "api03-Qm9sdHMtYW5kLW51dHMtMTIzNDU2Nzg5MA",
    "openai": "sk-" + "proj-T3BlbkFJ0123456789abcdefghijABCDEFGHIJ",
    "github": "ghp_" + "0123456789abcdefghijABCDEFGHIJ456789",
    "aws": "AKIA" + "QWERTYUIOP234567",
    "slack": "xoxb-" + "123456789012-abcdefGHIJKL",
    "url": "postgres://kim:" + "Tr0ub4dor-and-3" + "@db.example.org/app",
    "pem": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\n-----END PRIVATE KEY-----",
}
HIDDEN = [b"Qm9sdHMt", b"T3BlbkFJ0123", b"ghp_0123", b"AKIAQWERTY", b"xoxb-12345", b"Tr0ub4dor", b"MIIEvQIBADAN"]


@pytest.fixture
def store(tmp_path):
    database = open_state(tmp_path / "state.db")
    yield SqliteSessionStore(database)
    database.close()


def raw(store):
    folder = store.database.path.parent
    return b"".join(path.read_bytes() for path in folder.glob("state.db*")).lower()


def test_secrets_never_reach_the_disk(store):
    """Credentials of the common shapes are in no byte of the file, its log and its index, whatever carried them."""
    name = SessionId("a")
    every = " and ".join(SECRETS.values())
    store.create(
        Session(name, "cli", 1.0, title=SECRETS["github"], metadata={"key": SECRETS["aws"]}), system_prompt=every
    )
    store.append(
        name,
        [
            NewMessage(Message(Role.USER, every), 1.0, Origin.PERSON, f"sent {every}"),
            NewMessage(Message(Role.USER, (TextPart(every), ImagePart("image/png", "AAAA"))), 1.0, Origin.PERSON),
            NewMessage(
                Message(Role.ASSISTANT, "", (ToolCall("1", "run", json.dumps({"env": every})),), reasoning=every),
                2.0,
                Origin.MODEL,
            ),
            NewMessage(
                Message(Role.TOOL, json.dumps({"out": every}), tool_call_id="1", tool_name="run"), 3.0, Origin.TOOL
            ),
        ],
    )
    store.rename(name, every)
    store.add_node(name, depth=0, text=every, children=[1])
    line = {"session_id": "b", "role": "user", "content": every, "timestamp": 1, "title": SECRETS["slack"]}
    store.transfer.import_lines([json.dumps(line).encode()])

    found = [word for word in HIDDEN if word.lower() in raw(store)]

    assert found == []
    assert b"[redacted:" in raw(store)
    assert "Tr0ub4dor" not in "".join(json.dumps(line) for line in store.transfer.export(raw=True))


def fill(store):
    for number in range(30):
        name = SessionId(f"other{number}")
        store.create(Session(name, "cli", 1.0))
        store.append(name, [NewMessage(Message(Role.USER, f"plain talk {number} of gardens"), 1.0, Origin.PERSON)])
    name = SessionId("20260101_000000_secret")
    store.create(Session(name, "cli", 1.0, title="About Quixotopia"), system_prompt="prompt for Quixotopia")
    image = ImagePart("image/png", "UXVpeG90b3BpYS1pbWFnZS1ieXRlcw==")
    store.append(
        name,
        [
            NewMessage(
                Message(Role.USER, "the Quixotopia harvest is Blumberwort"), 1.0, Origin.PERSON, "sent Quixotopia"
            ),
            NewMessage(Message(Role.USER, (TextPart("see Quixotopia"), image)), 2.0, Origin.PERSON),
            NewMessage(
                Message(Role.ASSISTANT, "", (ToolCall("1", "look", '{"at": "Quixotopia"}'),), reasoning="Quixotopia"),
                3.0,
                Origin.MODEL,
            ),
        ],
    )
    store.note(name, "topic", "Quixotopia")
    store.add_node(name, depth=0, text="Quixotopia in short", children=[1])
    return name


def test_a_forgotten_session_leaves_no_byte(store):
    """After forget neither the words, nor pieces of them, nor images, prompts or notes are in any file."""
    name = fill(store)
    assert b"quixotopia" in raw(store)

    report = store.forgetting.carry_out(store.forgetting.plan_sessions([name]))

    left = raw(store)
    for word in (b"quixotopia", b"xotopia", b"blumberwort", b"lumberwor", b"000000_secret", b"image-bytes"):
        assert word not in left, word
    assert (report.sessions, report.messages, report.blobs, report.still_found, report.bytes_gone) == (1, 3, 1, 0, True)
    assert index_check.find_faults(store.database.connection) == []
    assert not [
        row for row in store.database.connection.execute("SELECT term FROM message_vocabulary") if "quix" in row[0]
    ]
    assert store.search(SearchRequest("gardens")).messages


def test_search_results_elsewhere_are_blanked(store):
    """What another session was shown of a forgotten one goes too: the tool's answer and the text that was sent."""
    name = fill(store)
    tool = session_search(lambda: store, store.file.settings, clock=SystemClock())
    answer = json.dumps(tool.call({"query": "Quixotopia harvest"}, ToolContext()))
    assert "Blumberwort" in answer
    asker = SessionId("other0")
    store.append(
        asker,
        [
            NewMessage(Message(Role.TOOL, answer, tool_call_id="9", tool_name="session_search"), 5.0, Origin.TOOL),
            NewMessage(Message(Role.USER, "thanks"), 6.0, Origin.PERSON, f"thanks <recalled {name} Quixotopia>"),
        ],
    )

    report = store.forgetting.carry_out(store.forgetting.plan_sessions([name]))

    assert report.cited_elsewhere == 2
    assert b"quixotopia" not in raw(store)


def test_forgetting_words_takes_the_messages_that_hold_them(store):
    """Forgetting by words removes those messages, their titles' words and the summaries made since, nothing else."""
    name = fill(store)
    store.append(name, [NewMessage(Message(Role.USER, "unrelated parsnips"), 9.0, Origin.PERSON)])
    store.append(name, [NewMessage(Message(Role.USER, "so far: Quixotopia"), 9.0, Origin.SYNTHETIC)])

    plan = store.forgetting.plan_query("quixotopia")
    report = store.forgetting.carry_out(plan)

    assert report.messages == 4
    assert b"quixotopia" not in raw(store)
    assert [message.message.text for message in store.messages(name)] == ["unrelated parsnips"]


def test_an_import_does_not_bring_back_what_was_forgotten(store):
    """A tombstone keeps a later import from restoring a forgotten session or message."""
    lines = [
        json.dumps({"session_id": name, "role": "user", "content": text, "timestamp": 1, **more}).encode()
        for name, text, more in (
            ("gone", "hidden pangolin", {}),
            ("kept", "open pelican", {}),
            ("kept", "hidden pangolin too", {"external_id": "x1"}),
            ("kept", "hidden pangolin again", {}),
        )
    ]
    store.transfer.import_lines(lines)
    store.forgetting.carry_out(store.forgetting.plan_sessions([SessionId("gone")]))
    store.forgetting.carry_out(store.forgetting.plan_query("hidden pangolin"))

    report = store.transfer.import_lines(lines)

    assert (report.messages, report.known, report.forgotten) == (0, 1, 3)
    assert b"pangolin" not in raw(store)


def test_a_reader_keeps_the_log_until_the_next_open(store, tmp_path):
    """While someone reads, the bytes may stay in the log; this is reported, and the next open removes them."""
    name = fill(store)
    reader = open_state(tmp_path / "state.db")
    reader.connection.execute("BEGIN")
    reader.connection.execute("SELECT count(*) FROM messages").fetchall()
    store.database.connection.set_busy_timeout(100)

    report = store.forgetting.carry_out(store.forgetting.plan_sessions([name]))
    reader.connection.execute("COMMIT")
    reader.close()
    assert report.bytes_gone is False
    store.database.close()
    again = SqliteSessionStore(open_state(tmp_path / "state.db"))

    assert b"quixotopia" not in raw(again)
    again.database.close()

"""Conversations taken in and written out as JSONL."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kept.core.events import Progressed
from kept.core.ids import SessionId
from kept.core.messages import ImagePart, Message, NewMessage, Origin, Role, Session, TextPart, ToolCall
from kept.sessions.identity import Stored
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.storage.state import open_state
from kept.testing.session_store_contract import Summarised


def raw(*lines):
    return [json.dumps({"role": "user", "timestamp": 1, **line}).encode() for line in lines]


def test_a_second_import_adds_nothing(store):
    """Lines are known by their external id, or else by place, role and content; equal lines of a file all count."""
    lines = raw(
        {"session_id": "a", "content": "yes"},
        {"session_id": "a", "content": "yes"},
        {"session_id": "b", "content": "x", "external_id": "e1"},
        {"session_id": "b", "content": "x", "external_id": "e2"},
        {"session_id": "b", "content": "changed", "external_id": "e1"},
    )

    first = store.transfer.imported(lines)
    second = store.transfer.imported(lines)

    assert (first.messages, first.sessions, first.known) == (4, 2, 1)
    assert (second.messages, second.sessions, second.known) == (0, 0, 5)


def test_a_grown_file_adds_its_new_lines(store):
    """Importing a longer form of the same file adds only what is new, in order."""
    lines = raw(
        *(
            {"session_id": "a", "content": text, "timestamp": place}
            for place, text in enumerate(["one", "two", "yes", "three", "yes"])
        )
    )
    store.transfer.imported(lines[:3])

    report = store.transfer.imported(lines)

    assert (report.known, report.messages) == (3, 2)
    assert [one.message.text for one in store.messages(SessionId("a"))] == ["one", "two", "yes", "three", "yes"]


def test_bad_lines_are_numbered(store):
    """A bad line is reported by its number and skipped; blank lines and a byte-order mark are nothing."""
    lines = [
        b"\xef\xbb\xbf" + raw({"session_id": "a", "content": "ok"})[0],
        b"",
        b"nonsense",
        *raw({"content": "x"}, {"session_id": "a", "content": "two"}),
    ]

    report = store.transfer.imported(lines)

    assert report.messages == 2
    assert [number for number, _ in report.problems] == [3, 4]


def test_progress_is_told(tmp_path):
    """A long import tells how far it is."""
    heard = []
    database = open_state(tmp_path / "state.db")
    lines = raw(*({"session_id": "a", "content": f"m{place}"} for place in range(2_500)))

    SqliteSessionStore(database, sink=heard.append).transfer.imported(lines, total=2_500)

    assert [event.done for event in heard if isinstance(event, Progressed)] == [1_000, 2_000, 2_500]
    database.close()


def conversation(store):
    """A conversation with everything in it: tools, images, a compaction, a branch, notes."""
    name = SessionId("first")
    store.create(
        Session(name, "telegram", 10.0, user_id="u", project="/p", model="m", title="Plan", metadata={"chat": 1}),
        system_prompt="p",
    )
    ids = store.append(
        name,
        [
            NewMessage(
                Message(Role.USER, "question"),
                10.0,
                Origin.PERSON,
                "question with recall",
                external_id="x1",
                token_count=4,
            ),
            NewMessage(Message(Role.ASSISTANT, "", (ToolCall("c", "run", "{}"),), reasoning="hm"), 11.0, Origin.MODEL),
            NewMessage(Message(Role.TOOL, "out", tool_call_id="c", tool_name="run"), 12.0, Origin.TOOL),
            NewMessage(Message(Role.USER, (TextPart("see"), ImagePart("image/png", "QUJD"))), 13.0, Origin.PERSON),
            NewMessage(Message(Role.ASSISTANT, "half"), 14.0, Origin.MODEL, interrupted=True),
        ],
    )
    store.compact(
        name, Summarised(Message(Role.USER, "so far"), ids[1:3], ids[:1], ids[3:], False, SessionId("second"), 20.0)
    )
    store.append(SessionId("second"), [NewMessage(Message(Role.USER, "more"), 21.0, Origin.PERSON)])
    store.note(SessionId("second"), "streak", 2)
    store.branch(SessionId("second"), at=ids[3], new=Session(SessionId("side"), "cli", 22.0))
    store.append(SessionId("side"), [NewMessage(Message(Role.USER, "aside"), 23.0, Origin.PERSON)])


def without_ids(store):
    lines = []
    for line in store.transfer.exported(raw=True):
        line.pop("id", None)
        line.pop("carried", None)
        line.pop("context_from", None)
        lines.append(line)
    return lines


def test_export_and_import_lose_nothing(store, tmp_path):
    """What is exported and imported elsewhere is the same: messages, lineage, contexts, notes, prompts."""
    conversation(store)
    database = open_state(tmp_path / "other.db")
    other = SqliteSessionStore(database)

    report = other.transfer.imported(json.dumps(line).encode() for line in store.transfer.exported(raw=True))

    assert report.bad == 0
    assert without_ids(other) == without_ids(store)
    for name in ("first", "second", "side"):
        mine, theirs = store.context(SessionId(name)), other.context(SessionId(name))
        assert [one.message for one in theirs] == [one.message for one in mine]
        assert other.session(SessionId(name)) == store.session(SessionId(name))
    assert other.system_prompt(SessionId("first")) == "p"
    assert other.noted(SessionId("second"), "streak") == 2
    again = other.transfer.imported(json.dumps(line).encode() for line in store.transfer.exported())
    assert (again.messages, again.sessions) == (0, 0)
    database.close()


def test_what_was_sent_is_exported_only_raw(store):
    """`api_content` and the prompt are in no export but a raw one; each session begins with its own line."""
    conversation(store)

    plain, raw_lines = list(store.transfer.exported()), list(store.transfer.exported(raw=True))

    assert "question with recall" not in json.dumps(plain)
    assert "question with recall" in json.dumps(raw_lines)
    assert not any("system_prompt" in line for line in plain)
    assert plain[0]["type"] == "session"
    assert [line["session_id"] for line in plain if line.get("type") == "session"] == ["first", "second", "side"]
    assert {line["session_id"] for line in store.transfer.exported(user_id="nobody")} == set()


def test_rewound_messages_are_not_exported(store):
    """What was taken back is in no export, and importing that export back adds nothing."""
    store.create(Session(SessionId("a"), "cli", 1.0))
    ids = store.append(
        SessionId("a"),
        [
            NewMessage(Message(Role.USER, text), 1.0 + place, Origin.PERSON)
            for place, text in enumerate(("one", "two", "three"))
        ],
    )
    store.rewind(SessionId("a"), ids[1])
    store.append(SessionId("a"), [NewMessage(Message(Role.USER, "four"), 9.0, Origin.PERSON)])

    lines = list(store.transfer.exported())
    report = store.transfer.imported(json.dumps(line).encode() for line in lines)

    assert [line.get("content") for line in lines[1:]] == ["one", "four"]
    assert (report.messages, report.known) == (0, 2)


words = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1.0, 2.0])), max_size=12)


@given(words)
def test_the_same_lines_are_always_known(lines):
    """Whatever repeats in it, a transcript that is stored is known line by line."""
    stored = Stored()
    for text, moment in lines:
        stored.remember(None, text.encode(), moment)

    assert all(stored.holds(None, text.encode(), moment) for text, moment in lines)

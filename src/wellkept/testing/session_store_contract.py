"""The contract of every session store: one suite, run against each implementation."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from wellkept.core.errors import KeptError, NotFound, UsageError
from wellkept.core.ids import MessageId, SessionId, SourceName, UserId
from wellkept.core.messages import (
    ImagePart,
    Link,
    Message,
    NewMessage,
    Origin,
    Role,
    Session,
    State,
    StoredMessage,
    TextPart,
    ToolCall,
    Usage,
)
from wellkept.core.ports import Clock, EventSink, ignore
from wellkept.core.search import SearchRequest
from wellkept.sessions.ports import Sessions

START = 1_750_000_000.0
KEY = "sk-ant-" + "api03-Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA"
"""A credential of a known pattern, concatenated so that secret scanners do not report this file."""


class Summarised(Struct, frozen=True):
    """A compaction as an engine passes it to the store."""

    summary: Message
    covered: Sequence[MessageId]
    kept_head: Sequence[MessageId]
    kept_tail: Sequence[MessageId]
    in_place: bool
    new_session_id: SessionId | None
    timestamp: float = START + 10_000
    source: SourceName | None = None


def session(name: str, **fields: object) -> Session:
    """Return a session of the contract's own time."""
    return Session(SessionId(name), **{"source": "cli", "started": START, **fields})  # type: ignore[arg-type] # its fields


def said(text: str, role: Role = Role.USER, *, at: float = START, **fields: object) -> NewMessage:
    """Return a message to append."""
    origin = {Role.USER: Origin.PERSON, Role.TOOL: Origin.TOOL}.get(role, Origin.MODEL)
    return NewMessage(Message(role, text), at, origin, **fields)  # type: ignore[arg-type] # the fields of NewMessage


def texts(messages: Sequence[StoredMessage]) -> list[str]:
    """Return the texts of messages, in order."""
    return [message.message.text for message in messages]


def refusal(act: Callable[[], object]) -> KeptError:
    """Return the error that `act` must raise."""
    try:
        act()
    except KeptError as error:
        return error
    raise AssertionError("nothing was refused")


class SessionStoreContract:
    """Inherit from it and return a new store from `store`."""

    def store(self, *, clock: Clock | None = None, sink: EventSink = ignore) -> Sessions:
        """Return a new, empty store; a second call gives another one."""
        raise NotImplementedError

    def open_filled(self, count: int = 6, name: str = "talk") -> tuple[Sessions, SessionId, list[MessageId]]:
        """Return a store with one session of `count` messages: `word0`, `word1`, …."""
        store = self.store()
        store.create(session(name))
        ids = store.append(SessionId(name), [said(f"word{number}", at=START + number) for number in range(count)])
        return store, SessionId(name), ids

    def test_what_is_appended_comes_back(self) -> None:
        """Every field of a message comes back as it was given."""
        store = self.store()
        store.create(session("a"))
        call = ToolCall("c1", "read_file", '{"path":  "x"}')
        given = [
            NewMessage(Message(Role.USER, "hello"), START, Origin.PERSON, external_id="e1", token_count=7),
            NewMessage(Message(Role.ASSISTANT, "", (call,), reasoning="thinking"), START + 1, Origin.MODEL),
            NewMessage(Message(Role.TOOL, "file", tool_call_id="c1", tool_name="read_file"), START + 2, Origin.TOOL),
            NewMessage(Message(Role.ASSISTANT, "half"), START + 3, Origin.MODEL, "sent half", interrupted=True),
        ]

        ids = store.append(SessionId("a"), given)

        kept = store.messages(SessionId("a"))
        assert [message.id for message in kept] == ids == sorted(ids)
        assert [message.message for message in kept] == [new.message for new in given]
        assert [message.origin for message in kept] == [new.origin for new in given]
        assert [message.timestamp for message in kept] == [new.timestamp for new in given]
        assert (kept[0].external_id, kept[0].token_count) == ("e1", 7)
        assert (kept[3].api_content, kept[3].interrupted) == ("sent half", True)

    def test_what_is_sent_in_place_of_a_message_can_be_added_later(self) -> None:
        """The message itself, its place and its index stay; credentials are removed."""
        store = self.store()
        store.create(session("a"))
        first, _ = store.append(SessionId("a"), [said("a quiet okapi"), said("second")])

        store.set_sent_text(first, "a quiet okapi, and ghp_0123456789abcdefABCDEF0123456789abcd")

        kept = store.messages(SessionId("a"))[0]
        assert (kept.message.text, (kept.api_content or "")[:19]) == ("a quiet okapi", "a quiet okapi, and ")
        assert "0123456789abcdefABCDEF" not in (kept.api_content or "")
        assert store.search(SearchRequest("okapi")).messages[0].message_id == first

    def test_parts_come_back(self) -> None:
        """Structured content comes back part by part, images included."""
        store = self.store()
        store.create(session("a"))
        parts = (TextPart("look\nhere"), ImagePart("image/png", "aGVsbG8gd29ybGQ="), TextPart("and there"))

        store.append(SessionId("a"), [NewMessage(Message(Role.USER, parts), START, Origin.PERSON)])

        assert store.messages(SessionId("a"))[0].message.content == parts

    def test_any_text_can_be_stored(self) -> None:
        """NUL bytes, emoji and every script are kept; lone surrogates are replaced, and nothing raises."""
        store = self.store()
        store.create(session("a"))
        odd = ["a\x00b", "👩‍👩‍👧 été 日本語", "\ud800 alone", "\ud83d\ude00", "x" * 3_000_000, ""]

        store.append(SessionId("a"), [said(text) for text in odd])

        kept = texts(store.messages(SessionId("a")))
        assert kept == ["a\x00b", "👩‍👩‍👧 été 日本語", "� alone", "😀", "x" * 3_000_000, ""]

    def test_secrets_are_redacted_everywhere(self) -> None:
        """A credential is gone from content, sent text, tool arguments, tool results and notes."""
        store = self.store()
        store.create(session("a", title=f"about {KEY}"), system_prompt=f"use {KEY}")
        call = ToolCall("c", "fetch", f'{{"key": "{KEY}"}}')
        new = NewMessage(Message(Role.ASSISTANT, f"it is {KEY}", (call,)), START, Origin.MODEL, f"sent {KEY}")
        store.append(SessionId("a"), [new, said(f'{{"token": "{KEY}"}}', Role.TOOL)])
        store.note(SessionId("a"), "dialogue", {"statement": f"I use {KEY}", "texts": [KEY], "at": 1})

        kept = store.messages(SessionId("a"))

        assert KEY not in repr(kept)
        assert "[redacted:anthropic_key]" in kept[0].message.text
        assert KEY not in (store.system_prompt(SessionId("a")) or "")
        assert KEY not in repr(store.session(SessionId("a")))
        assert KEY not in repr(note := store.read_note(SessionId("a"), "dialogue"))
        assert note == {"statement": "I use [redacted:anthropic_key]", "texts": ["[redacted:anthropic_key]"], "at": 1}

    def test_an_unknown_session_is_named(self) -> None:
        """Every call with an unknown id raises an error that names it."""
        store = self.store()
        nobody = SessionId("nobody")

        for act in (
            lambda: store.append(nobody, [said("x")]),
            lambda: store.messages(nobody),
            lambda: store.context(nobody),
            lambda: store.end(nobody, "x"),
            lambda: store.rename(nobody, "x"),
            lambda: store.rewind(nobody, MessageId(1)),
            lambda: store.set_system_prompt(nobody, "x"),
            lambda: store.window(MessageId(7), before=1, after=1),
        ):
            assert isinstance(refusal(act), NotFound)
        assert store.session(nobody) is None

    def test_an_id_is_used_once(self) -> None:
        """A second session with the same id is refused."""
        store, name, _ = self.open_filled()

        assert isinstance(refusal(lambda: store.create(session(name))), UsageError)

    def test_a_session_keeps_its_facts(self) -> None:
        """Every field of a session comes back, with its count and its last activity."""
        store = self.store()
        given = session(
            "a",
            user_id="u",  # the user of the store takes precedence
            project="/p",
            model="m",
            title="T",
            profile="p",
            metadata={"chat": 7, "nested": {"x": [1]}},
        )
        store.create(given, system_prompt="be kind")
        store.append(SessionId("a"), [said("x", at=START + 5), said("y", at=START + 3)])

        found = store.session(SessionId("a"))

        assert found is not None
        assert (found.user_id, found.project, found.model, found.title, found.profile) == ("owner", "/p", "m", "T", "p")
        assert found.metadata == {"chat": 7, "nested": {"x": [1]}}
        assert (found.message_count, found.last_active) == (2, START + 5)
        assert store.system_prompt(SessionId("a")) == "be kind"

    def test_titles_are_unique(self) -> None:
        """A taken title continues with ` #N`; another user may have the same."""
        store = self.store()
        for name in ("a", "b", "c"):
            store.create(session(name))
        other = store.for_user(UserId("other"))
        other.create(session("d"))

        given = [store.rename(SessionId(name), "Plan") for name in ("a", "b", "c")]

        assert given == ["Plan", "Plan #2", "Plan #3"]
        assert other.rename(SessionId("d"), "Plan") == "Plan"
        assert store.rename(SessionId("b"), "Plan #2") == "Plan #2"

    def test_the_first_end_wins(self) -> None:
        """A session ends once; reopening removes the end."""
        store, name, _ = self.open_filled()

        store.end(name, "quit")
        store.end(name, "crash")
        ended = store.session(name)
        store.reopen(name)
        reopened = store.session(name)

        assert ended is not None
        assert ended.end_reason == "quit"
        assert reopened is not None
        assert (reopened.ended, reopened.end_reason) == (None, None)

    def test_rewinding_hides_and_restoring_brings_back(self) -> None:
        """Rewound messages are in no list, context, window or search; restore brings the last rewind back."""
        store, name, ids = self.open_filled()

        assert store.rewind(name, ids[4]) == 2
        assert store.rewind(name, ids[3]) == 1
        assert texts(store.context(name)) == texts(store.messages(name)) == ["word0", "word1", "word2"]
        assert isinstance(refusal(lambda: store.window(ids[4], before=1, after=1)), NotFound)
        assert not store.search(SearchRequest("word4")).messages
        assert texts(store.messages(name, states=(State.REWOUND,))) == []

        assert store.restore_rewound(name) == 1
        assert store.restore_rewound(name) == 2
        assert store.restore_rewound(name) == 0
        assert texts(store.context(name)) == [f"word{number}" for number in range(6)]
        assert store.search(SearchRequest("word4")).messages

    def test_windows_stay_in_their_session(self) -> None:
        """A window shows the neighbours in the session, even if other sessions were appended in between."""
        store, name, first = self.open_filled(3, "a")
        store.create(session("b"))
        store.append(SessionId("b"), [said("between")])
        second = store.append(name, [said("word3"), said("word4")])

        assert texts(store.window(first[2], before=1, after=1)) == ["word1", "word2", "word3"]
        assert texts(store.window(second[1], before=10, after=10)) == [f"word{number}" for number in range(5)]

    def test_recent_sessions_come_newest_first(self) -> None:
        """Sessions are listed by their last message; sub-agents, tools and reviews only when named."""
        store = self.store()
        for name, source, moment in (("a", "cli", 3), ("b", "web", 9), ("c", "review", 10), ("d", "cli", 5)):
            store.create(Session(SessionId(name), source, START))
            store.append(SessionId(name), [said("x", at=START + moment)])

        assert [one.id for one in store.recent(limit=10)] == ["b", "d", "a"]
        assert [one.id for one in store.recent(limit=1)] == ["b"]
        assert [one.id for one in store.recent(limit=10, source="review")] == ["c"]
        assert [one.id for one in store.recent(limit=10, source="cli")] == ["d", "a"]

    def test_the_sessions_of_a_project_are_found_and_counted(self) -> None:
        """Only those whose project is exactly the one asked for; the totals count every session."""
        store = self.store()
        for name, project, moment in (("a", "/p", 3), ("b", "/p/q", 9), ("c", "/p", 10), ("d", None, 5)):
            store.create(Session(SessionId(name), "cli", START, project=project))
            store.append(SessionId(name), [said("x", at=START + moment)])

        assert [one.id for one in store.recent(limit=10, project="/p")] == ["c", "a"]
        assert store.recent(limit=10, project="/") == []
        assert store.totals() == (4, 4)

    def test_notes_leases_and_usage(self) -> None:
        """Small facts come back; a lease has one holder; calls are counted."""
        store, name, _ = self.open_filled()

        store.note(name, "cooldown", {"until": 5, "why": ["x"]})
        assert store.read_note(name, "cooldown") == {"until": 5, "why": ["x"]}
        store.note(name, "cooldown", None)
        assert store.read_note(name, "cooldown") is None
        assert store.lease("compact", holder="p1", seconds=60)
        assert not store.lease("compact", holder="p2", seconds=60)
        assert store.lease("compact", holder="p1", seconds=60)
        store.release("compact", holder="p2")
        assert not store.lease("compact", holder="p2", seconds=60)
        store.release("compact", holder="p1")
        assert store.lease("compact", holder="p2", seconds=60)
        store.add_usage(name, task="main", model="m", usage=Usage(1, 2, 3, 4), cost=0.5)


class LineageContract(SessionStoreContract):
    """Compactions and branches."""

    def test_compaction_into_a_child_copies_nothing(self) -> None:
        """The child's context is head, summary, tail; the rows stay the parent's, and the covered ones are found."""
        store, name, ids = self.open_filled(8)
        store.rename(name, "Plan")

        child = store.compact(
            name, Summarised(Message(Role.USER, "summary"), ids[1:5], ids[:1], ids[5:], False, SessionId("child"))
        )
        store.append(child, [said("new")])

        assert child == "child"
        assert texts(store.context(child)) == ["word0", "summary", "word5", "word6", "word7", "new"]
        assert texts(store.messages(child)) == ["summary", "new"]
        assert texts(store.messages(name, states=(State.COMPACTED,))) == ["word1", "word2", "word3", "word4"]
        found = store.session(child)
        assert found is not None
        assert (found.parent_session_id, found.link, found.title) == (name, Link.COMPRESSION, "Plan #2")
        assert store.tip(name) == store.tip(child) == child
        assert store.search(SearchRequest("word2")).messages[0].message_id == ids[2]
        ended = store.session(name)
        assert ended is not None
        assert ended.end_reason == "compression"

    def test_compaction_in_place_keeps_the_id(self) -> None:
        """In place the session keeps its id, with the summary between head and tail."""
        store, name, _ = self.open_filled(8)

        for turn in range(2):
            summary = Message(Role.USER, f"summary{turn}")
            context = [message.id for message in store.context(name)]
            same = store.compact(name, Summarised(summary, context[1:-2], context[:1], context[-2:], True, None))
            assert same == name
            store.append(name, [said(f"new{turn}")])

        assert texts(store.context(name)) == ["word0", "summary1", "word7", "new0", "new1"]
        assert [message.state for message in store.context(name)] == [State.ACTIVE] * 5
        assert store.tip(name) == name
        assert len(store.messages(name)) == 12

    def test_a_second_compaction_reaches_the_parents_rows(self) -> None:
        """A child compacts rows that it carries; they are marked in the parent, and the chain has one tip."""
        store, name, ids = self.open_filled(4)
        first = store.compact(name, Summarised(Message(Role.USER, "s1"), ids[:2], [], ids[2:], False, SessionId("b")))
        carried = [message.id for message in store.context(first)]
        second = store.compact(
            first, Summarised(Message(Role.USER, "s2"), carried[:2], [], carried[2:], False, SessionId("c"))
        )

        assert texts(store.context(second)) == ["s2", "word3"]
        assert texts(store.messages(name, states=(State.COMPACTED,))) == ["word0", "word1", "word2"]
        assert store.tip(name) == "c"

    def test_undo_reaches_behind_a_compaction(self) -> None:
        """Rewinding a carried message hides it everywhere; restoring returns it to the context."""
        store, name, ids = self.open_filled(6)
        child = store.compact(name, Summarised(Message(Role.USER, "s"), ids[:3], [], ids[3:], False, SessionId("b")))

        assert store.rewind(child, ids[4]) == 2
        assert texts(store.context(child)) == ["s", "word3"]
        assert not store.search(SearchRequest("word4")).messages
        assert store.restore_rewound(child) == 2
        assert texts(store.context(child)) == ["s", "word3", "word4", "word5"]

    def test_a_branch_is_independent(self) -> None:
        """A branch carries the context up to a message; undo and compaction in one do not change the other."""
        store, name, ids = self.open_filled(5)
        store.branch(name, at=ids[2], new=session("branch"))
        branch = SessionId("branch")
        store.append(branch, [said("aside")])

        store.rewind(name, ids[1])
        assert texts(store.context(name)) == ["word0"]
        assert texts(store.context(branch)) == ["word0", "word1", "word2", "aside"]
        store.restore_rewound(name)
        store.rewind(branch, ids[2])
        assert texts(store.context(branch)) == ["word0", "word1"]
        assert texts(store.context(name)) == [f"word{number}" for number in range(5)]
        found = store.session(branch)
        assert found is not None
        assert (found.parent_session_id, found.link) == (name, Link.BRANCH)
        assert store.tip(name) == name

    def test_a_branch_can_begin_at_a_compacted_message(self) -> None:
        """Branching at a message that a summary covers brings the original messages back."""
        store, name, ids = self.open_filled(6)
        store.compact(name, Summarised(Message(Role.USER, "s"), ids[1:4], ids[:1], ids[4:], True, None))

        store.branch(name, at=ids[2], new=session("branch"))

        assert texts(store.context(SessionId("branch"))) == ["word0", "word1", "word2"]
        assert isinstance(refusal(lambda: store.branch(name, at=MessageId(999), new=session("x"))), NotFound)

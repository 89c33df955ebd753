"""The contract of every session store for carriers: conversations taken out and in again, each line once."""

from collections.abc import Mapping

from kept.core.events import Event, Progressed
from kept.core.ids import SessionId
from kept.core.messages import ImagePart, Message, NewMessage, Origin, Role, TextPart, ToolCall
from kept.core.text import JSON, dumps
from kept.sessions.ports import Sessions
from kept.sessions.reports import ImportReport
from kept.testing.session_store_contract import SessionStoreContract, Summarised, said, session, texts


def lines(*values: Mapping[str, JSON]) -> list[bytes]:
    """Return lines of a person's words, as a file holds them."""
    return [dumps({"role": "user", "timestamp": 1, **value}).encode() for value in values]


def imported(store: Sessions, given: list[bytes]) -> ImportReport:
    """Take lines in."""
    return store.transfer.import_lines(given, source="import:test")


def exported(store: Sessions, *, raw: bool = False) -> list[bytes]:
    """Return everything as the lines of a file."""
    return [dumps(line).encode() for line in store.transfer.export(raw=raw)]


def conversation(store: Sessions) -> None:
    """Store a conversation with everything in it: tools, images, a compaction, a branch, notes."""
    name = SessionId("first")
    facts: dict[str, object] = {"source": "telegram", "started": 10.0, "project": "/p", "model": "m"}
    store.create(session(name, title="Plan", metadata={"chat": 1}, **facts), system_prompt="p")
    question, call = Message(Role.USER, "question"), ToolCall("c", "run", "{}")
    seen = Message(Role.USER, (TextPart("see"), ImagePart("image/png", "QUJD")))
    ids = store.append(
        name,
        [
            NewMessage(question, 10.0, Origin.PERSON, "question with recall", external_id="x1", token_count=4),
            NewMessage(Message(Role.ASSISTANT, "", (call,), reasoning="hm"), 11.0, Origin.MODEL),
            NewMessage(Message(Role.TOOL, "out", tool_call_id="c", tool_name="run"), 12.0, Origin.TOOL),
            NewMessage(seen, 13.0, Origin.PERSON),
            NewMessage(Message(Role.ASSISTANT, "half"), 14.0, Origin.MODEL, interrupted=True),
        ],
    )
    summary = Message(Role.USER, "so far")
    second = store.compact(name, Summarised(summary, ids[1:3], ids[:1], ids[3:], False, SessionId("second"), 20.0))
    store.append(second, [said("more", at=21.0)])
    store.note(second, "streak", 2)
    store.branch(second, at=ids[3], new=session("side", started=22.0))
    store.append(SessionId("side"), [said("aside", at=23.0)])


def without_ids(store: Sessions) -> list[dict[str, JSON]]:
    """Return what is exported, without the ids that each store gives."""
    own = {"id", "carried", "context_from"}
    return [{key: value for key, value in line.items() if key not in own} for line in store.transfer.export(raw=True)]


class TransferContract(SessionStoreContract):
    """What holds for conversations on their way out and in."""

    def test_a_second_import_adds_nothing(self) -> None:
        """Lines are known by their external id, or else by place, role and content; equal lines of a file all count."""
        store = self.store()
        given = lines(
            {"session_id": "a", "content": "yes"},
            {"session_id": "a", "content": "yes"},
            {"session_id": "b", "content": "x", "external_id": "e1"},
            {"session_id": "b", "content": "x", "external_id": "e2"},
            {"session_id": "b", "content": "changed", "external_id": "e1"},
        )

        first = imported(store, given)
        second = imported(store, given)

        assert (first.messages, first.sessions, first.known) == (4, 2, 1)
        assert (second.messages, second.sessions, second.known) == (0, 0, 5)
        found = store.session(SessionId("a"))
        assert found is not None
        assert (found.source, found.message_count) == ("import:test", 2)

    def test_a_grown_file_adds_its_new_lines(self) -> None:
        """Importing a longer form of the same file adds only what is new, in order."""
        store = self.store()
        words = ["one", "two", "yes", "three", "yes"]
        said_once: list[Mapping[str, JSON]] = [
            {"session_id": "a", "content": text, "timestamp": place} for place, text in enumerate(words)
        ]
        given = lines(*said_once)
        imported(store, given[:3])

        report = imported(store, given)

        assert (report.known, report.messages) == (3, 2)
        assert texts(store.messages(SessionId("a"))) == words

    def test_bad_lines_are_numbered(self) -> None:
        """A bad line is reported by its number and skipped; blank lines and a byte-order mark are nothing."""
        store = self.store()
        good, also_good = lines({"session_id": "a", "content": "ok"}, {"session_id": "a", "content": "two"})
        given = [b"\xef\xbb\xbf" + good, b"", b"nonsense", *lines({"content": "x"}), also_good]

        report = imported(store, given)

        assert report.messages == 2
        assert [number for number, _ in report.problems] == [3, 4]

    def test_progress_is_told(self) -> None:
        """A long import tells how far it is, and that it is done."""
        heard: list[Event] = []
        store = self.store(sink=heard.append)
        given = lines(*({"session_id": "a", "content": f"m{place}"} for place in range(2_500)))

        store.transfer.import_lines(given, source="import:test", total=2_500)

        told = [(event.done, event.total) for event in heard if isinstance(event, Progressed)]
        assert len(told) > 1
        assert told == sorted(told)
        assert told[-1] == (2_500, 2_500)

    def test_export_and_import_lose_nothing(self) -> None:
        """What is exported and imported elsewhere is the same: messages, lineage, contexts, notes, prompts."""
        store, other = self.store(), self.store()
        conversation(store)

        report = imported(other, exported(store, raw=True))

        assert report.bad == 0
        assert without_ids(other) == without_ids(store)
        for name in map(SessionId, ("first", "second", "side")):
            assert [one.message for one in other.context(name)] == [one.message for one in store.context(name)]
            assert other.session(name) == store.session(name)
        assert other.system_prompt(SessionId("first")) == "p"
        assert other.read_note(SessionId("second"), "streak") == 2
        again = imported(other, exported(store))
        assert (again.messages, again.sessions) == (0, 0)

    def test_what_was_sent_is_exported_only_raw(self) -> None:
        """`api_content` and the prompt are in no export but a raw one; each session begins with its own line."""
        store = self.store()
        conversation(store)

        plain, raw = list(store.transfer.export()), list(store.transfer.export(raw=True))

        assert "question with recall" not in dumps([*plain])
        assert "question with recall" in dumps([*raw])
        assert not any("system_prompt" in line for line in plain)
        assert [line["session_id"] for line in plain if line.get("type") == "session"] == ["first", "second", "side"]
        assert plain[0]["type"] == "session"
        side = store.transfer.export(session_id=SessionId("side"))
        assert [line.get("content") for line in side][1:] == ["aside"]

    def test_rewound_messages_are_not_exported(self) -> None:
        """What was taken back is in no export, and importing that export back adds nothing."""
        store, name, ids = self.filled(3)
        store.rewind(name, ids[1])
        store.append(name, [said("anew")])

        given = exported(store)
        report = imported(store, given)

        assert [line.get("content") for line in store.transfer.export()][1:] == ["word0", "anew"]
        assert (report.messages, report.known) == (0, 2)

    def test_an_import_does_not_bring_back_what_was_forgotten(self) -> None:
        """A forgotten session or message stays away, whatever file brings it again."""
        store = self.store()
        given = lines(
            {"session_id": "gone", "content": "hidden pangolin"},
            {"session_id": "kept", "content": "open pelican"},
            {"session_id": "kept", "content": "hidden pangolin too", "external_id": "x1"},
            {"session_id": "kept", "content": "hidden pangolin again"},
        )
        imported(store, given)
        store.forgetting.carry_out(store.forgetting.plan_sessions([SessionId("gone")]))
        store.forgetting.carry_out(store.forgetting.plan_query("hidden pangolin"))

        report = imported(store, given)

        assert (report.messages, report.known, report.forgotten) == (0, 1, 3)
        assert texts(store.messages(SessionId("kept"))) == ["open pelican"]

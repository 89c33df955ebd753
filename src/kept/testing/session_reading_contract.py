"""The contract of every session store for readers: what is found, shown and named of past conversations."""

from kept.core.errors import NotFound, UsageError
from kept.core.ids import MessageId, SessionId
from kept.core.messages import Link, Message, NewMessage, Origin, Role
from kept.core.search import SearchRequest
from kept.testing.session_store_contract import START, SessionStoreContract, Summarised, refusal, said, session, texts

UNKNOWN = (MessageId(0), MessageId(-1), MessageId(10**30), MessageId(999_999))


class ReadingContract(SessionStoreContract):
    """What holds for whoever reads: windows, edges, previews, links, names."""

    def test_a_message_is_shown_unless_it_was_taken_back_or_thrown_away(self) -> None:
        """One message comes back as the session has it; unknown, rewound and trashed ones are None."""
        store, name, ids = self.filled(3)

        assert [store.message(number) for number in ids] == store.messages(name)
        assert [store.message(number) for number in UNKNOWN] == [None] * len(UNKNOWN)
        store.rewind(name, ids[2])
        assert store.message(ids[2]) is None
        store.upkeep.delete([name])
        assert store.message(ids[0]) is None
        assert isinstance(refusal(lambda: store.window(ids[0], before=1, after=1)), NotFound)

    def test_messages_come_by_their_ids_in_order(self) -> None:
        """Whatever the order they are asked in, those that can be shown come in order of their ids."""
        store, name, ids = self.filled(4)
        store.create(session("gone"))
        gone = store.append(SessionId("gone"), [said("hidden")])
        store.rewind(name, ids[3])
        store.upkeep.delete([SessionId("gone")])

        found = store.messages_by_id([*gone, *reversed(ids), *UNKNOWN])

        assert texts(found) == ["word0", "word1", "word2"]
        assert store.messages_by_id([]) == []

    def test_edges_are_the_first_and_the_last_own_messages(self) -> None:
        """Both ends come in order and overlap in a short session; rewound and carried messages are in neither."""
        store, name, ids = self.filled(6)
        store.rewind(name, ids[5])

        first, last = store.edges(name, first=2, last=2)
        assert (texts(first), texts(last)) == (["word0", "word1"], ["word3", "word4"])
        whole, none = store.edges(name, first=50, last=0)
        assert (len(whole), none) == (5, [])
        assert texts(store.edges(name, first=4, last=4)[1]) == ["word1", "word2", "word3", "word4"]
        child = store.compact(
            name, Summarised(Message(Role.USER, "so far"), ids[:3], [], ids[3:5], False, SessionId("child"))
        )
        assert texts(store.edges(child, first=9, last=0)[0]) == ["so far"]

    def test_messages_before_one_are_counted_in_its_session(self) -> None:
        """Only what the session itself shows counts, whatever stands between in other sessions."""
        store, name, ids = self.filled(3)
        store.create(session("other"))
        store.append(SessionId("other"), [said("between")])
        (later,) = store.append(name, [said("word3")])

        assert [store.count_before(name, number) for number in (*ids, later)] == [0, 1, 2, 3]
        store.rewind(name, ids[1])
        (again,) = store.append(name, [said("anew")])
        assert store.count_before(name, again) == 1

    def test_the_ids_of_the_context_are_those_of_its_messages(self) -> None:
        """Carried messages, the summary and own ones are named in the order in which the model is sent them."""
        store, name, ids = self.filled(5)
        child = store.compact(
            name, Summarised(Message(Role.USER, "so far"), ids[1:3], ids[:1], ids[3:], False, SessionId("child"))
        )
        store.append(child, [said("new")])

        for one in (name, child):
            assert store.context_ids(one) == [message.id for message in store.context(one)]
        assert texts(store.messages_by_id(store.context_ids(child)[:1])) == ["word0"]

    def test_a_preview_is_what_the_person_first_said(self) -> None:
        """Neither the assistant nor a summary is previewed; without a person's word it is empty."""
        store = self.store()
        store.create(session("a"))
        name = SessionId("a")
        assert store.preview(name) == ""

        summary = NewMessage(Message(Role.USER, "so far"), START, Origin.SYNTHETIC)
        ids = store.append(name, [summary, said("Hello", Role.ASSISTANT), said("First " + "x" * 9_000), said("second")])
        assert store.preview(name).startswith("First x")
        assert len(store.preview(name)) < 1_000
        store.rewind(name, ids[2])
        assert store.preview(name) == ""

    def test_the_links_lead_through_a_conversation(self) -> None:
        """Compressions and branches are one conversation, a delegate is not; an unknown id stands alone."""
        store, name, ids = self.filled(4)
        child = store.compact(
            name, Summarised(Message(Role.USER, "so far"), ids[:2], [], ids[2:], False, SessionId("child"))
        )
        store.branch(child, at=None, new=session("side"))
        store.create(session("helper", parent_session_id=name, link=Link.DELEGATE))

        links = store.lineage()

        assert links.root(SessionId("side")) == links.root(child) == name
        assert (links.chain(child), links.family(child)) == ([name, child], [name, child, "side"])
        assert links.root(SessionId("helper")) == "helper"
        assert links.family(SessionId("nobody")) == ["nobody"]

    def test_archived_sessions_are_listed_when_they_are_asked_for(self) -> None:
        """A list leaves archived conversations out; with them it keeps its order."""
        store = self.store()
        for moment, name in enumerate(("a", "b", "c")):
            store.create(session(name))
            store.append(SessionId(name), [said("x", at=START + moment)])
        store.upkeep.archive(SessionId("b"))

        assert [one.id for one in store.recent(limit=5)] == ["c", "a"]
        assert [one.id for one in store.recent(limit=5, archived=True)] == ["c", "b", "a"]

    def test_a_session_is_named_by_id_title_or_beginning(self) -> None:
        """People may say the title or the beginning of an id; what is not clear is refused."""
        store = self.store()
        for name in ("20260101_aaa", "20260102_bbb"):
            store.create(session(name))
        store.rename(SessionId("20260102_bbb"), "Plan")

        for name in ("Plan", " 20260102 ", "20260102_bbb"):
            assert store.resolve(name) == "20260102_bbb"
        assert type(refusal(lambda: store.resolve("2026"))) is UsageError
        for name in ("nothing", ""):
            assert isinstance(refusal(lambda name=name: store.resolve(name)), NotFound)  # type: ignore[misc] # bound early

    def test_a_search_holds_its_filters(self) -> None:
        """Sources, roles, sessions and moments narrow what is found; what the context shows is left out."""
        store = self.store()
        for name, source in (("a", "cli"), ("b", "web")):
            store.create(session(name, source=source))
            store.append(SessionId(name), [said("a quiet okapi", at=START), said("the okapi again", Role.ASSISTANT)])
        ids = [message.id for message in store.messages(SessionId("a"))]

        def owners(**filters: object) -> set[str]:
            found = store.search(SearchRequest("okapi", **filters))  # type: ignore[arg-type] # fields of the request
            return {hit.session_id for hit in found.messages}

        assert owners() == {"a", "b"}
        assert owners(sources=("web",)) == owners(session_id=SessionId("b")) == {"b"}
        assert owners(exclude_messages=frozenset(ids)) == owners(exclude_sessions=(SessionId("a"),)) == {"b"}
        assert owners(after=START + 1) == owners(before=START) == set()
        roles = store.search(SearchRequest("okapi", roles=("assistant",))).messages
        assert {hit.message_id for hit in roles} == {ids[1], ids[1] + 2}

    def test_any_query_is_answered(self) -> None:
        """No text is an error, however it is written; what nobody said gives an empty answer that abstains."""
        store, _, _ = self.filled(3)

        for query in ("", " ", '"', "AND OR NOT", "((", "*", "a\x00b", "\ud800", "x" * 10_000, "日本", "-- ; DROP"):
            store.search(SearchRequest(query))
        nothing = store.search(SearchRequest("zyzzyva"))
        assert (nothing.messages, nothing.abstained) == ((), True)

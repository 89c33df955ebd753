"""The contract of every session store for maintenance: archive, trash, prune, forget, usage and repair."""

from datetime import UTC, datetime

from wellkept.core.clock import FixedClock
from wellkept.core.errors import NotFound
from wellkept.core.ids import MessageId, SessionId, UserId
from wellkept.core.messages import ImagePart, Message, NewMessage, Origin, Role, Usage
from wellkept.core.search import SearchRequest
from wellkept.core.text import dumps
from wellkept.sessions.ports import Sessions
from wellkept.sessions.reports import BLANK, sum_usage
from wellkept.testing.session_store_contract import SessionStoreContract, Summarised, refusal, said, session, texts

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY_SECONDS = 86_400.0


def talk(store: Sessions, name: str, *words: str, source: str = "cli", days_ago: float = 0.0) -> list[MessageId]:
    """Store a session with user messages from that many days ago."""
    at = NOW.timestamp() - days_ago * DAY_SECONDS
    store.create(session(name, source=source, started=at))
    return store.append(SessionId(name), [said(text, at=at) for text in words])


class KeepingContract(SessionStoreContract):
    """Archive, trash, prune, forget and statistics of whole conversations."""

    def test_a_message_can_be_overwritten_in_its_place(self) -> None:
        """Order and id stay; search finds the new words and not the old ones."""
        store = self.store()
        first, second = talk(store, "a", "the old zebra", "after it")
        store.transfer.overwrite(first, said("the new giraffe", at=NOW.timestamp()))
        found = [store.search(SearchRequest(word)).sessions for word in ("zebra", "giraffe")]

        assert texts(store.messages(SessionId("a"))) == ["the new giraffe", "after it"]
        assert [message.id for message in store.messages(SessionId("a"))] == [first, second]
        assert [len(hits) for hits in found] == [0, 1]
        assert store.upkeep.check() == []

    def test_an_import_can_be_undone(self) -> None:
        """Its messages go with their usage; a session goes only when it is empty."""
        store = self.store()
        gone, kept = talk(store, "a", "one"), talk(store, "b", "two", "three")
        store.add_usage(SessionId("a"), task="chat", model="m", usage=Usage(1, 2), cost=None)
        sessions = [SessionId("a"), SessionId("b")]
        removed = store.transfer.undo_import([*gone, kept[0]], sessions=sessions, usage=store.usage())

        assert removed == [SessionId("a")]
        assert store.session(SessionId("a")) is None
        assert texts(store.messages(SessionId("b"))) == ["three"]
        assert store.usage() == []

    def test_an_archived_conversation_is_found_but_not_listed(self) -> None:
        """Archiving hides a conversation and its chain from lists, not from search; undo shows it again."""
        store = self.store()
        ids = talk(store, "a", "first okapi", "second okapi")
        store.compact(
            SessionId("a"), Summarised(Message(Role.USER, "so far"), ids[:-1], [], ids[-1:], False, SessionId("b"))
        )

        assert store.upkeep.archive(SessionId("b")) == ["a", "b"]
        assert store.recent(limit=5) == []
        assert store.search(SearchRequest("okapi")).messages
        store.upkeep.archive(SessionId("a"), archived=False)
        assert len(store.recent(limit=5)) == 2
        assert isinstance(refusal(lambda: store.upkeep.archive(SessionId("nobody"))), NotFound)

    def test_a_deleted_conversation_can_be_restored(self) -> None:
        """A deleted conversation is in no list and no search until it is restored."""
        store = self.store()
        talk(store, "a", "hidden okapi")
        name = SessionId("a")

        assert store.upkeep.delete([name, name]) == ["a"]
        assert store.session(name) is None
        assert store.search(SearchRequest("okapi")).messages == ()
        assert isinstance(refusal(lambda: store.append(name, [said("x")])), NotFound)
        assert isinstance(refusal(lambda: store.upkeep.delete([name])), NotFound)
        assert [one.id for one in store.upkeep.trash()] == ["a"]

        assert store.upkeep.restore(name) == ["a"]
        assert store.search(SearchRequest("okapi")).messages
        assert isinstance(refusal(lambda: store.upkeep.restore(name)), NotFound)

    def test_the_trash_empties_itself_after_its_days(self) -> None:
        """Thirty days after a delete the session is removed permanently; its id may be used again."""
        clock = FixedClock(NOW)
        store = self.store(clock=clock)
        talk(store, "a", "hidden okapi")
        image = Message(Role.USER, (ImagePart("image/png", "QUJDRA=="),))
        store.append(SessionId("a"), [NewMessage(image, NOW.timestamp(), Origin.PERSON)])
        store.upkeep.delete([SessionId("a")])

        assert store.upkeep.sweep().sessions == 0
        clock.forward(days=31)
        removed = store.upkeep.sweep()

        assert (removed.sessions, removed.messages, removed.blobs) == (1, 2, 1)
        assert store.upkeep.trash() == []
        assert isinstance(refusal(lambda: store.upkeep.restore(SessionId("a"))), NotFound)
        talk(store, "a", "another life")
        assert texts(store.messages(SessionId("a"))) == ["another life"]

    def test_what_a_branch_carries_stays(self) -> None:
        """Removing a session leaves the messages that a branch carries; they become the branch's own."""
        store = self.store()
        ids = talk(store, "a", "one", "two", "three")
        store.branch(SessionId("a"), at=ids[1], new=session("side"))
        side = SessionId("side")
        store.append(side, [said("aside")])

        store.upkeep.delete([SessionId("a")])
        removed = store.upkeep.sweep(days=0)

        assert removed.messages == 1
        assert texts(store.context(side)) == texts(store.messages(side)) == ["one", "two", "aside"]
        found = store.session(side)
        assert found is not None
        assert found.message_count == 3

    def test_prune_selects_idle_sessions(self) -> None:
        """Prune selects sessions by idle days, by source, or the oldest ones until the rest fits."""
        store = self.store(clock=FixedClock(NOW))
        for number in range(5):
            talk(store, f"s{number}", "x" * 1_000, source="web" if number % 2 else "cli", days_ago=number * 10)

        def prune(days: float | None = None, source: str | None = None, most_bytes: int | None = None) -> list[str]:
            found = store.upkeep.prunable(days=days, source=source, most_bytes=most_bytes)
            assert found.text_bytes == 1_000 * len(found.sessions)
            return [one.id for one in found.sessions]

        assert prune(days=15) == ["s4", "s3", "s2"]
        assert prune(days=15, source="web") == ["s3"]
        assert prune(most_bytes=3_500) == ["s4", "s3"]

    def test_forgetting_a_session_is_final(self) -> None:
        """Nothing finds it; a branch loses the messages that it carried, and its summaries of them are blanked."""
        store = self.store()
        ids = talk(store, "a", "one okapi", "two okapi")
        store.branch(SessionId("a"), at=None, new=session("side"))
        about = Message(Role.USER, "about the okapi")
        store.compact(SessionId("side"), Summarised(about, ids[:1], [], ids[1:], True, None))

        plan = store.forgetting.plan_sessions([SessionId("a")])
        assert (plan.sessions, plan.message_count) == (("a",), 2)
        report = store.forgetting.carry_out(plan)

        assert (report.sessions, report.messages, report.still_found, report.bytes_gone) == (1, 2, 0, True)
        assert texts(store.context(SessionId("side"))) == [BLANK]
        assert store.search(SearchRequest("okapi")).messages == ()
        assert store.forgetting.plan_sessions([SessionId("a")]).is_empty

    def test_forgetting_words_takes_only_the_messages_that_hold_them(self) -> None:
        """Messages and titles with the words, in any letter case, are removed; the rest of the session stays."""
        store = self.store()
        talk(store, "a", "The Quixotopia harvest", "parsnips")
        store.rename(SessionId("a"), "On Quixotopia")

        assert store.forgetting.plan_query("  ").is_empty
        report = store.forgetting.carry_out(store.forgetting.plan_query("QUIXOTOPIA"))

        assert (report.messages, report.still_found) == (1, 0)
        assert texts(store.messages(SessionId("a"))) == ["parsnips"]
        found = store.session(SessionId("a"))
        assert found is not None
        assert (found.title, found.message_count) == (None, 1)

    def test_a_session_whose_id_holds_the_words_gets_a_neutral_one(self) -> None:
        """Its messages, notes and branches stay together; no import brings it back under the old id."""
        store = self.store()
        name = SessionId("call-Quixotopia-71")
        ids = talk(store, name, "one okapi", "two")
        store.rename(name, "Kept title")
        store.note(name, "k", "v")
        store.branch(name, at=None, new=session("side"))
        lines = list(store.transfer.export(session_id=name))

        plan = store.forgetting.plan_query("quixotopia")
        report = store.forgetting.carry_out(plan)

        neutral = SessionId(store.forgetting.prepare_neutral_ids()(name))
        assert (plan.renamed, plan.messages, report.messages) == ((name,), (), 0)
        assert "quixotopia" not in neutral.casefold()
        assert store.session(name) is None
        found = store.session(neutral)
        assert found is not None
        assert (found.title, found.message_count, store.read_note(neutral, "k")) == ("Kept title", 2, "v")
        assert [row.id for row in store.messages(neutral)] == ids
        assert texts(store.context(SessionId("side"))) == ["one okapi", "two"]
        assert {hit.session_id for hit in store.search(SearchRequest("okapi")).messages} == {neutral}
        assert store.upkeep.check() == []
        store.transfer.import_lines([dumps(line).encode() for line in lines], source="import:test")
        assert store.session(name) is None

    def test_forgetting_a_user_leaves_the_others(self) -> None:
        """Every session of that user is removed, also from the trash, and no other."""
        store = self.store()
        ann, bob = store.for_user(UserId("ann")), store.for_user(UserId("bob"))
        for own, name in ((ann, "a"), (bob, "b"), (ann, "c")):
            own.create(session(name))
            own.append(SessionId(name), [said("okapi")])
        ann.upkeep.delete([SessionId("c")])

        plan = ann.forgetting.plan_everything()
        ann.forgetting.carry_out(plan)

        assert set(plan.sessions) == {"a", "c"}
        assert (ann.recent(limit=5), ann.upkeep.trash()) == ([], [])
        assert [one.id for one in bob.recent(limit=5)] == ["b"]
        assert store.users() == ["bob"]

    def test_a_forgotten_entry_leaves_the_prompts(self) -> None:
        """A stored prompt that shows a memory entry is dropped with it; others stay."""
        store = self.store()
        store.create(session("a"), system_prompt="They live in Quixotopia.")
        store.create(session("b"), system_prompt="They like parsnips.")

        assert store.forgetting.scrub_entries(["lives in", "live in quixotopia"]) == 1
        assert (store.system_prompt(SessionId("a")), store.system_prompt(SessionId("b"))) == (
            None,
            "They like parsnips.",
        )

    def test_usage_is_counted_by_day_model_and_task(self) -> None:
        """Calls are summed by their key; unknown prices stay unknown; forgetting a session keeps the totals."""
        clock = FixedClock(NOW)
        store = self.store(clock=clock)
        talk(store, "a", "x")
        name = SessionId("a")
        for cost in (0.5, 0.25):
            store.add_usage(name, task="main", model="m1", usage=Usage(10, 5, 80, 10), cost=cost)
        clock.forward(days=1)
        store.add_usage(name, task="title", model="m2", usage=Usage(1, 1), cost=None)

        by_model = {one.key: one for one in sum_usage(store.usage(), lambda row: row.model)}

        assert (by_model["m1"].calls, by_model["m1"].cost, by_model["m1"].usage) == (2, 0.75, Usage(20, 10, 160, 20))
        assert by_model["m2"].cost is None
        assert [row.model for row in store.usage(since="2026-06-02")] == ["m2"]
        store.forgetting.carry_out(store.forgetting.plan_sessions([name]))
        assert {one.key: one for one in sum_usage(store.usage(), lambda row: row.model)} == by_model
        assert store.usage(session_id=name) == []

    def test_nodes_come_back_in_order(self) -> None:
        """The lossless engine's nodes keep their depth, text and children, each under its session."""
        store, name, ids = self.open_filled(2)

        leaf = store.add_node(name, depth=0, text="a leaf", children=ids)
        top = store.add_node(name, depth=1, text="the top", children=[leaf])

        assert store.nodes(name) == [(leaf, 0, "a leaf", tuple(ids)), (top, 1, "the top", (leaf,))]
        assert store.nodes(SessionId("nobody")) == []

    def test_statistics_count_what_is_there(self) -> None:
        """Sessions, messages, bytes of text, growth by month and the biggest sessions are reported."""
        store = self.store(clock=FixedClock(NOW))
        talk(store, "a", "x" * 500)
        talk(store, "b", "y")
        talk(store, "c", "z")
        store.upkeep.delete([SessionId("c")])

        stats = store.upkeep.stats(biggest=1)

        assert (stats["sessions"], stats["in_trash"]) == (2, 1)
        assert stats["growth"] == [{"month": "2026-06", "messages": 3, "text_bytes": 502}]
        assert stats["biggest"] == [{"session_id": "a", "title": None, "messages": 1, "text_bytes": 500}]

    def test_maintenance_leaves_an_intact_store_unchanged(self) -> None:
        """The check finds nothing; after a rebuild of the index and an optimisation, searches give the same results."""
        store, _, ids = self.open_filled(4)

        def found() -> list[MessageId]:
            return [hit.message_id for hit in store.search(SearchRequest("word2")).messages]

        before = found()

        assert store.upkeep.check() == []
        assert store.upkeep.reindex() == len(ids)
        store.upkeep.optimize(vacuum=True)

        assert found() == before
        assert before[0] == ids[2]
        coverage = store.upkeep.coverage()
        assert (coverage.model, coverage.covered, coverage.waiting) == (None, 0, len(ids))

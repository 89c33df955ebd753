"""The contract of every session store for several users of one database: no user sees or changes another's data."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from wellkept.core.clock import FixedClock
from wellkept.core.errors import NotFound
from wellkept.core.ids import MessageId, SessionId, UserId
from wellkept.core.messages import Link, Message, NewMessage, Origin, Role, Usage
from wellkept.core.search import SearchRequest
from wellkept.core.text import JSON, dumps
from wellkept.sessions.ports import Sessions
from wellkept.sessions.reports import BLANK
from wellkept.testing.session_store_contract import (
    START,
    SessionStoreContract,
    Summarised,
    refusal,
    said,
    session,
    texts,
)

ANN, BOB = UserId("ann"), UserId("bob")
ANNS, BOBS = SessionId("20250615_ann"), SessionId("20250615_bob")
NOBODYS = SessionId("20250615_nobody")
NOW = datetime(2025, 6, 15, 15, tzinfo=UTC)
PROMPT = "You help with parsnips."
"""Both use the same prompt, which a store may keep once."""


class UserContract(SessionStoreContract):
    """Every method of the port, called by one user with the ids of another."""

    def both(self) -> tuple[Sessions, Sessions, list[MessageId]]:
        """Return the stores of Ann and Bob on one database, and the ids of Ann's four messages."""
        store = self.store()
        ann, bob = store.for_user(ANN), store.for_user(BOB)
        for own, name in ((ann, ANNS), (bob, BOBS)):
            own.create(session(name), system_prompt=PROMPT)
        ids = ann.append(ANNS, [said(f"a quiet okapi, word{number}", at=START + number) for number in range(4)])
        bob.append(BOBS, [said("parsnips in rows"), said("and their harvest", Role.ASSISTANT)])
        return ann, bob, ids

    def test_a_view_is_of_one_user(self) -> None:
        """A store has one user, opens a store for another user, and lists every user with a session."""
        store = self.store()
        ann = store.for_user(ANN)
        ann.create(session("a", user_id="bob"))

        assert (store.user, ann.user, ann.for_user(BOB).user) == ("owner", ANN, BOB)
        assert store.users() == ann.users() == ["ann"]
        found = ann.session(SessionId("a"))
        assert found is not None
        assert found.user_id == ANN

    def test_reading_by_id_gives_what_an_unknown_id_gives(self) -> None:
        """Sessions, messages, contexts, notes and nodes of another user do not exist."""
        ann, bob, ids = self.both()
        ann.note(ANNS, "key", "value")
        ann.add_node(ANNS, depth=0, text="a node", children=ids)

        reads: list[Callable[[SessionId], object]] = [
            bob.session,
            bob.context_ids,
            bob.preview,
            bob.nodes,
            lambda one: bob.edges(one, first=2, last=2),
            lambda one: bob.count_before(one, MessageId(ids[-1])),
            lambda one: bob.read_note(one, "key"),
            lambda one: list(bob.transfer.export(session_id=one)),
            lambda one: bob.forgetting.plan_sessions([one]),
        ]
        for read in reads:
            assert read(ANNS) == read(NOBODYS)
        assert [bob.message(number) for number in ids] == [None] * 4
        assert [bob.passage(number, window=1) for number in ids] == [None] * 4
        assert bob.messages_by_id(ids) == []
        assert ann.messages_by_id(ids) == ann.messages(ANNS)

    def test_naming_anothers_session_is_naming_none(self) -> None:
        """Every call that needs a session or a message raises NotFound for those of another user."""
        _, bob, ids = self.both()

        acts: list[Callable[[], object]] = [
            lambda: bob.messages(ANNS),
            lambda: bob.context(ANNS),
            lambda: bob.system_prompt(ANNS),
            lambda: bob.tip(ANNS),
            lambda: bob.window(ids[1], before=1, after=1),
            lambda: bob.resolve(ANNS),
            lambda: bob.append(ANNS, [said("x")]),
            lambda: bob.set_system_prompt(ANNS, "x"),
            lambda: bob.end(ANNS, "x"),
            lambda: bob.reopen(ANNS),
            lambda: bob.rename(ANNS, "x"),
            lambda: bob.rewind(ANNS, ids[1]),
            lambda: bob.restore_rewound(ANNS),
            lambda: bob.branch(ANNS, at=None, new=session("x")),
            lambda: bob.branch(BOBS, at=ids[1], new=session("x")),
            lambda: bob.rewind(BOBS, ids[1]),
            lambda: bob.compact(ANNS, Summarised(Message(Role.USER, "s"), ids, [], [], True, None)),
            lambda: bob.note(ANNS, "key", 1),
            lambda: bob.add_node(ANNS, depth=0, text="x", children=[]),
            lambda: bob.upkeep.archive(ANNS),
            lambda: bob.upkeep.delete([ANNS]),
            lambda: bob.upkeep.restore(ANNS),
        ]

        for place, act in enumerate(acts):
            assert isinstance(refusal(act), NotFound), place

    def test_a_refused_call_changes_nothing(self) -> None:
        """After every attempt of another user, a session is as it was, down to its last line."""
        ann, bob, ids = self.both()
        before = export_lines(ann)

        for act in attempts(bob, ids):
            try:
                act()
            except NotFound:
                continue

        assert export_lines(ann) == before
        assert [one.id for one in ann.recent(limit=5)] == [ANNS]
        assert ann.upkeep.trash() == []

    def test_lists_show_own_sessions(self) -> None:
        """Recent, trashed and resolved sessions are the user's own, also by the same title or beginning."""
        ann, bob, _ = self.both()
        assert ann.rename(ANNS, "Plan") == bob.rename(BOBS, "Plan") == "Plan"
        for name in ("a2", "a3"):
            ann.create(session(name, title="Plan"))
        bob.create(session("b2"))

        assert bob.rename(SessionId("b2"), "Plan") == "Plan #2"
        bob.upkeep.delete([SessionId("b2")])
        ann.upkeep.delete([SessionId("a2"), SessionId("a3")])
        bob.forgetting.carry_out(bob.forgetting.plan_sessions([SessionId("b2")]))
        ann.forgetting.carry_out(ann.forgetting.plan_sessions([SessionId("a2"), SessionId("a3")]))
        assert [one.id for one in bob.recent(limit=5)] == [BOBS]
        assert bob.resolve("Plan") == bob.resolve("2025") == BOBS
        ann.upkeep.delete([ANNS])
        assert ([one.id for one in ann.upkeep.trash()], bob.upkeep.trash()) == ([ANNS], [])
        assert isinstance(refusal(lambda: bob.upkeep.restore(ANNS)), NotFound)
        assert ann.upkeep.restore(ANNS) == [ANNS]

    def test_a_search_finds_own_messages(self) -> None:
        """Words, phrases and an empty hit list: another user's messages are neither found nor counted."""
        ann, bob, _ = self.both()

        for query in ("okapi", '"quiet okapi"', "okapi AND quiet", "word2", "okap*"):
            found = bob.search(SearchRequest(query))
            assert (found.messages, found.sessions, dict(found.excluded)) == ((), (), {}), query
        inside, nowhere = (bob.search(SearchRequest("okapi", session_id=one)) for one in (ANNS, NOBODYS))
        assert inside == nowhere
        assert len(ann.search(SearchRequest("okapi")).messages) == 4
        assert {hit.session_id for hit in bob.search(SearchRequest("parsnips")).messages} == {BOBS}

    def test_links_do_not_cross_users(self) -> None:
        """A session that names another user's as its parent is in no conversation with it, seen from either side."""
        ann, bob, ids = self.both()
        later = ann.compact(ANNS, Summarised(Message(Role.USER, "so far"), ids[:2], [], ids[2:], False, None))
        bob.create(session("b2", parent_session_id=ANNS, link=Link.COMPRESSION))
        ann.create(session("a2", parent_session_id=NOBODYS, link=Link.COMPRESSION))
        claimed = SessionId("b2")

        assert (ann.lineage().root(SessionId("a2")), bob.lineage().root(SessionId("a2"))) == (NOBODYS, "a2")
        assert (ann.tip(ANNS), ann.lineage().family(ANNS)) == (later, [ANNS, later])
        assert bob.lineage().root(claimed) == claimed
        assert bob.lineage().root(later) == later
        assert bob.lineage().family(ANNS) == [ANNS, claimed]
        assert isinstance(refusal(lambda: bob.branch(claimed, at=ids[1], new=session("x"))), NotFound)
        assert bob.upkeep.delete([claimed]) == [claimed]
        assert bob.forgetting.plan_sessions([claimed]).sessions == (claimed,)
        assert ann.upkeep.archive(ANNS) == [ANNS, later]

    def test_a_compaction_takes_own_messages(self) -> None:
        """Another user's messages are neither covered nor carried, whatever a compaction names."""
        ann, bob, ids = self.both()
        summary = Message(Role.USER, "so far")

        bob.compact(BOBS, Summarised(summary, ids[:2], ids[2:3], ids[3:], True, None))
        child = bob.compact(BOBS, Summarised(summary, ids[:2], ids[2:3], ids[3:], False, SessionId("child")))

        assert texts(bob.context(BOBS)) == texts(bob.context(child)) == ["so far"]
        assert ann.context(ANNS) == ann.messages(ANNS)
        assert [one.id for one in ann.context(ANNS)] == ids

    def test_sessions_that_grow_out_of_own_ones_are_own(self) -> None:
        """A branch and the child of a compaction belong to the user of the store, whatever they are given."""
        _, bob, _ = self.both()

        bob.branch(BOBS, at=None, new=session("side", user_id="ann"))
        bob.compact(BOBS, Summarised(Message(Role.USER, "s"), [], [], [], False, SessionId("child")))

        assert {one.id for one in bob.recent(limit=5)} == {BOBS, "side", "child"}

    def test_usage_is_counted_by_user(self) -> None:
        """Model calls, also under the same session id or of a forgotten session, are the user's own."""
        ann, bob, _ = self.both()
        for own, tokens in ((ann, 10), (bob, 1)):
            own.add_usage(ANNS, task="main", model="m", usage=Usage(tokens, tokens), cost=None)

        assert [row.usage.input_tokens for row in ann.usage()] == [10]
        assert [row.usage.input_tokens for row in bob.usage(session_id=ANNS)] == [1]
        ann.forgetting.carry_out(ann.forgetting.plan_everything())
        assert [(row.session_id, row.usage.input_tokens) for row in ann.usage()] == [("", 10)]
        assert [(row.session_id, row.usage.input_tokens) for row in bob.usage()] == [(ANNS, 1)]

    def test_pruning_and_statistics_look_at_own_sessions(self) -> None:
        """Idle sessions, text sizes and the biggest sessions are those of the store's user."""
        clock = FixedClock(NOW)
        store = self.store(clock=clock)
        ann, bob = store.for_user(ANN), store.for_user(BOB)
        for own, name, text in ((ann, ANNS, "x" * 5_000), (bob, BOBS, "y" * 10), (ann, SessionId("gone"), "z")):
            own.create(session(name))
            own.append(name, [said(text)])
        ann.upkeep.delete([SessionId("gone")])
        clock.forward(days=60)

        assert [one.id for one in bob.upkeep.prunable(days=30, source=None).sessions] == [BOBS]
        assert bob.upkeep.prunable(days=None, source=None, most_bytes=10).sessions == ()
        stats = bob.upkeep.stats()
        assert (stats["sessions"], stats["in_trash"], stats["messages"], stats["text_bytes"]) == (1, 0, 1, 10)
        assert stats["growth"] == [{"month": "2025-06", "messages": 1, "text_bytes": 10}]
        assert stats["biggest"] == [{"session_id": BOBS, "title": None, "messages": 1, "text_bytes": 10}]

    def test_emptying_the_trash_leaves_that_of_others(self) -> None:
        """`days` is about one's own sessions; those of others are removed after the retention time and not reported."""
        clock = FixedClock(NOW)
        store = self.store(clock=clock)
        ann, bob = store.for_user(ANN), store.for_user(BOB)
        for own, name in ((ann, ANNS), (bob, BOBS)):
            own.create(session(name))
            own.upkeep.delete([name])

        assert bob.upkeep.sweep(days=0).sessions == 1
        assert [one.id for one in ann.upkeep.trash()] == [ANNS]
        clock.forward(days=60)
        assert bob.upkeep.sweep().sessions == 0
        assert ann.upkeep.trash() == []

    def test_forgetting_words_leaves_what_others_said(self) -> None:
        """Messages, titles, notes, nodes, prompts and quotations of another user stay, with or without the words."""
        ann, bob, ids = self.both()
        words = "PARSNIPS"
        ann.append(ANNS, [said("parsnips are mine"), quotation("parsnips", BOBS)])
        ann.rename(ANNS, "On parsnips")
        ann.note(ANNS, "wish", "parsnips")
        ann.add_node(ANNS, depth=0, text="of parsnips", children=ids)
        before = export_lines(ann)
        nodes = ann.nodes(ANNS)

        plan = bob.forgetting.plan_query(words)
        bob.forgetting.carry_out(plan)

        assert (plan.message_count, plan.titles, plan.nodes, plan.citing) == (1, (), (), ())
        assert (export_lines(ann), ann.nodes(ANNS), ann.system_prompt(ANNS)) == (before, nodes, PROMPT)
        assert bob.system_prompt(BOBS) is None
        assert texts(bob.messages(BOBS)) == ["and their harvest"]

    def test_forgetting_sessions_leaves_what_others_said(self) -> None:
        """A plan takes own sessions only, and another user's messages that name one are left as they are."""
        ann, bob, _ = self.both()
        ann.append(ANNS, [quotation("it is in", BOBS)])
        before = export_lines(ann)

        plan = bob.forgetting.plan_sessions([ANNS, BOBS])
        bob.forgetting.carry_out(plan)

        assert (plan.sessions, plan.citing) == ((BOBS,), ())
        assert (export_lines(ann), ann.system_prompt(ANNS)) == (before, PROMPT)
        assert export_lines(bob) == []

    def test_anothers_plan_cannot_be_carried_out(self) -> None:
        """Whatever a plan names, only data of the store's user is removed."""
        ann, bob, ids = self.both()
        ann.rename(ANNS, "On okapis")
        ann.append(ANNS, [NewMessage(Message(Role.USER, "so far"), START, Origin.SYNTHETIC)])
        ann.append(ANNS, [said("what was it?", api_content="what was it? (recalled: a quiet okapi)")])
        ann.add_node(ANNS, depth=0, text="an okapi", children=ids)
        before, nodes = export_lines(ann), ann.nodes(ANNS)

        plan = ann.forgetting.plan_query("okapi")
        assert all((plan.messages, plan.summaries, plan.citing, plan.nodes, plan.titles))
        for each in (ann.forgetting.plan_everything(), plan):
            bob.forgetting.carry_out(each)

        assert (export_lines(ann), ann.nodes(ANNS)) == (before, nodes)

    def test_forgotten_entries_leave_others_prompts_and_answers(self) -> None:
        """Entries of one user's pages are scrubbed from that user's prompts and answers."""
        ann, bob, _ = self.both()
        for own, name in ((ann, ANNS), (bob, BOBS)):
            own.append(name, [said('"parsnips"\n  — MEMORY.md', Role.ASSISTANT)])
            own.note(name, "wish", "parsnips")
        ann.create(session("a2"), system_prompt="Parsnips, again.")
        before = export_lines(ann)

        assert bob.forgetting.scrub_entries(["parsnips"]) == 1

        assert (export_lines(ann), ann.system_prompt(ANNS)) == (before, PROMPT)
        assert (bob.system_prompt(BOBS), bob.read_note(BOBS, "wish")) == (None, None)
        assert texts(bob.messages(BOBS))[-1] == BLANK

    def test_an_export_is_ones_own(self) -> None:
        """Without a name, an export holds every session of the user and none of another."""
        ann, bob, _ = self.both()

        assert {line["session_id"] for line in bob.transfer.export()} == {BOBS}
        assert {line["session_id"] for line in ann.transfer.export()} == {ANNS}

    def test_an_import_is_ones_own(self) -> None:
        """All imported lines belong to the user; lines of a session of somebody else are bad lines."""
        ann, bob, _ = self.both()
        others = self.store().for_user(UserId("cid"))
        others.create(session("c"))
        others.append(SessionId("c"), [said("a third voice")])
        before = export_lines(ann)

        report = bob.transfer.import_lines([*export_lines(ann), *export_lines(others)], source="import:test")

        assert (report.sessions, report.messages, report.bad) == (1, 1, 5)
        assert [number for number, _ in report.problems] == [1, 2, 3, 4, 5]
        assert export_lines(ann) == before
        found = bob.session(SessionId("c"))
        assert found is not None
        assert found.user_id == BOB

    def test_the_owner_restores_everybody(self) -> None:
        """The owner's store keeps the users that the lines name; a session that is there stays its user's."""
        ann, bob, _ = self.both()
        lines = [*export_lines(ann), *export_lines(bob)]
        restored = self.store()

        first = restored.transfer.import_lines(lines, source="import:test")
        again = restored.transfer.import_lines(lines, source="import:test")

        assert (first.sessions, first.messages, first.bad) == (2, 6, 0)
        assert (again.messages, again.known, again.bad) == (0, 6, 0)
        assert restored.users() == ["ann", "bob"]
        assert texts(restored.for_user(ANN).messages(ANNS)) == texts(ann.messages(ANNS))
        stray = [dumps({"session_id": ANNS, "role": "user", "content": "x", "timestamp": 1}).encode()]
        assert restored.transfer.import_lines(stray, source="import:test").bad == 1
        assert texts(restored.for_user(ANN).messages(ANNS)) == texts(ann.messages(ANNS))

    def test_what_one_user_forgot_another_may_import(self) -> None:
        """Forgotten sessions and messages are refused for the user who forgot them, and for nobody else."""
        ann, bob, _ = self.both()
        lines = export_lines(ann)
        ann.forgetting.carry_out(ann.forgetting.plan_query("word3"))
        part = ann.transfer.import_lines(lines, source="import:test")
        ann.forgetting.carry_out(ann.forgetting.plan_everything())

        mine = ann.transfer.import_lines(lines, source="import:test")
        theirs = bob.transfer.import_lines(lines, source="import:test")

        assert (part.messages, part.forgotten) == (0, 1)
        assert (mine.sessions, mine.messages, mine.forgotten) == (0, 0, 4)
        assert (theirs.sessions, theirs.messages, theirs.forgotten) == (1, 4, 0)

    def test_a_check_covers_every_user(self) -> None:
        """The check of a file searches as the user whose message it looks for."""
        ann, _, _ = self.both()

        assert ann.for_user(UserId("cid")).upkeep.check() == []


def export_lines(store: Sessions) -> list[bytes]:
    """Return everything of the user as lines, with what was sent to the model."""
    return [dumps(line).encode() for line in store.transfer.export(raw=True)]


def quotation(text: str, source: SessionId) -> NewMessage:
    """Return the result of a search that shows `text` of a session."""
    shown: dict[str, JSON] = {"results": [{"session_id": source, "text": text}]}
    message = Message(Role.TOOL, dumps(shown), tool_call_id="c", tool_name="session_search")
    return NewMessage(message, START, Origin.TOOL)


def attempts(store: Sessions, ids: list[MessageId]) -> Iterator[Callable[[], object]]:
    """Yield everything that would change Ann's session, if it were the store's own."""
    yield lambda: store.append(ANNS, [said("x")])
    yield lambda: store.set_system_prompt(ANNS, "x")
    yield lambda: store.end(ANNS, "x")
    yield lambda: store.reopen(ANNS)
    yield lambda: store.rename(ANNS, "x")
    yield lambda: store.rewind(ANNS, ids[1])
    yield lambda: store.restore_rewound(ANNS)
    yield lambda: store.compact(ANNS, Summarised(Message(Role.USER, "s"), ids, [], [], True, None))
    yield lambda: store.note(ANNS, "key", 1)
    yield lambda: store.add_node(ANNS, depth=0, text="x", children=[])
    yield lambda: store.upkeep.archive(ANNS)
    yield lambda: store.upkeep.delete([ANNS])
    yield lambda: store.upkeep.restore(ANNS)
    yield lambda: store.upkeep.sweep(days=0)
    yield lambda: store.forgetting.carry_out(store.forgetting.plan_sessions([ANNS]))
    yield lambda: store.forgetting.carry_out(store.forgetting.plan_query("okapi"))
    yield lambda: store.forgetting.carry_out(store.forgetting.plan_everything())
    yield lambda: store.forgetting.scrub_entries(["okapi", "parsnips"])

"""Two users share one database: neither sees, counts or changes anything of the other."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from wellkept.core.clock import FixedClock
from wellkept.core.ids import OWNER, UserId
from wellkept.core.tools import ToolContext
from wellkept.providers.audit import Audit, CallRecord, Health
from wellkept.providers.base import LedgerRow
from wellkept.providers.holographic import HolographicProvider
from wellkept.providers.holographic.store import FactStore
from wellkept.providers.loading import PluginPolicy, PluginSource
from wellkept.providers.outbox import Outbox, Write
from wellkept.providers.status import status_of
from wellkept.providers.writes import FinishedTurn
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.sqlite import Database, open_state, state_migrations
from wellkept.testing.provider_contract import ListedLedger, RecordingProvider, eventually

ANNA = UserId("anna")
HERS = "p/anna"
"""The name of Anna's lane: what the owner would have to say to reach it."""
LIVING = "another-host:1:x"
"""A holder whose process cannot be seen to have ended."""


def write(number, session="s1"):
    return Write(hook="sync_turn", session_id=session, idempotency_key=str(number), payload={"user": str(number)})


@pytest.fixture
def database(tmp_path):
    database = open_state(tmp_path / "state.db")
    yield database
    database.close()


def outbox_of(database, user, limit=5):
    return Outbox(database, user=user, clock=FixedClock(), limit=limit)


@pytest.fixture
def owner(database):
    return outbox_of(database, OWNER)


@pytest.fixture
def anna(database):
    anna = outbox_of(database, ANNA)
    anna.add("p", [write(number) for number in range(3)])
    anna.mark_failed(anna.take("p", holder=LIVING, seconds=600), "down", retry_after_seconds=50)
    with anna.unit() as unit:
        anna.set_cursor(unit, "p", 7)
    return anna


def rows_of(database, user, *tables):
    with database.reading() as unit:
        return [
            list(unit.execute(f"SELECT * FROM {table} WHERE user_id = :user ORDER BY 1", {"user": user}))
            for table in tables
        ]


def forget(outbox):
    with outbox.unit() as unit:
        return outbox.forget(unit, "s1")


def move_cursor(outbox):
    with outbox.unit() as unit:
        outbox.set_cursor(unit, HERS, 99)


REACHES = {
    "head": (lambda own, item: own.head(HERS), None),
    "items": (lambda own, item: own.items(), []),
    "items of her lane": (lambda own, item: own.items(HERS), []),
    "waiting": (lambda own, item: own.waiting(HERS, "s1"), 0),
    "lanes": (lambda own, item: own.lanes(), []),
    "cursor": (lambda own, item: own.cursor_of(HERS), None),
    "move the cursor": (lambda own, item: move_cursor(own), None),
    "retry all": (lambda own, item: own.retry(), 0),
    "retry one": (lambda own, item: own.retry(item_id=item.id), 0),
    "drop all": (lambda own, item: own.drop(), 0),
    "drop one": (lambda own, item: own.drop(provider=HERS, item_id=item.id), 0),
    "forget her session": (lambda own, item: forget(own), 0),
    "deliver": (lambda own, item: own.mark_delivered(item), None),
    "fail": (lambda own, item: own.mark_failed(item, "x", retry_after_seconds=1), None),
    "set aside": (lambda own, item: own.set_aside(item, "x"), None),
    "release her lease": (lambda own, item: own.release(HERS, holder=LIVING), None),
    "take": (lambda own, item: own.take(HERS, holder="h", seconds=9), None),
}


@pytest.mark.parametrize("reach", REACHES)
def test_no_operation_reaches_the_queue_of_another_user(database, owner, anna, reach):
    """Neither with the name of her lane nor with the id of her write."""
    (act, nothing), before = REACHES[reach], rows_of(database, ANNA, "outbox", "outbox_lanes")

    answer = act(owner, anna.items()[0])

    assert answer == nothing
    assert rows_of(database, ANNA, "outbox", "outbox_lanes") == before


def test_a_queue_under_the_name_of_her_lane_stays_apart(database, owner, anna):
    """Even writes under that name count, drop, lease and deliver for their own user only."""
    before = rows_of(database, ANNA, "outbox", "outbox_lanes")
    owner.add(HERS, [write(10)])
    with_one = [item.payload["user"] for item in owner.items()]
    owner.add(HERS, [write(number) for number in range(11, 17)])
    full = [item.payload["user"] for item in owner.items()]
    taken = owner.take(HERS, holder="another-host:1:y", seconds=9)
    while_full = anna.lanes()
    owner.mark_delivered(replace(taken, provider=HERS))
    owner.drop(provider=HERS)

    assert with_one == ["10"]
    assert full == ["12", "13", "14", "15", "16"]
    assert taken.payload == {"user": "12"}
    assert rows_of(database, ANNA, "outbox", "outbox_lanes") == before
    assert [(lane.waiting, lane.delivered, lane.dropped) for lane in while_full] == [(3, 0, 0)]
    assert anna.lanes() == while_full


def change_first(change):
    def act(outbox, number):
        for item in outbox.items("p")[:1]:
            change(outbox, item, number)

    return act


def in_unit(change):
    def act(outbox, number):
        with outbox.unit() as unit:
            return change(outbox, unit, number)

    return act


def take(outbox, number):
    item = outbox.take("p", holder=f"another-host:{number % 2}:x", seconds=600)
    return item and item.idempotency_key


ACTIONS = {
    "add": lambda outbox, number: outbox.add("p", [write(number, session=f"s{number % 2}")]),
    "take": take,
    "deliver": change_first(lambda outbox, item, _: outbox.mark_delivered(item)),
    "fail": change_first(lambda outbox, item, number: outbox.mark_failed(item, "down", retry_after_seconds=number)),
    "set aside": change_first(lambda outbox, item, _: outbox.set_aside(item, "never")),
    "retry": lambda outbox, number: outbox.retry(provider="p" if number % 2 else None),
    "drop": lambda outbox, number: outbox.drop(provider="p" if number % 2 else None),
    "drop first": change_first(lambda outbox, item, _: outbox.drop(item_id=item.id)),
    "forget": in_unit(lambda outbox, unit, number: outbox.forget(unit, f"s{number % 2}")),
    "cursor": in_unit(lambda outbox, unit, number: outbox.set_cursor(unit, "p", number)),
    "release": lambda outbox, number: outbox.release("p", holder=f"another-host:{number % 2}:x"),
}
STEPS = st.lists(
    st.tuples(st.sampled_from([OWNER, ANNA]), st.sampled_from(list(ACTIONS)), st.integers(0, 4)), max_size=50
)


@contextmanager
def fresh_outboxes(limit):
    with tempfile.TemporaryDirectory() as folder:
        database = open_state(Path(folder) / "state.db")
        try:
            yield {user: outbox_of(database, user, limit) for user in (OWNER, ANNA)}
        finally:
            database.close()


def view(outbox):
    items = [(item.idempotency_key, item.attempts, item.not_before, item.last_error) for item in outbox.items()]
    return items, outbox.lanes(), outbox.cursor_of("p"), [outbox.waiting("p", session) for session in ("s0", "s1")]


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_two_users_in_one_file_are_like_two_files(steps):
    """Whatever both do, each is answered and left as if they were alone."""
    with fresh_outboxes(3) as shared, fresh_outboxes(3) as owners, fresh_outboxes(3) as annas:
        alone = {OWNER: owners[OWNER], ANNA: annas[ANNA]}
        for user, action, number in steps:
            assert ACTIONS[action](shared[user], number) == ACTIONS[action](alone[user], number)
            assert {each: view(shared[each]) for each in shared} == {each: view(alone[each]) for each in alone}


def record(session="s1"):
    return CallRecord(session, "p", "prefetch", 100.0, 0.5, "ok", 1, 2)


@pytest.fixture
def audits(database):
    clock = FixedClock()
    audits = {user: Audit(database, user=user, clock=clock) for user in (OWNER, ANNA)}
    yield audits
    for audit in audits.values():
        audit.close()


def test_provider_calls_belong_to_one_user(audits, database):
    """A session id, a provider's name and its lane's name show nothing of the other's calls and health."""
    now = FixedClock().now().timestamp()
    audits[ANNA].add(
        CallRecord("s1", "p", "prefetch", now, 0.5, "ok", 1, 2),
        Health(failures=5, paused_until=9e9, last_error="hers"),
    )
    audits[ANNA].flush()
    tables = ("provider_calls", "provider_health")
    before = rows_of(database, ANNA, *tables)
    mine = audits[OWNER]
    mine.resume()
    mine.resume(HERS)

    assert mine.of_session("s1") == []
    assert mine.stats(days=1) == []
    assert mine.forget("s1") == 0
    assert mine.health("p") == mine.health(HERS) == Health()
    assert rows_of(database, ANNA, *tables) == before
    assert [call.call for call in audits[ANNA].of_session("s1")] == ["prefetch"]
    assert [stats.recalls for stats in audits[ANNA].stats(days=1)] == [1]
    assert audits[ANNA].health("p").last_error == "hers"


def test_a_provider_that_fails_for_one_user_is_not_paused_for_the_other(audits):
    """Health is kept for each user, because their keys and servers may differ."""
    audits[OWNER].add(record(), Health(failures=1, last_error="mine"))
    audits[ANNA].add(record(), Health(failures=5, last_error="hers"))
    for audit in audits.values():
        audit.flush()
    audits[ANNA].resume("p")

    assert audits[OWNER].health("p") == Health(failures=1, last_error="mine")
    assert audits[ANNA].health("p") == Health(failures=0, last_error="hers")


def row(number, text, user=None):
    return LedgerRow(
        ledger_id=number, action="add", target="user", before=None, after=text, origin="agent", user_id=user
    )


def test_managers_of_two_users_deliver_their_own_writes(bench):
    """One provider, two users: turns, mirrored writes, tools and status stay apart."""
    mine, hers = RecordingProvider(), RecordingProvider()
    hers.faults["sync_turn"] = lambda: 1 / 0
    ledger = ListedLedger([row(1, "mine"), row(2, "hers", ANNA)])
    owner = bench.manager(mine, context=bench.context(ledger=ledger))
    anna = bench.manager(hers, context=bench.context(user=ANNA, ledger=ledger))
    bench.settle(owner, FinishedTurn(session_id="s1", key="1", user="mine", assistant="a"))
    bench.settle(anna, FinishedTurn(session_id="s1", key="2", user="hers", assistant="a"))
    anna.tools()[0].call({}, ToolContext(user_id=OWNER))
    eventually(lambda: mine.calls_of("sync_turn") and bench.outbox_of(ANNA).head("recording").attempts)
    owner.shutdown()
    anna.shutdown()

    assert [call.args[0] for call in mine.calls_of("sync_turn")] == ["mine"]
    assert [call.args[2] for call in mine.calls_of("on_memory_write")] == ["mine"]
    assert [call.args[2] for call in hers.calls_of("on_memory_write")] == ["hers"]
    assert hers.calls_of("initialize")[0].keywords["user_id"] == ANNA
    assert hers.calls_of("handle_tool_call")[0].keywords["user_id"] == ANNA
    assert [status.waiting for status in owner.status()] == [0]
    assert [status.waiting for status in anna.status()] == [1]
    assert [item.payload["user"] for item in bench.outbox_of(ANNA).items()] == ["hers"]
    assert {call.session_id for call in bench.audit.of_session("s1")} == {"s1"}
    assert "handle_tool_call" not in {call.call for call in bench.audit.of_session("s1")}


def test_status_is_that_of_one_user(bench, tmp_path):
    """Queue, blocked write, health and the provider's own facts."""
    anna = bench.outbox_of(ANNA)
    anna.add("holographic", [write(1)])
    anna.mark_failed(anna.head("holographic"), "down", retry_after_seconds=9)
    hers = HolographicProvider()
    hers.initialize("s1", kept_home=str(tmp_path), user_id=ANNA)
    hers.handle_tool_call("fact_store", {"action": "add", "content": "Anna likes tea."})
    hers.shutdown()

    def status(user):
        (chosen,) = status_of(
            ["holographic"],
            PluginSource(tmp_path / "plugins", {}, PluginPolicy()),
            outbox=bench.outbox_of(user),
            audit=bench.audit_of(user),
        ).chosen
        return chosen.queue.waiting, len(chosen.blocked), chosen.facts

    assert status(OWNER) == (0, 0, {"facts": 0})
    assert status(ANNA) == (1, 1, {"facts": 1})


@pytest.fixture
def stores(tmp_path):
    stores = {
        user: FactStore(tmp_path / "holographic.db", user=user, clock=FixedClock(), dim=64) for user in (OWNER, ANNA)
    }
    stores[ANNA].add("Anna: Rex sleeps in Graz beside Luna.", trust=0.5, session_id="s1", category="pets")
    yield stores
    for store in stores.values():
        store.close()


FACT_READS = {
    "fact": lambda store, fact: store.fact(fact.id),
    "facts": lambda store, fact: store.facts([fact.id]),
    "outlines": lambda store, fact: store.outlines([fact.id]),
    "vectors_of": lambda store, fact: store.vectors_of([fact.id]),
    "newest": lambda store, fact: store.newest(),
    "vectors": lambda store, fact: store.vectors(min_trust=0, limit=9),
    "count": lambda store, fact: store.count(),
    "session_sizes": lambda store, fact: store.session_sizes(),
    "speakers": lambda store, fact: store.speakers(["anna"]),
    "postings": lambda store, fact: store.postings("sleeps"),
    "facts_about": lambda store, fact: store.facts_about("Graz", min_trust=0),
    "related_entities": lambda store, fact: store.related_entities("Graz", min_trust=0, limit=9),
    "find": lambda store, fact: store.find(fact.text),
    "rewrite": lambda store, fact: store.rewrite(fact.id, "changed"),
    "remove": lambda store, fact: store.remove(fact.id),
    "feedback": lambda store, fact: store.feedback(fact.id, 0.3),
    "describe": lambda store, fact: store.describe(fact, category="x", tags="y", trust=1.0),
    "unmirror": lambda store, fact: store.mirror("remove", fact.text, ledger_id=1, before="", trust=0.5),
}


@pytest.mark.parametrize("method", FACT_READS)
def test_facts_of_another_user_are_neither_found_nor_changed(stores, method):
    """Not by words, names or vectors, and not by the number of the fact."""
    (hers,) = stores[ANNA].newest()

    answer = FACT_READS[method](stores[OWNER], hers)

    assert not answer
    assert stores[ANNA].newest() == [hers]


def test_the_same_text_and_the_same_ledger_id_are_separate_facts(stores):
    """Each user has a ledger of their own, whose numbers overlap."""
    stores[OWNER].mirror("add", "Deploys on Tuesday", ledger_id=4, before="", trust=0.5)
    stores[ANNA].mirror("add", "Deploys on Tuesday", ledger_id=4, before="", trust=0.5)
    stores[OWNER].mirror("add", "Anna: Rex sleeps in Graz beside Luna.", ledger_id=5, before="", trust=0.5)
    stores[OWNER].rewrite(stores[OWNER].find("Deploys on Tuesday"), "Deploys on Friday")

    assert [fact.text for fact in stores[OWNER].newest()] == [
        "Anna: Rex sleeps in Graz beside Luna.",
        "Deploys on Friday",
    ]
    assert [fact.text for fact in stores[ANNA].newest()] == [
        "Deploys on Tuesday",
        "Anna: Rex sleeps in Graz beside Luna.",
    ]


def test_rows_of_an_older_file_belong_to_whom_they_were_queued_for(tmp_path):
    """The owner's rows stay the owner's; lanes of other users, and calls of their sessions, become theirs."""
    older = Database(tmp_path / "state.db", application_id=APPLICATION_ID, migrations=state_migrations()[:3])
    with older.writing() as unit:
        for lane, number in (("p", 1), (HERS, 2)):
            unit.execute(
                "INSERT INTO outbox (provider, session_id, hook, payload, idempotency_key, created)"
                " VALUES (?, 's', 'sync_turn', '{}', ?, 1)",
                (lane, str(number)),
            )
            unit.execute("INSERT INTO outbox_lanes (provider, ledger_id) VALUES (?, 9)", (lane,))
        unit.execute("INSERT INTO sessions (id, source, user_id, started) VALUES ('hers', 'web', 'anna', 1)")
        for session in ("mine", "hers"):
            unit.execute(
                "INSERT INTO provider_calls (session_id, provider, call, started, seconds, outcome, bytes_out, bytes_in)"
                " VALUES (?, 'p', 'prefetch', 1, 1, 'ok', 0, 0)",
                (session,),
            )
        unit.execute("INSERT INTO provider_health (provider, failures, paused_until) VALUES ('p', 3, 0)")
    older.close()
    database = open_state(tmp_path / "state.db")
    mine, hers = outbox_of(database, OWNER), outbox_of(database, ANNA)
    audits = [Audit(database, user=user, clock=FixedClock()) for user in (OWNER, ANNA)]

    assert [item.idempotency_key for item in mine.items()] == ["1"]
    assert [item.idempotency_key for item in hers.items("p")] == ["2"]
    assert (mine.cursor_of("p"), hers.cursor_of("p")) == (9, None), "her own ledger counts from the start"
    assert [[len(audit.of_session(session)) for session in ("mine", "hers")] for audit in audits] == [[1, 0], [0, 1]]
    assert [audit.health("p").failures for audit in audits] == [3, 0]
    database.close()

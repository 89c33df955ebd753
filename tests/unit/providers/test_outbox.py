"""The outbox."""

import os
import socket

import apsw
import pytest

from wellkept.core.clock import FixedClock
from wellkept.core.errors import StorageError
from wellkept.core.ids import OWNER, UserId
from wellkept.providers.outbox import NEVER, Lane, Outbox, Write, lane_name
from wellkept.storage.leases import new_holder
from wellkept.storage.sqlite import open_state


@pytest.fixture
def clock():
    return FixedClock()


@pytest.fixture(params=["sqlite", "postgres"])
def outbox(request, tmp_path, clock):
    """The queues of the owner in a file, and at a server."""
    if request.param == "sqlite":
        database = open_state(tmp_path / "state.db")
        yield Outbox(database, user=OWNER, clock=clock, limit=5)
        database.close()
        return
    served = request.getfixturevalue("postgres_server")
    from wellkept.storage.postgres.database import PostgresServer

    server = PostgresServer(served.shared_url, tenant=served.make_tenant())
    yield Outbox(server.for_user(OWNER), user=OWNER, clock=clock, limit=5)
    server.close()


def write(number, session="s1"):
    return Write(
        hook="sync_turn", session_id=session, idempotency_key=f"turn:{session}:{number}", payload={"user": str(number)}
    )


def test_writes_go_out_in_the_order_they_came(outbox):
    """The oldest of a lane is taken, and the next only after it is delivered."""
    outbox.add("a", [write(1), write(2)])
    holder = new_holder()

    first = outbox.take("a", holder=holder, seconds=60)
    again = outbox.take("a", holder=holder, seconds=60)
    outbox.mark_delivered(first)
    second = outbox.take("a", holder=holder, seconds=60)

    assert first == again
    assert (first.payload, second.payload) == ({"user": "1"}, {"user": "2"})


def test_a_write_commits_with_the_unit_it_is_part_of(outbox):
    """A turn that is rolled back leaves nothing to deliver."""

    def interrupted_settle():
        with outbox.unit() as unit:
            outbox.enqueue(unit, "a", [write(1)])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted_settle()

    assert outbox.items() == []


def test_the_same_key_is_queued_once(outbox):
    """A settle that is repeated does not tell a provider twice."""
    outbox.add("a", [write(1), write(1)])
    outbox.add("a", [write(1)])

    assert len(outbox.items("a")) == 1


def test_a_failed_write_blocks_its_lane_until_it_is_due(outbox, clock):
    """Order is kept: nothing overtakes; other lanes continue."""
    outbox.add("a", [write(1), write(2)])
    outbox.add("b", [write(1)])
    holder = new_holder()
    outbox.mark_failed(outbox.take("a", holder=holder, seconds=60), "down", retry_after_seconds=10)

    blocked = outbox.take("a", holder=holder, seconds=60)
    other = outbox.take("b", holder=holder, seconds=60)
    clock.forward(seconds=10)
    due = outbox.take("a", holder=holder, seconds=60)

    assert blocked is None
    assert other is not None
    assert (due.payload, due.attempts, due.last_error) == ({"user": "1"}, 1, "down")


def test_one_at_a_time_drains_a_lane(outbox, clock):
    """Another holder waits until the lease ends or is released."""
    outbox.add("a", [write(1)])
    first, second = new_holder(), new_holder()
    outbox.take("a", holder=first, seconds=60)

    while_held = outbox.take("a", holder=second, seconds=60)
    clock.forward(seconds=61)
    after = outbox.take("a", holder=second, seconds=60)

    assert while_held is None
    assert after is not None


def test_the_lease_of_a_dead_process_is_taken_over(outbox):
    """After a kill nobody waits for a lease to run out."""
    host, _, _ = new_holder().split(":")
    outbox.add("a", [write(1)])
    outbox.take("a", holder=f"{host}:4194304:dead", seconds=600)

    assert outbox.take("a", holder=new_holder(), seconds=60) is not None


def test_a_full_lane_drops_its_oldest_with_a_warning_and_a_count(outbox, caplog):
    """Bounded, and never silently."""
    outbox.add("a", [write(number) for number in range(8)])

    assert [item.payload["user"] for item in outbox.items("a")] == ["3", "4", "5", "6", "7"]
    assert [(lane.waiting, lane.dropped) for lane in outbox.lanes()] == [(5, 3)]
    assert "3 oldest" in caplog.text


def test_retry_and_drop_by_hand(outbox, clock):
    """A person can make writes due again, or give them up."""
    outbox.add("a", [write(1), write(2)])
    outbox.mark_failed(outbox.take("a", holder="h", seconds=60), "down", retry_after_seconds=1000)

    assert outbox.take("a", holder="h", seconds=60) is None
    assert outbox.retry(provider="a") == 2
    assert outbox.retry(provider="b", item_id=outbox.items("a")[0].id) == 0
    item = outbox.take("a", holder="h", seconds=60)
    assert outbox.drop(item_id=item.id) == 1
    assert outbox.drop(item_id=item.id) == 0
    assert outbox.drop(provider="a") == 1
    assert [(lane.waiting, lane.dropped) for lane in outbox.lanes()] == [(0, 2)]


def test_a_forgotten_session_leaves_nothing_behind(outbox):
    """Its queued writes are deleted in the unit of work that forgets it; other sessions stay."""
    outbox.add("a", [write(1), write(2), write(1, session="s2")])
    with outbox.unit() as unit:
        gone = outbox.forget(unit, "s1")

    assert gone == 2
    assert [item.session_id for item in outbox.items()] == ["s2"]


def test_several_writes_are_added_together_or_not_at_all(outbox):
    """A write that cannot be stored takes those before it back."""
    unstorable = Write(hook="no_hook", session_id="s1", idempotency_key="x", payload={})
    with pytest.raises((apsw.ConstraintError, StorageError)):
        outbox.add("a", [write(1), unstorable])

    assert outbox.items() == []


def test_a_write_that_is_set_aside_blocks_nothing(outbox, clock):
    """It stays listed with its error, counts as refused, and can be retried."""
    outbox.add("a", [write(1), write(2)])
    first = outbox.take("a", holder="h", seconds=60)
    outbox.set_aside(first, "e" * 400)
    clock.forward(days=10_000)

    (aside,) = [item for item in outbox.items("a") if item.is_refused]
    assert (aside.id, aside.last_error, aside.attempts, aside.not_before) == (first.id, "e" * 300, 1, NEVER)
    assert outbox.head("a").payload == {"user": "2"}
    assert outbox.waiting("a", "s1") == 1
    assert [(lane.waiting, lane.refused) for lane in outbox.lanes()] == [(1, 1)]
    assert outbox.retry(item_id=first.id) == 1
    assert outbox.head("a").id == first.id
    assert outbox.head("none") is None


def test_a_failure_is_cut_and_waits_to_the_second(outbox, clock):
    """The error fits a status line; the write is due exactly at the given time."""
    outbox.add("a", [write(1)])
    item = outbox.take("a", holder="h", seconds=60)
    outbox.mark_failed(item, "x" * 301, retry_after_seconds=10)

    failed = outbox.head("a")
    assert failed.last_error == "x" * 300
    assert failed.not_before == pytest.approx(outbox.now() + 10)
    assert not failed.is_refused
    clock.forward(seconds=9.9)
    assert outbox.take("a", holder="h", seconds=60) is None
    clock.forward(seconds=0.2)
    assert outbox.take("a", holder="h", seconds=60) is not None


def test_a_delivery_counts_once(outbox, clock):
    """Also when it is reported twice; the lane knows when its oldest write came."""
    began = outbox.now()
    outbox.add("a", [write(1)])
    clock.forward(seconds=5)
    outbox.add("a", [write(2)])
    item = outbox.take("a", holder="h", seconds=60)

    assert item.created == pytest.approx(began)
    assert [lane.oldest for lane in outbox.lanes()] == [pytest.approx(began)]
    outbox.mark_delivered(item)
    outbox.mark_delivered(item)
    (lane,) = outbox.lanes()
    assert (lane.provider, lane.waiting, lane.delivered, lane.dropped, lane.refused) == ("a", 1, 1, 0, 0)
    assert lane.oldest == pytest.approx(began + 5)


def test_a_lease_ends_by_its_own_holder_or_by_time(outbox, clock):
    """Nobody else can give it back, and it ends to the second."""
    outbox.add("a", [write(1)])
    first, second = new_holder(), new_holder()
    assert first != second
    outbox.take("a", holder=first, seconds=60)

    outbox.release("a", holder=second)
    assert outbox.take("a", holder=second, seconds=60) is None
    clock.forward(seconds=59)
    assert outbox.take("a", holder=second, seconds=60) is None
    assert outbox.take("a", holder=first, seconds=60) is not None  # renewed by its holder
    clock.forward(seconds=2)
    assert outbox.take("a", holder=second, seconds=60) is None
    outbox.release("a", holder=first)
    assert outbox.take("a", holder=second, seconds=60) is not None
    clock.forward(seconds=60)
    assert outbox.take("a", holder=first, seconds=60) is not None


@pytest.mark.parametrize(
    "holder",
    ["elsewhere:4194304:dead", "odd", "a:b:c", f"{socket.gethostname()}:{os.getpid()}:x"],
    ids=["elsewhere", "odd", "letters", "alive"],
)
def test_a_lease_whose_end_is_not_known_is_respected(outbox, holder):
    """Whether a process on another machine is alive is unknown."""
    outbox.add("a", [write(1)])
    outbox.take("a", holder=holder, seconds=60)

    assert outbox.take("a", holder=new_holder(), seconds=60) is None


def test_a_lane_at_its_limit_is_not_full(outbox, caplog):
    """Five of five fit."""
    outbox.add("a", [write(number) for number in range(5)])

    assert len(outbox.items("a")) == 5
    assert not caplog.text
    assert [item.payload["user"] for item in outbox.items(limit=2)] == ["0", "1"]


def test_the_cursor_of_the_ledger(outbox):
    """None before the first write, then what was stored last."""
    assert outbox.cursor_of("a") is None
    outbox.add("a", [write(1)])
    assert outbox.cursor_of("a") is None
    with outbox.unit() as unit:
        outbox.set_cursor(unit, "a", 7)
        outbox.set_cursor(unit, "b", 3)
        assert outbox.cursor(unit, "a") == 7

    assert (outbox.cursor_of("a"), outbox.cursor_of("b"), outbox.cursor_of("c")) == (7, 3, None)


def test_lanes_of_users_have_names_of_their_own():
    """The owner's have the plain provider name, as before there were other users."""
    assert lane_name("mem0", OWNER) == "mem0"
    assert lane_name("mem0", UserId("anna")) == "mem0/anna"


def test_drops_are_counted_per_provider(outbox):
    """One order may reach several queues."""
    outbox.add("a", [write(1), write(2)])
    outbox.add("b", [write(1)])

    assert outbox.drop() == 3
    assert {lane.provider: lane.dropped for lane in outbox.lanes()} == {"a": 2, "b": 1}
    assert outbox.waiting("a", "s1") == 0


def test_one_write_too_many_drops_one(outbox):
    """The limit holds to the write."""
    outbox.add("a", [write(number) for number in range(6)])

    assert [item.payload["user"] for item in outbox.items("a")] == ["1", "2", "3", "4", "5"]
    (lane,) = outbox.lanes()
    assert (lane.waiting, lane.delivered, lane.dropped, lane.refused) == (5, 0, 1, 0)


def test_a_new_lane_has_counted_nothing(outbox):
    """Neither deliveries nor losses, and its payload stays out of logs."""
    outbox.add("a", [write(1)])

    (lane,) = outbox.lanes()
    assert (lane.delivered, lane.dropped, lane.refused) == (0, 0, 0)
    assert Lane("b") == Lane("b", 0, None, 0, 0, 0)
    assert "user" not in repr(outbox.items("a")[0])


def test_a_delivery_of_what_is_gone_counts_nothing(outbox):
    """Two workers that deliver one write count it once."""
    outbox.add("a", [write(1)])
    item = outbox.take("a", holder="h", seconds=60)

    outbox.mark_delivered(item)
    outbox.mark_delivered(item)

    assert [lane.delivered for lane in outbox.lanes()] == [1]

"""Leases among hosts that share a server, and writes of a holder that lost its lease."""

import os
import signal
import subprocess
import sys
import time

import pytest

from wellkept.core.errors import Busy
from wellkept.core.ids import UserId
from wellkept.storage.leases import FencedLease
from wellkept.storage.postgres.database import PostgresServer

ANN, BEN = UserId("ann"), UserId("ben")


@pytest.fixture
def server(postgres_server):
    server = PostgresServer(postgres_server.shared_url, tenant=postgres_server.make_tenant())
    yield server
    server.close()


def lease(server, holder, user=ANN, seconds=60.0):
    return FencedLease(server.for_user(user), "turn:x", holder=holder, seconds=seconds)


def test_one_holder_at_a_time(server):
    """Another one waits until it is released; the same one renews; other users have leases of their own."""
    first, second = lease(server, "a"), lease(server, "b")

    assert first.take()
    assert first.take()
    assert not second.take()
    assert lease(server, "b", BEN).take()
    first.release()
    assert second.take()
    assert (first.fence, second.fence) == (1, 2)


def test_a_holder_that_comes_back_knows_whether_another_was_there(server):
    """The number stays as long as nobody else had the lease."""
    for expected, holder in ((1, "a"), (1, "a"), (2, "b"), (3, "a")):
        one = lease(server, holder)
        assert one.take()
        one.release()
        assert one.fence == expected


def test_a_lost_lease_allows_no_write(server):
    """Neither under its guard nor by renewing; the writes of others and other users continue."""
    first, second = lease(server, "a", seconds=0.01), lease(server, "b")
    first.take()
    time.sleep(0.05)
    second.take()
    put = "INSERT INTO state_meta (tenant, user_id, key, value) VALUES (:tenant, :user, ?, 'x')"

    with first.guard():
        with pytest.raises(Busy, match="taken over"), server.for_user(ANN).writing() as unit:
            unit.execute(put, ("lost",))
        with server.for_user(BEN).writing() as unit:
            unit.execute(put, ("other",))
    with second.guard(), server.for_user(ANN).writing() as unit:
        unit.execute(put, ("held",))

    assert not first.take()
    with server.for_user(ANN).reading() as unit:
        assert [
            key for (key,) in unit.execute("SELECT key FROM state_meta WHERE tenant = :tenant AND user_id = :user")
        ] == ["held"]


def open_agent(home, environ, answers, session_id=None):
    from wellkept.agent.agent import Opening
    from wellkept.app import open_app
    from wellkept.llm.scripted import ScriptedModel

    app = open_app(str(home), environ=environ, model=ScriptedModel(answers))
    return app, app.owner.agent(Opening(resume=session_id))


def test_processes_take_turns_in_one_conversation(tmp_path, postgres_server, monkeypatch):
    """Whatever surface they serve: one waits for the other, and then continues from what was said there."""
    import threading

    import anyio

    from wellkept.storage import leases

    monkeypatch.setattr(leases, "TURN_SECONDS", 5.0)
    environ = {"KEPT_STORAGE__URL": postgres_server.shared_url, "KEPT_STORAGE__TENANT": postgres_server.make_tenant()}
    first, one = open_agent(tmp_path / "a", environ, ["first answer", "third answer"])
    anyio.run(one.turn, "first question")
    second, other = open_agent(tmp_path / "b", environ, ["second answer"], one.session.id)
    held = FencedLease(first.server.for_user(one.opening.user_id), f"session:{one.session.id}", holder="x", seconds=60)
    assert held.take()
    waiting = threading.Thread(target=anyio.run, args=(other.turn, "second question"))
    waiting.start()
    time.sleep(0.4)
    before = len(first.owner.sessions.messages(one.session.id))
    held.release()
    waiting.join(60)
    anyio.run(one.turn, "third question")

    said = [row.message.text for row in first.owner.sessions.messages(one.session.id)]
    assert before == 2
    assert said == [f"{number} {kind}" for number in ("first", "second", "third") for kind in ("question", "answer")]
    assert [row.message.text for row in one.conversation.record.rows] == said
    for app, agent in ((first, one), (second, other)):
        agent.close()
        app.close()


STOPPED = """
import sys, time
from wellkept.core.errors import Busy
from wellkept.core.ids import UserId
from wellkept.storage.leases import FencedLease
from wellkept.storage.postgres.database import PostgresServer
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.sessions.postgres.store import PostgresSessionStore

server = PostgresServer(sys.argv[1], tenant=sys.argv[2])
store = PostgresSessionStore(server, user=UserId("ann"))
own = FencedLease(server.for_user(UserId("ann")), "turn:x", holder="stopped", seconds=0.3)
assert own.take()
with own.guard():
    store.create(Session(id="s", source="cli", started=1.0))
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        store.append("s", [NewMessage(Message(Role.USER, "too late"), 2.0, Origin.PERSON)])
    except Busy as error:
        print(error.message, flush=True)
    else:
        print("written", flush=True)
"""


def test_a_process_that_is_stopped_past_its_lease_cannot_write(server, postgres_server):
    """It wakes up after another host took over, and its message is refused."""
    from wellkept.sessions.postgres.store import PostgresSessionStore

    arguments = [sys.executable, "-c", STOPPED, postgres_server.shared_url, server.tenant]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGSTOP)
    other = lease(server, "other")
    while not other.take():
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGCONT)

    said, _ = process.communicate("go\n", timeout=60)

    assert "taken over" in said
    assert PostgresSessionStore(server, user=ANN).messages("s") == []

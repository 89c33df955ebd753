"""Two gateways with homes of their own on one PostgreSQL database: users, turns of one conversation, a killed host."""

import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from wellkept.llm.scripted import Says
from wellkept.testing.loopback_servers import LoopbackOpenAI

from .conftest import serve


class Model:
    """A model on loopback that waits before it answers where a test says so."""

    def __init__(self):
        self.release = threading.Event()
        self.release.set()
        self.upstream = LoopbackOpenAI(self._answer)

    def _answer(self, _body):
        self.release.wait(30)
        return Says("fine")


@pytest.fixture
def model():
    made = Model()
    with made.upstream:
        yield made
        made.release.set()


@pytest.fixture
def hosts(tmp_path, postgres_server, model):
    """Two servers, each with a home of its own."""
    environ = {
        **model.upstream.environment,
        "KEPT_MODEL__DEFAULT": "openai/loopback-model",
        "KEPT_STORAGE__URL": postgres_server.shared_url,
        "KEPT_STORAGE__TENANT": postgres_server.make_tenant(),
    }
    with ExitStack() as stack:
        yield [stack.enter_context(serve(tmp_path / name / "home", environ)) for name in ("a", "b")]


def ask(client, *messages):
    """Return the answer to a conversation whose messages are said in turn by the person and the model."""
    said = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(messages)]
    answer = client.post(
        "/v1/chat/completions", json={"model": "kept", "messages": said}, headers={"X-Kept-Session": "one"}
    )
    assert answer.is_success, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def read_sessions(client):
    """Return the texts of every session."""
    listed = client.get("/api/sessions").json()
    shown = [client.get(f"/api/sessions/{one['session_id']}").json()["messages"] for one in listed]
    return [[row["content"] for row in rows] for rows in shown]


def test_a_conversation_goes_on_at_the_other_host(hosts):
    """Its user was created at the first one; each message is stored once, in one session."""
    token = hosts[0].token("ann", "read", "write")
    with hosts[0].client(token) as first, hosts[1].client(token) as second:
        assert ask(second, "one") == "fine"
        assert ask(first, "one", "fine", "two") == "fine"
        assert ask(second, "one", "fine", "two", "fine", "three") == "fine"

        assert read_sessions(first) == [["one", "fine", "two", "fine", "three", "fine"]]


def test_a_question_that_is_asked_again_elsewhere_waits_for_the_turn_that_runs(hosts, model):
    """The other host takes nothing back while the first one answers; in the end the turn is there once."""
    token = hosts[0].token("ann", "read", "write")
    with hosts[0].client(token) as first, hosts[1].client(token) as second:
        ask(first, "one")
        model.release.clear()
        asked = len(model.upstream.requests)
        threads = [threading.Thread(target=ask, args=(one, "one", "fine", "two")) for one in (first, second)]
        for thread in threads:
            thread.start()
            while len(model.upstream.requests) == asked:
                time.sleep(0.01)
        time.sleep(0.5)  # the second host would have begun by now
        assert len(model.upstream.requests) == asked + 1
        assert read_sessions(second) == [["one", "fine", "two"]]
        model.release.set()
        for thread in threads:
            thread.join(60)

        assert read_sessions(first) == [["one", "fine", "two", "fine"]]


@pytest.fixture
def with_benchmarks(monkeypatch):
    """Let a test import the benchmarks, whichever way pytest was started."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


@pytest.mark.heavy
@pytest.mark.usefixtures("with_benchmarks")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["none", "kill", "stop"])
def test_many_chats_at_two_hosts(tmp_path, kind):
    """Nothing fails, and what is stored is what the clients saw, also when a host is killed or stops meanwhile."""
    from benchmarks.hosts import Fault, run_chats

    assert run_chats(tmp_path, chats=100, seconds=60, fault=Fault(kind, 15.0))


@pytest.mark.heavy
@pytest.mark.usefixtures("with_benchmarks")
@pytest.mark.timeout(1800)
def test_ten_thousand_edits_of_one_page(tmp_path):
    """Two processes with eight writers each: none is lost, each is in the ledger."""
    from benchmarks.hosts import run_edits

    assert run_edits(tmp_path, count=10_000, writers=16)

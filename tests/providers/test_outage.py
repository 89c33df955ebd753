"""A back end that goes away in the middle of a conversation and comes back: every finished turn arrives, in order."""

import os
import time

import anyio
import pytest

from wellkept import operations
from wellkept.agent.agent import Opening
from wellkept.app import open_app
from wellkept.llm.scripted import ScriptedModel
from wellkept.providers.writes import FinishedTurn
from wellkept.testing.provider_contract import Bench, eventually

SEVEN = ("hindsight", "honcho", "mem0", "openviking", "retaindb", "supermemory", "byterover")
TIMEOUT = 2.0
"""How long a turn waits for recall here."""
REAL_TIMEOUT = 8.0
"""The default, for real back ends."""
MARGIN = 10.0
"""What a loaded machine may need beyond that; without the time-outs a turn would wait for the whole outage."""
CONFIG = """
memory: {{provider: {name}}}
providers:
  prefetch_timeout_seconds: {timeout}
  breaker_failures: 3
  breaker_pause_seconds: 0.3
  switch_wait_seconds: 0.1
"""


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch, tmp_path):
    """The project of the conversation."""
    monkeypatch.chdir(tmp_path)


class Conversation:
    """An agent with one provider, and what `kept providers status` says of it."""

    def __init__(self, backend, *, timeout=TIMEOUT):
        (backend.home / "config.yaml").write_text(CONFIG.format(name=backend.name, timeout=timeout))
        self.app = open_app(str(backend.home), environ=dict(os.environ))
        model = ScriptedModel(lambda _request: "ok", name="scripted/test")
        self.app.models.chat = lambda _name=None, **_options: model
        self.agent = self.app.owner.agent(Opening())
        self.longest = 0.0

    def say(self, numbers):
        async def talk():
            for number in numbers:
                began = time.monotonic()
                answer = await self.agent.turn(f"turn {number:03}")
                self.longest = max(self.longest, time.monotonic() - began)
                assert answer.text == "ok"

        anyio.run(talk)

    def status(self):
        (one,) = operations.providers.report_status(self.app.caller()).as_json()["active"]
        return one

    def wait_until_blocked(self, seconds=120.0):
        """Return the status once a delivery has failed, which a busy machine may take a while to notice."""
        deadline = time.monotonic() + seconds
        while not (seen := self.status())["blocked"]:
            assert time.monotonic() < deadline, seen
            time.sleep(0.05)
        return seen

    def wait_until_delivered(self, count, seconds=120.0):
        deadline = time.monotonic() + seconds
        while (seen := self.status())["delivered"] < count or seen["waiting"]:
            assert time.monotonic() < deadline, seen
            time.sleep(0.05)


def run_outage(backend, *, turns, timeout=TIMEOUT):
    """Talk, kill the back end, talk on, start it again, and wait until everything was delivered."""
    talk = Conversation(backend, timeout=timeout)
    third = turns // 3
    try:
        talk.say(range(third))
        talk.wait_until_delivered(third)
        healthy = talk.status()
        backend.kill()
        talk.say(range(third, 2 * third))
        away = talk.wait_until_blocked()
        backend.revive()
        talk.say(range(2 * third, turns))
        talk.wait_until_delivered(turns)
        back = talk.status()
    finally:
        talk.app.close()
    check_statuses(healthy, away, back, turns=turns, third=third)
    assert talk.longest < timeout + MARGIN
    return talk


def check_statuses(healthy, away, back, *, turns, third):
    assert (healthy["health"], healthy["facts"]["reachable"], healthy["waiting"]) == ("ok", True, 0)
    assert away["health"] in {"failing", "paused"}
    assert away["facts"]["reachable"] is False
    assert away["last_error"]
    assert away["waiting"] + away["delivered"] == 2 * third
    assert away["waiting"] > 0
    assert away["blocked"][0]["attempts"] >= 1
    assert (back["health"], back["facts"]["reachable"], back["waiting"]) == ("ok", True, 0)
    assert (back["delivered"], back["dropped"], back["refused"]) == (turns, 0, 0)


@pytest.mark.parametrize("backend", SEVEN, indirect=True)
def test_every_finished_turn_arrives_once_and_in_order(backend):
    """Twenty turns, the back end away for a third of them; status tells the truth before, meanwhile and after."""
    turns = 9 if backend.name == "byterover" else 21  # each of its turns starts two processes
    run_outage(backend, turns=turns)

    assert backend.said() == [f"turn {number:03}" for number in range(turns)]


@pytest.mark.heavy
@pytest.mark.parametrize("backend", SEVEN, indirect=True)
def test_two_hundred_turns_survive_an_outage(backend):
    """The full size."""
    run_outage(backend, turns=200)

    assert backend.said() == [f"turn {number:03}" for number in range(200)]


@pytest.mark.parametrize("backend", ["mem0", "hindsight"], indirect=True)
def test_a_back_end_that_hangs_delays_a_turn_by_its_time_out_at_most(backend):
    """And only the first one: while a call hangs, the next turns do not wait for it."""
    backend.configure(timeout_seconds=20.0)
    talk = Conversation(backend)
    try:
        talk.say(range(1))
        backend.hang(30)
        began = time.monotonic()
        talk.say(range(1, 4))
        took = time.monotonic() - began
    finally:
        backend.hang(0)
        backend.kill()  # the calls that hang end now, not in the middle of another test
        time.sleep(0.3)
        talk.app.close()

    assert took < TIMEOUT + MARGIN


WRITES = {
    "hindsight": ".*/memories",
    "honcho": ".*/messages",
    "mem0": "/memories",
    "openviking": ".*/messages/batch",
    "supermemory": "/v3/documents",
}


@pytest.mark.parametrize("backend", WRITES, indirect=True)
def test_a_turn_whose_answer_got_lost_is_not_stored_twice(backend, start_of):
    """The back end carried the write out; the outbox must try again, and the key tells that it is a repeat."""
    bench = Bench(backend.home)
    manager = bench.manager(start_of(backend))
    for number in range(4):
        backend.double.lost_answers = [WRITES[backend.name]] if number in {1, 2} else []
        bench.settle(manager, FinishedTurn(session_id="s1", key=str(number), user=f"turn {number:03}", assistant="ok"))
        eventually(lambda: all(lane.waiting == 0 for lane in bench.outbox.lanes()), seconds=30)
        assert backend.double.lost_answers == []
    calls = bench.audit.of_session("s1")
    bench.close()

    assert sum(call.outcome.startswith("raised") for call in calls) == 2
    assert backend.said() == [f"turn {number:03}" for number in range(4)]

"""What happens while a conversation is compacted: a person who interrupts it, another process that continues."""

import json
import time
from contextlib import contextmanager

import anyio
import pytest

from wellkept.agent.agent import Opening
from wellkept.agent.compaction import LEASE_SECONDS
from wellkept.app import open_app
from wellkept.context.engine import Compaction, Unchanged, Why
from wellkept.core.clock import FixedClock
from wellkept.core.messages import Message, NewMessage, Origin, Role
from wellkept.llm.scripted import Says
from wellkept.testing.loopback import Hangs
from wellkept.testing.loopback_servers import LoopbackOpenAI

SUMMARY = "## Goal\n- go on\n## Progress\n- a lot\n## Next Steps\n- more\n"
LONG = Says("Yes. " * 3_000, piece_length=10_000)
SMALL_WINDOW = "model: {context_length: 32000}\ntoolsets: [memory]\n"
SLOW_PROVIDER = """
import time
from agent.memory_provider import MemoryProvider
class Slow(MemoryProvider):
    name = "slow"
    def is_available(self): return True
    def initialize(self, session_id, **context): pass
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
    def on_pre_compress(self, messages): time.sleep(90)
"""


def endpoint(summary=lambda: SUMMARY, answer=lambda: "Yes. " * 200):
    """Return a script that answers requests for summaries with one text and people with another."""

    def script(body):
        return summary() if "working record of a conversation" in json.dumps(body) else answer()

    return script


@pytest.fixture
def config(home):
    """Compaction when asked for, small tails, no review."""
    home.mkdir()
    settings = "compression: {protect_last_n: 2, in_place: false}\nreview: {enabled: false}\n"
    (home / "config.yaml").write_text(settings)
    return home / "config.yaml"


@contextmanager
def talking(home, server, clock=None, **opening):
    """Open a conversation as a process of its own would."""
    app = open_app(str(home), environ={"HOME": str(home.parent), **server.environment}, clock=clock)
    try:
        yield app.owner.agent(Opening(**opening), model_name="openai/loopback")
    finally:
        app.close()


def say(agent, *texts):
    async def all_turns():
        return [await agent.turn(text) for text in texts]

    return anyio.run(all_turns)


def stopped(agent, work, *, after):
    """Run something and interrupt it a little later; return the outcome and how long it took after that."""

    async def both():
        began = time.monotonic()
        async with anyio.create_task_group() as group:
            group.start_soon(interrupt)
            outcome = await work()
        return outcome, time.monotonic() - began - after

    async def interrupt():
        await anyio.sleep(after)
        agent.interrupt()

    return anyio.run(both)


def said_elsewhere(home, session_id):
    """Let another process store a turn."""
    other = open_app(str(home), environ={"HOME": str(home.parent)})
    said = [Message(Role.USER, "said elsewhere"), Message(Role.ASSISTANT, "answered elsewhere")]
    other.owner.sessions.append(session_id, [NewMessage(message, 1.0, Origin.PERSON) for message in said])
    other.close()


def texts(agent):
    return [row.message.text for row in agent.parts.sessions.context(agent.session.id)]


def test_ctrl_c_while_a_summary_is_written_leaves_all_as_it_was(home, config):
    """Nobody waits for the model; the session, its rows and its pace are the old ones, and it can be tried again."""
    steps = iter([Hangs(90), SUMMARY])
    with LoopbackOpenAI(endpoint(lambda: next(steps))) as server, talking(home, server) as agent:
        say(agent, *(f"question {number}" for number in range(6)))
        before = (agent.session.id, texts(agent), agent.parts.engine.state())

        outcome, waited = stopped(agent, agent.compress, after=0.5)

        assert (type(outcome), outcome.reason) == (Unchanged, Why.GIVEN_UP)
        assert waited < 45
        assert (agent.session.id, texts(agent), agent.parts.engine.state()) == before
        assert isinstance(anyio.run(agent.compress), Compaction)


def test_ctrl_c_in_a_turn_that_compacts_first_stops_the_turn(home, config):
    """The turn is stored and marked as interrupted; the model is not asked; nothing was compacted."""
    config.write_text(config.read_text() + SMALL_WINDOW)
    with LoopbackOpenAI(endpoint(lambda: Hangs(90), lambda: LONG)) as server, talking(home, server) as agent:
        while not agent.parts.engine.should_compress_preflight(agent.conversation.rows_sent):
            say(agent, "and then?")
        before, asked = agent.session.id, len(server.bodies)

        answer, waited = stopped(agent, lambda: agent.turn("and then?"), after=0.5)

        assert answer.interrupted
        assert waited < 45
        assert (agent.session.id, len(server.bodies)) == (before, asked + 1)


def test_ctrl_c_does_not_wait_for_what_a_provider_saves_before_a_compaction(home, config):
    """A provider that hangs in its hook is left behind like any other."""
    folder = home / "plugins" / "slow"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(SLOW_PROVIDER)
    config.write_text(config.read_text() + "memory: {provider: slow}\n")
    with LoopbackOpenAI(endpoint()) as server, talking(home, server) as agent:
        say(agent, *(f"question {number}" for number in range(6)))

        outcome, waited = stopped(agent, agent.compress, after=0.5)

    assert (type(outcome), outcome.reason) == (Unchanged, Why.GIVEN_UP)
    assert waited < 45


@pytest.mark.parametrize("in_place", ["true", "false"])
def test_what_another_process_says_meanwhile_is_in_the_new_context(home, config, in_place):
    """A turn that is stored while the summary is written stays at the end of the conversation."""
    config.write_text(config.read_text().replace("in_place: false", f"in_place: {in_place}"))

    def summary():
        said_elsewhere(home, agent.session.id)
        return SUMMARY

    with LoopbackOpenAI(endpoint(summary)) as server, talking(home, server) as agent:
        say(agent, *(f"question {number}" for number in range(6)))
        assert isinstance(anyio.run(agent.compress), Compaction)

        assert texts(agent)[-2:] == ["said elsewhere", "answered elsewhere"]
        say(agent, "and now?")
        assert "said elsewhere" in json.dumps(server.bodies[-1])


def test_an_open_question_stays_the_last_word(home, config):
    """What others said while a turn compacts comes before the question of that turn."""
    config.write_text(config.read_text() + SMALL_WINDOW)

    def summary():
        said_elsewhere(home, agent.session.id)
        return SUMMARY

    with LoopbackOpenAI(endpoint(summary, lambda: LONG)) as server, talking(home, server) as agent:
        first = agent.session.id
        while agent.session.id == first:
            say(agent, "and then?")
        sent = server.bodies[-1]["messages"]

    assert [message["content"] for message in sent[-3:]] == ["said elsewhere", "answered elsewhere", "and then?"]


def test_a_process_that_continues_meanwhile_follows_to_the_child(home, config):
    """A turn that began before another process compacted ends in the new session, and so do the next ones."""
    compact_once = []

    def answer():
        if compact_once:
            anyio.run(compact_once.pop().compress)
        return "fine"

    with (
        LoopbackOpenAI(endpoint()) as server,
        talking(home, server) as first,
        LoopbackOpenAI(endpoint(answer=answer)) as other,
    ):
        say(first, *(f"question {number}" for number in range(6)))
        old = first.session.id
        with talking(home, other, resume=old) as second:
            compact_once.append(first)
            say(second, "asked meanwhile")
            child = first.session.id
            assert child != old
            assert second.session.id == child
            assert texts(first)[-2:] == ["asked meanwhile", "fine"]
            say(second, "and now?")
            assert texts(first)[-4:] == ["asked meanwhile", "fine", "and now?", "fine"]
            assert "[CONTEXT COMPACTION" in json.dumps(other.bodies[-1])


def test_a_summary_by_a_slow_model_is_still_waited_for(home, config):
    """Nobody gave up: the compaction takes as long as its model."""
    slow = Says(SUMMARY, delay_seconds=0.05)
    with LoopbackOpenAI(endpoint(lambda: slow)) as server, talking(home, server) as agent:
        say(agent, *(f"question {number}" for number in range(6)))
        assert isinstance(anyio.run(agent.compress), Compaction)


def test_a_compaction_that_outlasts_its_lease_leaves_the_work_to_the_new_holder(home, config):
    """A second process takes the expired lease while the summary is written: the first one changes nothing."""
    clock = FixedClock()

    def summary():
        clock.forward(seconds=LEASE_SECONDS + 1)
        other = open_app(str(home), environ={"HOME": str(home.parent)}, clock=clock)
        assert other.owner.sessions.lease(f"compact:{agent.conversation.root}", holder="other", seconds=LEASE_SECONDS)
        other.close()
        return SUMMARY

    with LoopbackOpenAI(endpoint(summary)) as server, talking(home, server, clock) as agent:
        say(agent, *(f"question {number}" for number in range(6)))
        before = (agent.session.id, texts(agent))

        outcome = anyio.run(agent.compress)

        assert (type(outcome), outcome.reason) == (Unchanged, Why.NOTHING_TO_COMPRESS)
        assert (agent.session.id, texts(agent)) == before


def test_two_processes_compact_a_conversation_once(home, config):
    """A second process takes the expired lease and compacts to the end: the first one follows it."""
    clock = FixedClock()
    compact_once = []

    def summary():
        if compact_once:
            clock.forward(seconds=LEASE_SECONDS + 1)
            assert isinstance(anyio.run(compact_once.pop().compress), Compaction)
        return SUMMARY

    with (
        LoopbackOpenAI(endpoint(summary)) as server,
        talking(home, server, clock) as first,
        LoopbackOpenAI(endpoint()) as other,
    ):
        say(first, *(f"question {number}" for number in range(6)))
        with talking(home, other, clock, resume=first.session.id) as second:
            compact_once.append(second)

            outcome = anyio.run(first.compress)

            assert (type(outcome), outcome.reason) == (Unchanged, Why.NOTHING_TO_COMPRESS)
            assert first.session.id == second.session.id
            assert texts(first) == texts(second)
            assert sum("[CONTEXT COMPACTION" in text for text in texts(first)) == 1


def test_of_two_processes_one_waits_while_the_other_compacts(home, config):
    """While the lease is held, a second compaction asks no model and changes nothing."""
    outcomes = []

    def summary():
        outcomes.append(anyio.run(second.compress))
        return SUMMARY

    with (
        LoopbackOpenAI(endpoint(summary)) as server,
        talking(home, server) as first,
        LoopbackOpenAI(endpoint()) as other,
    ):
        say(first, *(f"question {number}" for number in range(6)))
        with talking(home, other, resume=first.session.id) as second:
            assert isinstance(anyio.run(first.compress), Compaction)

            assert [(type(one), one.reason) for one in outcomes] == [(Unchanged, Why.COOLING_DOWN)]
            assert other.bodies == []

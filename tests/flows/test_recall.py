"""Recall: providers ▸ fence ▸ request copy ▸ scrubber, with the real command line and a loopback endpoint."""

import json
import time

import anyio
import pytest

from wellkept.agent.agent import Opening
from wellkept.app import open_app
from wellkept.llm.scripted import Says, call
from wellkept.testing.loopback_servers import LoopbackOpenAI

SECRETLY = "Anna's favourite tea is oolong from Taiwan"
QUESTION = "Which tea is Anna's favourite?"
HANGING = """
import threading, pathlib
from agent.memory_provider import MemoryProvider
class Slow(MemoryProvider):
    name = "slow"
    def is_available(self): return True
    def initialize(self, session_id, **context): self.home = pathlib.Path(context["kept_home"])
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
    def prefetch(self, query, *, session_id=""): threading.Event().wait()
    def system_prompt_block(self): raise RuntimeError("broken")
    def on_session_end(self, messages): raise RuntimeError("broken")
    def sync_turn(self, user, assistant, *, session_id="", messages=(), idempotency_key=""):
        with (self.home / "told.txt").open("a") as file:
            file.write(f"{session_id}|{user}|{assistant}\\n")
"""


@pytest.fixture
def server():
    running = []

    def start(*script):
        one = LoopbackOpenAI(list(script))
        one.__enter__()
        running.append(one)
        return one

    yield start
    for one in running:
        one.__exit__(None, None, None)


def last_user(request):
    return [each["content"] for each in request["messages"] if each["role"] == "user"][-1]


def test_recalled_facts_reach_the_model_and_nothing_else(kept, server):
    """The block is in the newest user message of a request only, and never appears in an answer."""
    kept("providers", "setup", "holographic")
    kept("tool", "fact_store", json.dumps({"action": "add", "content": SECRETLY}))
    echo = f"As I know: <memory-context>\n{SECRETLY}\n</memory-context>it is oolong."
    model = server(Says(echo, piece_length=3), Says("You are welcome.", piece_length=5))
    first = kept("run", QUESTION, "--model", "openai/loopback-model", "--json", env=model.environment)
    second = kept(
        "run",
        "Thanks",
        "--resume",
        first.json["session_id"],
        "--model",
        "openai/loopback-model",
        "--json",
        env=model.environment,
    )

    sent = last_user(model.requests[0].body)
    assert sent.count("<memory-context>") == 1
    assert SECRETLY in sent
    assert first.json["answer"] == "As I know: it is oolong."
    assert second.code == 0, second.err
    users = [each["content"] for each in model.requests[1].body["messages"] if each["role"] == "user"]
    assert [text.partition("\n")[0] for text in users] == [QUESTION, "Thanks"]
    assert "<memory-context>" not in users[0]
    shown = kept("sessions", "show", first.json["session_id"], "--json").out
    assert "Taiwan" not in shown
    found = json.loads(kept("sessions", "search", "Taiwan", "--json").out)
    assert "oolong from Taiwan" not in json.dumps(found)


def test_a_provider_tool_is_called_by_the_model(kept, server):
    """The tools of the provider are offered, and their answers go back."""
    kept("providers", "setup", "holographic")
    model = server(
        Says("", tool_calls=(call("fact_store", action="add", content="Deploys run on Tuesday"),)), Says("Kept.")
    )
    ran = kept("run", "Keep it", "--model", "openai/loopback-model", "--json", env=model.environment)

    assert ran.json["tool_calls"][0]["ok"] is True, ran.err
    assert "fact_store" in json.dumps(model.requests[0].body["tools"])
    assert "Tuesday" in kept("tool", "fact_store", '{"action": "list"}').out


def test_a_provider_that_hangs_and_throws_costs_its_time_out_and_loses_no_turn(kept_process, home, server):
    """The answer comes, the finished turn reaches the provider, and status shows what went wrong."""
    folder = home / "plugins" / "slow"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(HANGING)
    (home / "config.yaml").write_text(
        "memory:\n  provider: slow\nproviders:\n  prefetch_timeout_seconds: 0.5\n  switch_wait_seconds: 1\n"
    )
    model = server(Says("Here I am."))

    begun = time.monotonic()
    ran = kept_process("run", "hello", "--model", "openai/loopback-model", "--json", env=model.environment)

    assert ran.code == 0, ran.err
    assert ran.json["answer"] == "Here I am."
    assert time.monotonic() - begun < 45
    assert (home / "told.txt").read_text() == f"{ran.json['session_id']}|hello|Here I am.\n"
    status = kept_process("providers", "status", "--json").json["active"][0]
    assert status["health"] == "failing"
    assert status["last_error"]


BEHIND = """
import time
from agent.memory_provider import MemoryProvider
class Behind(MemoryProvider):
    name = "behind"
    def is_available(self): return True
    def initialize(self, session_id, **context): pass
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
    def prefetch(self, query, *, session_id=""): return "Anna drinks oolong"
    def queue_prefetch(self, query, *, session_id=""): time.sleep(60)
    def sync_turn(self, user, assistant, *, session_id="", messages=()): time.sleep(60)
    def on_memory_write(self, action, target, content, metadata=None): time.sleep(60)
"""


def test_the_first_word_waits_for_nothing_but_recall(home, server, tmp_path):
    """What a provider does with the turn before, however long, is not in the way of the next one."""
    folder = home / "plugins" / "behind"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(BEHIND)
    (home / "config.yaml").write_text("memory: {provider: behind}\nproviders: {switch_wait_seconds: 0.1}\n")
    model = server(*["fine"] * 4)
    app = open_app(str(home), environ={"HOME": str(tmp_path), **model.environment})
    agent = app.owner.agent(Opening(), model_name="openai/loopback-model")

    async def talk():
        await agent.turn("one")
        begun = time.monotonic()
        for text in ("two", "three", "four"):
            await agent.turn(text)
        return time.monotonic() - begun

    took = anyio.run(talk)
    app.close()

    assert took < 50
    assert "oolong" in last_user(model.requests[3].body)

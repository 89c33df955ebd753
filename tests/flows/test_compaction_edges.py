"""Compaction at its edges: hooks, the note, sub-agents, and what a search from inside finds."""

import json

import pytest

from wellkept.context.summary import load_prompt
from wellkept.core.messages import Usage
from wellkept.llm.scripted import Says, call
from wellkept.llm.tokens import text_tokens
from wellkept.testing.loopback import Overflows
from wellkept.testing.loopback_servers import LoopbackOpenAI

PROVIDER = """
import json
from pathlib import Path
from wellkept.providers.base import MemoryProvider

class Recorder(MemoryProvider):
    name = "recorder"
    def _note(self, hook):
        with Path(__file__).with_name("calls.txt").open("a") as file:
            file.write(hook + "\\n")
    def is_available(self): return True
    def initialize(self, session_id, **context): pass
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
    def on_pre_compress(self, messages):
        self._note("on_pre_compress")
        return "the insight of the provider"
    def on_turn_start(self, turn, message, **context):
        with Path(__file__).with_name("turns.txt").open("a") as file:
            file.write(f"{turn}\\n")
    def on_session_end(self, messages): self._note("on_session_end")
    def on_session_switch(self, new_id, **how): self._note("on_session_switch:" + how["reason"])

def register(ctx): ctx.register_memory_provider(Recorder())
"""
SUMMARY = "## Goal\n- go on\n## Progress\n- a lot\n## Next Steps\n- more\n"


class Endpoint:
    """Answers as `reply` says, reports usage, and writes summaries when it is asked to."""

    def __init__(self, reply=lambda body: Says("Fine. " + "Yes. " * 120)):
        self.reply = reply
        self.bodies, self.summaries = [], []

    def __call__(self, body):
        text = json.dumps(body)
        if "working record of a conversation" in text:
            self.summaries.append(text)
            return SUMMARY
        self.bodies.append(body)
        step = self.reply(body)
        if isinstance(step, Overflows):
            return step
        return Says(step.text, step.tool_calls, usage=Usage(input_tokens=text_tokens(text), output_tokens=20))

    @property
    def system(self):
        return str(self.bodies[-1]["messages"][0]["content"])


@pytest.fixture
def talk(kept, home):
    """Says things in one conversation, with a window and an endpoint of choice."""

    def begin(server, *, window, toolsets, more=""):
        home.mkdir()
        (home / "config.yaml").write_text(
            f"model: {{default: openai/loopback-model, retries: 0, context_length: {window}}}\n"
            f"toolsets: {toolsets}\nreview: {{enabled: false}}\n{more}"
        )
        where = []

        def say(text, *options):
            ran = kept("run", *where, *options, "--json", "--", text, env=server.environment)
            assert ran.code == 0, ran.err
            where[:] = ["--resume", ran.json["session_id"]]
            return ran

        return say

    return begin


def _provider(home):
    folder = home / "plugins" / "recorder"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PROVIDER)
    return folder / "calls.txt"


def test_pruning_fires_no_hook(talk, home, work):
    """Shortening old tool output is not reported to providers as a compaction, neither then nor later."""
    (work / "big.txt").write_text("a line of the file\n" * 900)

    def reply(body):
        asks = body["messages"][-1]["role"] == "user"
        return Says(tool_calls=(call("read_file", path="big.txt"),)) if asks else Says("Read.")

    with LoopbackOpenAI(Endpoint(reply)) as server:
        more = "memory: {provider: recorder}\ncompression: {protect_last_n: 2}\n"
        say = talk(server, window=32_000, toolsets="[memory, workspace]", more=more)
        calls = _provider(home)
        said = [say(f"read it, time {number}").err for number in range(5)]

    assert any("0 messages summarised" in text for text in said)
    assert set(calls.read_text().split()) == {"on_session_end"}


def test_hooks_come_in_order_and_their_text_reaches_the_summary(talk, home):
    """Before: pre-compress; after: commit, then the switch. Turn numbers continue without a gap."""
    endpoint = Endpoint()
    with LoopbackOpenAI(endpoint) as server:
        say = talk(server, window=8_000, toolsets="[memory, session_search]", more="memory: {provider: recorder}\n")
        calls = _provider(home)
        while not endpoint.summaries:
            before = calls.read_text().split() if calls.exists() else []
            say("please go on with it. " * 30)
        fresh = calls.read_text().split()[len(before) :]
        say("and then?")

    ended = ["on_session_end"]
    turns = [int(number) for number in calls.with_name("turns.txt").read_text().split()]
    assert turns == list(range(1, len(turns) + 1))
    assert fresh == ["on_pre_compress", *ended, "on_session_switch:compression", *ended]
    assert "the insight of the provider" in endpoint.summaries[0]


def test_the_note_outlives_a_change_of_the_model(talk):
    """A prompt that is rebuilt after a compaction says that there was one, once."""
    endpoint = Endpoint()
    with LoopbackOpenAI(endpoint) as server:
        say = talk(server, window=8_000, toolsets="[memory, session_search]")
        while not endpoint.summaries:
            say("please go on with it. " * 30)
        say("and now", "--model", "openai/another-model")

    assert endpoint.system.count(load_prompt("note")) == 1


def test_a_sub_agent_that_outgrows_the_window_compacts_too(talk, work):
    """A long task of a sub-agent ends with its report."""
    (work / "big.txt").write_text("a line of the file\n" * 260)
    reads = iter(range(20))

    def reply(body):
        if text_tokens(json.dumps(body)) > 16_000:
            return Overflows()
        said = str([one["content"] for one in body["messages"] if one["role"] == "user"])
        if "ERRAND" in said and next(reads, None) is not None:
            return Says(tool_calls=(call("read_file", path="big.txt"),))
        if "ERRAND" in said or body["messages"][-1]["role"] == "tool":
            return Says("The report.")
        return Says(tool_calls=(call("delegate_task", task="ERRAND"),))

    with LoopbackOpenAI(Endpoint(reply)) as server:
        ran = talk(server, window=16_000, toolsets="[workspace, delegation]")("read all of it")

    assert [one["ok"] for one in ran.json["tool_calls"]] == [True], ran.err


def test_a_search_finds_what_was_said_and_not_its_own_answers(talk, kept):
    """Stored answers of a search quote titles and passages; they must not rank above the originals."""

    def reply(body):
        asks = body["messages"][-1]["role"] == "user"
        return Says(tool_calls=(call("session_search", query="which shelf"),)) if asks else Says("Done.")

    with LoopbackOpenAI(Endpoint(reply)) as server:
        say = talk(server, window=64_000, toolsets="[session_search]")
        say("The spare key lies on shelf zq17x.")
        for number in range(6):
            say(f"which shelf was it, number {number}?")
    [found] = kept("tool", "session_search", '{"query": "zq17x"}').json["results"]

    assert found["matched_role"] == "user"
    assert "spare key lies on shelf zq17x" in found["snippet"]


def test_a_search_finds_the_original_and_not_its_summary(talk, kept):
    """The summary quotes what was said; what is found is the message itself, under its id."""
    endpoint = Endpoint()
    with LoopbackOpenAI(endpoint) as server:
        say = talk(server, window=8_000, toolsets="[memory, session_search]")
        say("hello")
        say("The spare key lies on shelf zq17x. " + "Mind the step. " * 30)
        while "zq17x" in str(endpoint.bodies[-1]["messages"]) and len(endpoint.bodies) < 40:
            say("please go on with it. " * 30)
    [found] = kept("tool", "session_search", '{"query": "zq17x"}').json["results"]

    assert endpoint.summaries
    assert found["snippet"].startswith("The spare key lies on shelf zq17x.")
